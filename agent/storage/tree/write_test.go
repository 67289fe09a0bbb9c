package tree_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/agent/storage/tree"
)

// After a kill of the agent at any step of an update, the next agent completes the update.
func TestUpdateAfterInterruption(t *testing.T) {
	t.Parallel()
	old := tree.Files{"a": {Data: []byte("1"), Mode: 0o644}, "gone": {Data: []byte("1"), Mode: 0o644}}
	next := tree.Files{"a": {Data: []byte("2"), Mode: 0o644}, "new/x": {Data: []byte("2"), Mode: 0o644}}
	version := func(dir, name string) {
		write(t, filepath.Join(dir, name, "a"), "2")
		write(t, filepath.Join(dir, name, "new/x"), "2")
	}
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	for name, leave := range map[string]func(dir string){
		"before the first step":  func(string) {},
		"partial version":        func(dir string) { write(t, dir+"/..v_dead/a", "2") },
		"complete version":       func(dir string) { version(dir, "..v_dead") },
		"temporary link":         func(dir string) { version(dir, "..v_dead"); link("..v_dead", dir+"/..data_tmp") },
		"new version, old names": func(dir string) { version(dir, "..v_dead"); relink(t, dir, "..v_dead") },
		"version truncated by a power failure": func(dir string) {
			write(t, dir+"/..v_dead/a", "")
			write(t, dir+"/..v_dead/new/x", "")
			relink(t, dir, "..v_dead")
		},
		"dangling link": func(dir string) { relink(t, dir, "..v_none") },
	} {
		dir := t.TempDir()
		if err := tree.WriteAtomic(dir, old, nil); err != nil {
			t.Fatal(err)
		}
		leave(dir)
		if err := tree.WriteAtomic(dir, next, nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if read(t, dir+"/a") != "2" || read(t, dir+"/new/x") != "2" {
			t.Errorf("%s: wrong content", name)
		}
		var names []string
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name()[:min(4, len(e.Name()))])
		}
		if got := strings.Join(names, " "); got != "..da ..v_ a new" {
			t.Errorf("%s: the volume contains %v", name, entries)
		}
	}
}

func relink(t *testing.T, dir, version string) {
	t.Helper()
	if err := errors.Join(os.Remove(dir+"/..data"), os.Symlink(version, dir+"/..data")); err != nil {
		t.Fatal(err)
	}
}

// The text of an error is the same each time, so that repeated errors can be compared.
func TestErrorsOfFiles(t *testing.T) {
	t.Parallel()
	file := func() tree.File { return tree.File{Mode: 0o644} }
	for _, c := range []struct {
		files tree.Files
		want  string
	}{
		{tree.Files{"a": file(), "a/b": file()}, `conflicting paths "a" and "a/b"`},
		{tree.Files{"a": file(), "a/b/c": file()}, `conflicting paths "a" and "a/b/c"`},
		{tree.Files{strings.Repeat("x", 300): file()}, "open " + strings.Repeat("x", 300) + ": file name too long"},
	} {
		dir := t.TempDir()
		if err := tree.WriteAtomic(dir, c.files, nil); err == nil || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("files left: %v, error %v", left, err)
		}
	}
	if err := tree.WriteAtomic(t.TempDir()+"/none", tree.Files{}, nil); err == nil ||
		err.Error() != "create a new version: no such file or directory" {
		t.Errorf("WriteAtomic in a missing folder returned %v", err)
	}
}

// A reader sees either the old or the new version of all files.
func TestUpdateIsAtomic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := func(text string) tree.Files {
		return tree.Files{"x": {Data: []byte(text), Mode: 0o644}, "sub/y": {Data: []byte(text), Mode: 0o644}}
	}
	if err := tree.WriteAtomic(dir, files("0"), nil); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Both files of one resolved version have the same content.
			version, err := os.Readlink(dir + "/..data")
			if err != nil {
				t.Error(err)
				return
			}
			x, errX := os.ReadFile(filepath.Join(dir, version, "x"))
			y, errY := os.ReadFile(filepath.Join(dir, version, "sub/y"))
			if errX == nil && errY == nil && string(x) != string(y) {
				t.Errorf("x is %s, y is %s", x, y)
			}
			if _, err := os.ReadFile(dir + "/x"); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		}
	}()
	for i := range 200 {
		if err := tree.WriteAtomic(dir, files(string(rune('a'+i%26))), nil); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-done
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
