package containerd

import (
	"os"
	"path/filepath"
	"testing"
)

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
