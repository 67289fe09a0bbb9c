package script_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"monopod/apiserver/kit/local"
	"monopod/testdata/harness"
)

// TestKubectlInside runs kubectl's commands in a monopod that contains kubectl, with an empty PATH.
func TestKubectlInside(t *testing.T) {
	b := buildAll(t)
	program := b.BuildWithKubectl(t)
	t.Parallel()
	dir, err := os.MkdirTemp("", "kc") // a short path for the socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server := harness.NewServer(program, filepath.Join(dir, "data"), "--runtime=fake", "--node-name=node1")
	server.Start()
	defer server.End(syscall.SIGTERM)
	if !harness.Eventually(harness.Enough, func() bool {
		_, err := local.At(server.Dir).Read(t.Context(), "/readyz")
		return err == nil
	}) {
		t.Fatal("monopod is not ready")
	}
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\ndata: {color: blue}\n"
	for _, step := range []struct{ args, want string }{
		{"version --client", `^Client Version: v1\.37\.2\n`},
		{"apply -f -", `^configmap/kept created\n$`},
		{"get configmap kept -o jsonpath={.data.color}", `^blue$`},
		{"describe configmap kept", `(?s)Name: +kept\n.*color:\n----\nblue`},
		{"delete configmap kept", `deleted`},
		{"explain pod.spec.nodeName", `FIELD: nodeName`},
	} {
		verb, rest, _ := strings.Cut(step.args, " ")
		for _, args := range [][]string{{"kubectl", "--data-dir", server.Dir, verb}, {verb}} {
			if verb == "version" && len(args) == 1 {
				continue // monopod has its own command version
			}
			cmd := exec.Command(program, append(args, strings.Fields(rest)...)...)
			cmd.Env, cmd.Stdin = []string{"PATH=", "HOME=" + dir, "MONOPOD_DATA_DIR=" + server.Dir}, strings.NewReader(config)
			out, _ := cmd.CombinedOutput() // the output contains the error
			want := step.want
			if len(args) == 1 { // the second run of the step
				want = map[string]string{"apply": `^configmap/kept unchanged\n$`, "delete": `"kept" not found`}[verb]
			}
			if want == "" {
				want = step.want
			}
			if !regexp.MustCompile(want).Match(out) {
				t.Errorf("monopod %s %s: %s, want %s", strings.Join(args, " "), rest, out, want)
			}
		}
	}
}
