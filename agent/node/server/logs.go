package server

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// logs serves the files and folders of the log folder. Names and symlinks cannot lead outside of it.
func (s *server) logs(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("query") {
		http.Error(w, "queries of node logs (NodeLogQuery) are not supported: request a file below /logs/",
			http.StatusBadRequest)
		return
	}
	root, err := os.OpenRoot(s.LogDir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			fail(w, err)
			return
		}
		http.NotFound(w, r)
		return
	}
	defer root.Close()
	http.StripPrefix("/logs/", http.FileServerFS(confined{root})).ServeHTTP(w, r)
}

// confined is a folder whose symlinks may contain absolute paths within it, like those in logs/containers.
type confined struct{ root *os.Root }

// Open implements fs.FS. It only opens regular files and folders, and reports every other name as fs.ErrNotExist.
func (c confined) Open(name string) (fs.File, error) {
	f, err := c.open(name)
	if err != nil {
		target, _ := c.root.Readlink(name)
		if inside, found := strings.CutPrefix(target, c.root.Name()+string(filepath.Separator)); found {
			f, err = c.open(inside)
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: f.Name(), Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// open opens a file without blocking on a named pipe that has no writer.
func (c confined) open(name string) (*os.File, error) {
	return c.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}
