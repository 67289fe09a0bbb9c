package host

import (
	"os"
	"path/filepath"
	"testing"
)

// Process 1 leaves the root of a cgroup namespace, but neither the machine's root nor that of cgroup v1.
func TestLeaveRoot(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{"cgroup.type": "1", "cgroup.controllers": "", "cpu": ""} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), []byte("domain\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := leaveRoot(dir)
		if got, _ := os.ReadFile(filepath.Join(dir, "init/cgroup.procs")); err != nil || string(got) != want {
			t.Errorf("%s: process %q moved, %v", file, got, err)
		}
	}
}
