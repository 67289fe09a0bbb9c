package runtimetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
)

func testContainerLife(t *testing.T, env Env) {
	p := newPod(t, env)
	ctx := t.Context()
	config := p.container("-listen", ":0")
	config.Annotations = map[string]string{"monopod.dev/hash": "4711"}
	id := p.create(config)
	if s := p.status(id); s.State != cri.ContainerState_CONTAINER_CREATED || s.CreatedAt == 0 || s.StartedAt != 0 {
		t.Errorf("created: %v", s)
	}
	if err := env.Runtime.StartContainer(ctx, id); err != nil {
		t.Fatal(err)
	}
	s := p.status(id)
	if s.State != cri.ContainerState_CONTAINER_RUNNING || s.StartedAt < s.CreatedAt || s.FinishedAt != 0 {
		t.Errorf("running: %v", s)
	}
	if s.Image.GetImage() == "" || s.ImageRef == "" || s.LogPath != p.logFile() {
		t.Errorf("image %v, ref %q, log %q", s.Image, s.ImageRef, s.LogPath)
	}
	for what, diff := range map[string]string{
		"metadata":    cmp.Diff(config.Metadata, s.Metadata, protocmp.Transform()),
		"labels":      cmp.Diff(config.Labels, s.Labels),
		"annotations": cmp.Diff(config.Annotations, s.Annotations),
	} {
		if diff != "" {
			t.Errorf("the status has other %s (-want +got): %s", what, diff)
		}
	}
	if err := env.Runtime.StartContainer(ctx, id); err == nil {
		t.Error("a running container started again")
	}
	if err := env.Runtime.UpdateContainerResources(ctx, id,
		&cri.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 256 << 20}); err != nil {
		t.Errorf("update of a running container: %v", err)
	}
	if err := env.Runtime.UpdateContainerResources(ctx, "none", &cri.LinuxContainerResources{CpuShares: 512}); status.Code(
		err) != codes.NotFound {
		t.Errorf("update of a container that does not exist: %v", err)
	}
	p.checkDeath(id)
}

// checkDeath stops and removes a running container, each twice.
func (p *pod) checkDeath(id string) {
	p.Helper()
	p.awaitLog("listens on")
	for range 2 {
		if err := p.Runtime.StopContainer(p.Context(), id, patience); err != nil {
			p.Fatalf("stop: %v", err)
		}
		if s := p.status(id); s.State != cri.ContainerState_CONTAINER_EXITED || s.FinishedAt < s.StartedAt {
			p.Errorf("stopped: %v", s)
		}
	}
	if err := p.Runtime.StartContainer(p.Context(), id); err == nil {
		p.Error("a dead container started")
	}
	for range 2 {
		if err := p.Runtime.RemoveContainer(p.Context(), id); err != nil {
			p.Fatalf("remove: %v", err)
		}
		_, err := p.Runtime.ContainerStatus(p.Context(), id)
		wantCode(p.T, "removed container", err, codes.NotFound)
	}
}

func testContainerList(t *testing.T, env Env) {
	p, q := newPod(t, env), newPod(t, env)
	running := p.serve()
	created := q.create(q.container())
	state := func(s cri.ContainerState) *cri.ContainerStateValue { return &cri.ContainerStateValue{State: s} }
	for _, tc := range []struct {
		name             string
		filter           *cri.ContainerFilter
		running, created bool
	}{
		{"nil", nil, true, true},
		{"id", &cri.ContainerFilter{Id: running}, true, false},
		{"sandbox", &cri.ContainerFilter{PodSandboxId: q.id}, false, true},
		{"running", &cri.ContainerFilter{State: state(cri.ContainerState_CONTAINER_RUNNING)}, true, false},
		{"created", &cri.ContainerFilter{State: state(cri.ContainerState_CONTAINER_CREATED)}, false, true},
		{"labels", &cri.ContainerFilter{LabelSelector: map[string]string{"uid": p.config.Metadata.Uid}}, true, false},
		{"labels of another pod",
			&cri.ContainerFilter{PodSandboxId: q.id, LabelSelector: map[string]string{"uid": p.config.Metadata.Uid}}, false,
			false},
		{"unknown id", &cri.ContainerFilter{Id: "nothing-here"}, false, false},
	} {
		list, err := env.Runtime.ListContainers(t.Context(), tc.filter)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		found := map[string]*cri.Container{}
		for _, c := range list {
			found[c.Id] = c
		}
		if (found[running] != nil) != tc.running || (found[created] != nil) != tc.created {
			t.Errorf("%s: found the running container %v, want %v; the created container %v, want %v",
				tc.name, found[running] != nil, tc.running, found[created] != nil, tc.created)
		}
		if c := found[running]; c != nil &&
			(c.PodSandboxId != p.id || c.Metadata.GetName() != "main" || c.State != cri.ContainerState_CONTAINER_RUNNING) {
			t.Errorf("%s: listed as %v", tc.name, c)
		}
	}
}

func testAttempts(t *testing.T, env Env) {
	p := newPod(t, env)
	first := p.run(p.container("exit", "1"))
	p.awaitExit(first)
	again := p.container("exit", "0")
	if _, err := env.Runtime.CreateContainer(t.Context(), p.id, again, p.config); err == nil {
		t.Error("a second container with the same name and attempt was created")
	}
	again.Metadata.Attempt = 1
	again.LogPath = "main_1.log"
	second := p.run(again)
	if s := p.awaitExit(second); s.Metadata.Attempt != 1 || s.ExitCode != 0 {
		t.Errorf("second attempt: %v", s)
	}
	if s := p.status(first); s.Metadata.Attempt != 0 || s.ExitCode != 1 {
		t.Errorf("first attempt: %v", s)
	}
}

func testExitCodes(t *testing.T, env Env) {
	p := newPod(t, env)
	for attempt, tc := range []struct {
		args   string
		code   int32
		reason string
	}{
		{"exit 0", 0, "Completed"},
		{"exit 3", 3, "Error"},
		{"sleep 20ms exit 255", 255, "Error"},
		{"no-such-command", 2, "Error"},
	} {
		config := p.container(strings.Fields(tc.args)...)
		config.Metadata.Attempt = uint32(attempt)
		s := p.awaitExit(p.run(config))
		if s.ExitCode != tc.code || s.Reason != tc.reason {
			t.Errorf("%s: code %d, reason %q, want %d, %q", tc.args, s.ExitCode, s.Reason, tc.code, tc.reason)
		}
	}
}

func testStartFails(t *testing.T, env Env) {
	p := newPod(t, env)
	config := p.container()
	config.Command = []string{"/no/such/program"}
	id := p.create(config)
	if err := env.Runtime.StartContainer(t.Context(), id); err == nil ||
		!strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("the error of StartContainer does not name the program: %v", err)
	}
	if s := p.status(id); s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode != 128 || s.Reason != "StartError" {
		t.Errorf("state %v, code %d, reason %q", s.State, s.ExitCode, s.Reason)
	}
}

func testOOM(t *testing.T, env Env) {
	if env.WithoutMemoryLimits != "" {
		t.Skip(env.WithoutMemoryLimits)
	}
	p := newPod(t, env)
	config := p.container("alloc", "256")
	config.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}
	events, err := env.Runtime.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := p.run(config)
	seen := false
	for e := next(t, events, id); e.Type != runtime.EventContainerExited; e = next(t, events, id) {
		seen = seen || e.Type == runtime.EventContainerOOM
	}
	if !seen {
		t.Error("no OOM event before the exit")
	}
	if s := p.awaitExit(id); s.ExitCode != 137 || s.Reason != "OOMKilled" {
		t.Errorf("code %d, reason %q", s.ExitCode, s.Reason)
	}
}

func testStopHonoured(t *testing.T, env Env) {
	p := newPod(t, env)
	id := p.serve()
	if err := env.Runtime.StopContainer(t.Context(), id, patience); err != nil {
		t.Fatal(err)
	}
	if s := p.status(id); s.ExitCode != 0 || s.Reason != "Completed" {
		t.Errorf("code %d, reason %q", s.ExitCode, s.Reason)
	}
	if log := p.log(); !strings.Contains(log, "received SIGTERM") {
		t.Errorf("no SIGTERM in the log:\n%s", log)
	}
}

func testStopSlow(t *testing.T, env Env) {
	p := newPod(t, env)
	id := p.serve("-stop-after", "300ms")
	began := time.Now()
	if err := env.Runtime.StopContainer(t.Context(), id, patience); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("took %v, want at least 300ms", took)
	}
	if s := p.status(id); s.ExitCode != 0 {
		t.Errorf("code %d", s.ExitCode)
	}
}

func testStopIgnored(t *testing.T, env Env) {
	p := newPod(t, env)
	id := p.serve("-ignore-term")
	began := time.Now()
	if err := env.Runtime.StopContainer(t.Context(), id, time.Second); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("took %v, less than the grace period of 1 s", took)
	}
	if s := p.status(id); s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode != 137 || s.Reason != "Error" {
		t.Errorf("state %v, code %d, reason %q", s.State, s.ExitCode, s.Reason)
	}
}

func testStopWithoutGrace(t *testing.T, env Env) {
	p := newPod(t, env)
	id := p.serve("-stop-after", "30s")
	if err := env.Runtime.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if s := p.status(id); s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode != 137 {
		t.Errorf("state %v, code %d", s.State, s.ExitCode)
	}
}

func testNotFound(t *testing.T, env Env) {
	p := newPod(t, env)
	ctx, r, none := t.Context(), env.Runtime, "nothing-here"
	missingImage := p.container()
	missingImage.Image.Image = "monopod.local/none:1"
	for what, call := range map[string]func() error{
		"PodSandboxStatus": func() error { _, err := r.PodSandboxStatus(ctx, none); return err },
		"ContainerStatus":  func() error { _, err := r.ContainerStatus(ctx, none); return err },
		"StartContainer":   func() error { return r.StartContainer(ctx, none) },
		"ReopenLog":        func() error { return r.ReopenContainerLog(ctx, none) },
		"ExecSync":         func() error { _, _, _, err := r.ExecSync(ctx, none, []string{"/web", "env"}, 0); return err },
		"CreateContainer":  func() error { _, err := r.CreateContainer(ctx, none, p.container(), p.config); return err },
		"missing image":    func() error { _, err := r.CreateContainer(ctx, p.id, missingImage, p.config); return err },
	} {
		wantCode(t, what, call(), codes.NotFound)
	}
	for what, err := range map[string]error{
		"StopContainer":    r.StopContainer(ctx, none, time.Second),
		"RemoveContainer":  r.RemoveContainer(ctx, none),
		"StopPodSandbox":   r.StopPodSandbox(ctx, none),
		"RemovePodSandbox": r.RemovePodSandbox(ctx, none),
		"RemoveImage":      r.RemoveImage(ctx, "monopod.local/none:1"),
	} {
		if err != nil {
			t.Errorf("%s with an unknown ID: %v", what, err)
		}
	}
}

// testProcess checks the environment of a process: command, arguments, environment variables, working directory,
// host name.
func testProcess(t *testing.T, env Env) {
	p := newPod(t, env)
	config := p.container("env")
	config.Envs = []*cri.KeyValue{{Key: "GREETING", Value: []byte("good day")}, {Key: "EMPTY"},
		{Key: "PATH", Value: []byte("/elsewhere")}}
	p.awaitExit(p.run(config))
	log := p.log()
	for _, line := range []string{" F GREETING=good day\n", " F EMPTY=\n", " F HOSTNAME=" + p.config.Hostname + "\n",
		" F PATH=/elsewhere\n"} {
		if !strings.Contains(log, line) {
			t.Errorf("the environment lacks %q:\n%s", line, log)
		}
	}
	if strings.Contains(log, " F PATH=/\n") {
		t.Errorf("PATH has the value of the image:\n%s", log)
	}

	q := newPod(t, env)
	config = q.container("one", "two")
	config.Command = []string{"/web", "stderr"}
	q.awaitExit(q.run(config))
	if log := q.log(); !strings.HasSuffix(log, " stderr F one two\n") {
		t.Errorf("the log with command and arguments is %q", log)
	}
}

func testMounts(t *testing.T, env Env) {
	p := newPod(t, env)
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "greeting"), []byte("moin\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(host, "made")
	config := p.container("-listen", ":0")
	config.WorkingDir = "/etc/config"
	config.Mounts = []*cri.Mount{
		{ContainerPath: "/etc/config", HostPath: host, Readonly: true},
		{ContainerPath: "/data", HostPath: made},
		{ContainerPath: "/one-file", HostPath: filepath.Join(host, "greeting"), Readonly: true},
	}
	id := p.run(config)
	for _, tc := range []struct {
		args   string
		code   int32
		stdout string
	}{
		{"cat /etc/config/greeting", 0, "moin\n"},
		{"cat greeting", 0, "moin\n"},
		{"cat /one-file", 0, "moin\n"},
		{"write /etc/config/greeting bye", 1, ""},
		{"write /data/message all well", 0, ""},
		{"ls /data", 0, "message\n"},
		{"write /tmp/note inside", 0, ""},
		{"cat /tmp/note", 0, "inside\n"},
	} {
		stdout, stderr, code := p.execute(id, strings.Fields(tc.args)...)
		if code != tc.code || stdout != tc.stdout {
			t.Errorf("%s: code %d, stdout %q, stderr %q, want %d, %q", tc.args, code, stdout, stderr, tc.code, tc.stdout)
		}
	}
	if data, err := os.ReadFile(filepath.Join(made, "message")); err != nil || string(data) != "all well\n" {
		t.Errorf("on the host the written file is %q, %v", data, err)
	}
	if s := p.status(id); len(s.Mounts) < 3 {
		t.Errorf("mounts are missing in the status: %v", s.Mounts)
	}
}
