package runtimetest

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func readonly(container, host string) *cri.Mount {
	return &cri.Mount{ContainerPath: container, HostPath: host, Readonly: true}
}

func testExecSync(t *testing.T, env Env) {
	p := newPod(t, env)
	config := p.container("-listen", ":0")
	config.Envs = []*cri.KeyValue{{Key: "GREETING", Value: []byte("moin")}}
	id := p.run(config)
	for _, tc := range []struct {
		args           string
		code           int32
		stdout, stderr string
	}{
		{"echo hello", 0, "hello\n", ""},
		{"stderr oh no", 0, "", "oh no\n"},
		{"exit 3", 3, "", ""},
		{"sleep 10ms exit 200", 200, "", ""},
	} {
		stdout, stderr, code := p.execute(id, strings.Fields(tc.args)...)
		if code != tc.code || stdout != tc.stdout || stderr != tc.stderr {
			t.Errorf("%s: code %d, %q, %q, want %d, %q, %q", tc.args, code, stdout, stderr, tc.code, tc.stdout, tc.stderr)
		}
	}
	if stdout, _, _ := p.execute(id, "env"); !strings.Contains(stdout, "GREETING=moin\n") {
		t.Errorf("the command lacks the environment of the container:\n%s", stdout)
	}
	if _, _, _, err := env.Runtime.ExecSync(t.Context(), id, []string{"/no/such/program"}, patience); err == nil {
		t.Error("ExecSync of a program that does not exist succeeded")
	}
	if err := env.Runtime.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := env.Runtime.ExecSync(t.Context(), id, []string{"/web", "env"}, patience); err == nil {
		t.Error("ExecSync in an exited container succeeded")
	}
}

func testExecSyncTimeout(t *testing.T, env Env) {
	p := newPod(t, env)
	id := p.serve()
	began := time.Now()
	_, _, _, err := env.Runtime.ExecSync(t.Context(), id, []string{"/web", "sleep", "3600"}, time.Second)
	wantCode(t, "exec that takes too long", err, codes.DeadlineExceeded)
	if took := time.Since(began); took < time.Second {
		t.Errorf("took %v, less than its timeout of 1 s", took)
	}
	if s := p.status(id); s.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %v", s.State)
	}
}
