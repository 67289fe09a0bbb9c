package cmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// contents returns the files of an archive by name.
func contents(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	large := append(make([]byte, maxArchivedFile), "the end"...)
	if err := errors.Join(os.MkdirAll(filepath.Join(logs, "pod"), 0o700),
		os.WriteFile(filepath.Join(logs, "pod", "0.log"), []byte("line\n"), 0o600),
		os.Symlink("/etc/passwd", filepath.Join(logs, "link")),
		os.WriteFile(filepath.Join(dir, "large"), large, 0o600)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a.tar.gz")
	a, err := createArchive(path, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n, err := a.addFolder("logs", logs)
	if err != nil || n != 1 {
		t.Errorf("added %d files of the folder, want 1; error %v", n, err)
	}
	if n, err := a.addFolder("none", filepath.Join(dir, "none")); err != nil || n != 0 {
		t.Errorf("added %d files of a folder that does not exist, error %v", n, err)
	}
	if err := errors.Join(a.Add("status.json", []byte("{}")), a.addFile("large", filepath.Join(dir, "large")),
		a.Close()); err != nil {
		t.Fatal(err)
	}
	got := contents(t, path)
	if string(got["logs/pod/0.log"]) != "line\n" || string(got["status.json"]) != "{}" || len(got) != 3 {
		t.Errorf("the archive contains %d files: %q, %q", len(got), got["logs/pod/0.log"], got["status.json"])
	}
	if len(got["large"]) != maxArchivedFile || !bytes.HasSuffix(got["large"], []byte("the end")) {
		t.Errorf("the archive has %d bytes of the large file, want its last bytes", len(got["large"]))
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the archive has mode %v, error %v", info.Mode(), err)
	}
}
