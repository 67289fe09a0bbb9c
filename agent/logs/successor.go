package logs

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

// successor opens the file in which the writer of f continued; nil: f is still the current file. The runtime writes
// to a rotated file until it has opened the new one, so f counts as complete only when a later file has content. If
// several rotations happened meanwhile, successor returns the first later file that is not compressed.
func successor(path string, f *os.File) (*os.File, error) {
	mine, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if now, err := os.Stat(path); err == nil && os.SameFile(now, mine) {
		return nil, nil
	}
	files, err := openLater(path, mine)
	if err != nil || !slices.ContainsFunc(files, hasContent) {
		closeAll(files)
		return nil, err
	}
	closeAll(files[1:])
	return files[0], nil
}

// openLater opens the uncompressed files after mine in the order in which they were written. It opens the log itself
// before it lists the others: if the log is rotated meanwhile, it is also listed, and no file is skipped.
func openLater(path string, mine fs.FileInfo) (files []*os.File, err error) {
	last, err := os.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if last != nil {
		if now, err := last.Stat(); err != nil || os.SameFile(now, mine) { // a rotation was undone
			last.Close()
			return nil, err
		}
		defer func() { files = append(files, last) }()
	}
	names, err := plain(path)
	if err != nil {
		return nil, err
	}
	for _, name := range later(names[:len(names)-1], mine) {
		f, err := os.Open(name)
		switch {
		case err == nil:
			files = append(files, f)
		case !errors.Is(err, fs.ErrNotExist):
			return files, err
		}
	}
	return files, nil
}

// later returns the names after that of mine. If mine is compressed or removed, it compares modification times instead.
func later(names []string, mine fs.FileInfo) (out []string) {
	listed := false
	for _, name := range names {
		info, err := os.Stat(name)
		switch {
		case err != nil: // compressed just now
		case os.SameFile(info, mine):
			out, listed = nil, true
		case listed || !info.ModTime().Before(mine.ModTime()):
			out = append(out, name)
		}
	}
	return out
}

func hasContent(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Size() > 0
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
