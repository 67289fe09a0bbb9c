package containerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A pod that an earlier version started in the machine's containerd is not started again in another one.
func TestMoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pods", "1-2-3"), 0o755); err != nil {
		t.Fatal(err)
	}
	sandbox := func(uid string) []*api.PodSandbox {
		return []*api.PodSandbox{{Metadata: &api.PodSandboxMetadata{Uid: uid, Namespace: "default", Name: "web"}}}
	}
	if err := moved(dir, sandbox("1-2-3")); err == nil || !strings.Contains(err.Error(), "--containerd="+hostSocket) {
		t.Errorf("a pod in the machine's containerd: %v", err)
	}
	for _, uid := range []string{"4-5-6", ""} {
		if err := moved(dir, sandbox(uid)); err != nil {
			t.Errorf("no pod of this data folder, %q: %v", uid, err)
		}
	}
}

// Programs of earlier versions are removed, also those that a power cut left half written, but not those that run.
func TestRemoveUnused(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "old", unpacking + "1"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeUnused(dir, filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "new" {
		t.Errorf("left %v, %v", left, err)
	}
	used, err := executed(filepath.Dir(filepath.Dir(self)))
	if err != nil || !used[filepath.Dir(self)] {
		t.Errorf("the folder of this program is not in use: %v, %v", used, err)
	}
}
