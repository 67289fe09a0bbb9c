package logs

import (
	"os"
	"path/filepath"
	"testing"
)

// A tail that falls between two files starts in the current one.
func TestTailAcrossEmptyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	aside := path + ".20260101-000000"
	for name, text := range map[string]string{aside: "2026-01-01T00:00:00Z stdout F old\n", path: ""} {
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	begins := func(want string) {
		t.Helper()
		f, err := openTail(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Name() != want {
			t.Errorf("the tail begins in %s, want %s", f.Name(), want)
		}
	}
	begins(aside)
	if err := os.WriteFile(path, []byte("2026-01-01T00:00:01Z stdout F new\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	begins(path)
}
