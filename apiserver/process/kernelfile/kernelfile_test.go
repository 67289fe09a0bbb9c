package kernelfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReadAndWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v for a file that does not exist", err)
	}
	if err := Write(filepath.Join(path, "below"), "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v in a folder that does not exist", err)
	}
	for _, size := range []int{0, 1, 511, 512, 513, 2048, 100_000} {
		want := bytes.Repeat([]byte("x"), size)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d, %v", len(got), size, err)
		}
	}
	if err := Write(path, "12"); err != nil {
		t.Error(err)
	}
	if got, err := Read(path); err != nil || string(got) != "12" {
		t.Errorf("%.8q, %v", got, err)
	}
}
