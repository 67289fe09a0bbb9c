package bolt

import (
	"errors"
	"fmt"
	"os"

	"monopod/store"
)

// errFolder means that the data folder is not the one that was locked. Monopod does not write to the new folder, which
// may be on another disk.
var errFolder = fmt.Errorf(
	"%w: the data folder was removed or replaced while monopod runs; put it back, or restart to use the current one",
	store.ErrUnavailable)

// fileCheck contains the state of the open file after the last write. If the state differs, another process has
// removed, replaced or written the file. Each commit compares it, so the comparison needs few system calls.
type fileCheck struct {
	place  *Place
	folder *os.File // locked as long as the file is open
	file   *os.File
	info   os.FileInfo // of file
	heads  heads
}

// heads contains the first bytes of the two meta pages, of which each commit changes one.
type heads [2][128]byte

func (h *heads) read(f *os.File) error {
	_, first := f.ReadAt(h[0][:], 0)
	_, second := f.ReadAt(h[1][:], PageSize)
	return errors.Join(first, second)
}

// record records the current state of the file for later checks.
func (w *fileCheck) record(s *stateFile) {
	w.file = s.file
	if info, err := s.file.Stat(); err == nil {
		w.info = info
	}
	_ = w.heads.read(s.file) // after an error, check fails
}

// check returns store.ErrLost if the file has changed since record, and errFolder if the folder has changed.
func (w *fileCheck) check() error {
	is, err := os.Stat(w.place.path)
	if err != nil || !os.SameFile(is, w.info) {
		if !same(w.folder, w.place.dir()) {
			return errFolder
		}
		return fmt.Errorf("%w: %s", store.ErrLost, w.place.path)
	}
	var now heads
	if now.read(w.file) != nil || is.Size() < w.info.Size() || now != w.heads {
		return fmt.Errorf("%w: another process has written to %s", store.ErrLost, w.place.path)
	}
	return nil
}

// same reports whether the open file is the one at path.
func same(f *os.File, path string) bool {
	was, err := f.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(path)
	return err == nil && os.SameFile(was, is)
}
