package host

import (
	"os"
	"path/filepath"
	"testing"
)

// PID 1 leaves the root cgroup of a cgroup namespace, but neither the root cgroup of the machine nor one of cgroup v1.
func TestLeaveRoot(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{"cgroup.type": "1", "cgroup.controllers": "", "cpu": ""} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), []byte("domain\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := leaveRoot(dir)
		if got, _ := os.ReadFile(filepath.Join(dir, "init/cgroup.procs")); err != nil || string(got) != want {
			t.Errorf("%s: moved process %q, error %v", file, got, err)
		}
	}
}
