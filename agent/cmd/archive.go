package cmd

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// maxArchivedFile is the maximum size of a file in an archive, in bytes. Of a larger file, only the end is kept, as
// logs need.
const maxArchivedFile = 32 << 20

// archive is a .tar.gz file that is being written. Close must follow.
type archive struct {
	file *os.File
	gzip *gzip.Writer
	tar  *tar.Writer
	now  time.Time
}

// createArchive creates the file, which only its owner can read. It replaces an existing one.
func createArchive(path string, now time.Time) (*archive, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	z := gzip.NewWriter(f)
	return &archive{f, z, tar.NewWriter(z), now}, nil
}

// Add adds a file with this content.
func (a *archive) Add(name string, content []byte) error {
	if err := a.header(name, int64(len(content)), a.now); err != nil {
		return err
	}
	_, err := a.tar.Write(content)
	return err
}

// addFile adds the file at path, or its last maxArchivedFile bytes.
func (a *archive) addFile(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := min(info.Size(), maxArchivedFile)
	if _, err := f.Seek(info.Size()-size, io.SeekStart); err != nil {
		return err
	}
	if err := a.header(name, size, info.ModTime()); err != nil {
		return err
	}
	n, err := io.Copy(a.tar, io.LimitReader(f, size)) // the file may grow meanwhile
	if err != nil {
		return err
	}
	return a.fill(size - n)
}

// fill appends zeros for a file that was truncated while it was read.
func (a *archive) fill(missing int64) error {
	_, err := io.CopyN(a.tar, zeros{}, missing)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// addFolder adds the regular files below dir under the name. It skips files that are removed meanwhile, and
// accepts a missing dir. It returns the number of added files.
func (a *archive) addFolder(name, dir string) (added int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		below, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch err := a.addFile(filepath.Join(name, below), path); {
		case err == nil:
			added++
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	return added, err
}

func (a *archive) header(name string, size int64, modified time.Time) error {
	return a.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Size: size, Mode: 0o600, ModTime: modified.Truncate(time.Second),
	})
}

// Close completes the file.
func (a *archive) Close() error {
	return errors.Join(a.tar.Close(), a.gzip.Close(), a.file.Close())
}
