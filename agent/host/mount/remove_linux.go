package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Unmounter unmounts the topmost mount of dir.
type Unmounter interface{ Unmount(dir string) error }

const (
	// entriesAtOnce is the number of names of a folder that are read at once.
	entriesAtOnce = 1024
	// removeTries is the number of attempts for a busy or non-empty name, on which something is mounted or in which
	// files appear meanwhile.
	removeTries = 16
	// removeDepth limits the depth of the traversal, which keeps one file open for each level. Deeper folders are moved
	// up, because a container can nest them without limit.
	removeDepth = 64
)

// RemoveAll removes path and its content. It unmounts the mounts in it, and never removes the content of a mount: if a
// mount fails to unmount, RemoveAll keeps it and returns an error. It does not follow symlinks.
func RemoveAll(path string, m Unmounter) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(parent)
	r := remover{mounter: m, top: parent, base: filepath.Base(path), left: []string{filepath.Base(path)}}
	for ; len(r.left) > 0; r.left = r.left[1:] {
		if err := r.remove(parent, r.left[0], 0); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return nil
}

type remover struct {
	mounter Unmounter
	top     int // the open parent folder
	base    string
	left    []string // names in top that must be removed
	moved   int      // number of folders moved up
}

// remove removes a name in a folder; a missing name is not an error.
func (r *remover) remove(dir int, name string, depth int) error {
	var err error
	for range removeTries {
		err = unix.Unlinkat(dir, name, 0)
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EBUSY): // mounted on a file
			err = r.detach(dir, name)
		case errors.Is(err, unix.EISDIR):
			err = r.folder(dir, name, depth)
			if err == nil {
				return nil
			}
		}
		if !errors.Is(err, errAgain) {
			break
		}
	}
	deeper := &os.PathError{}
	if errors.As(err, &deeper) {
		deeper.Path = filepath.Join(name, deeper.Path)
		return err
	}
	return &os.PathError{Op: "remove", Path: name, Err: err}
}

// errAgain means that the removal must be tried again.
var errAgain = errors.New("it is still mounted or in use")

// folder empties a folder and removes it.
func (r *remover) folder(dir int, name string, depth int) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	mounted, err := mountRoot(fd)
	switch {
	case err != nil:
		return err
	case mounted:
		return r.unmount(fd)
	case depth >= removeDepth:
		return r.moveUp(dir, name)
	}
	if err := r.empty(fd, depth); err != nil {
		return err
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
		return errAgain
	}
	return err
}

// moveUp moves a folder to top, where it is removed later.
func (r *remover) moveUp(dir int, name string) error {
	for {
		r.moved++
		up := fmt.Sprintf("%s.deep-%d", r.base, r.moved)
		err := unix.Renameat2(dir, name, r.top, up, unix.RENAME_NOREPLACE)
		if err == nil {
			r.left = append(r.left, up)
		}
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

func (r *remover) empty(fd, depth int) error {
	inside, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(inside), "")
	defer f.Close()
	for {
		names, err := f.Readdirnames(entriesAtOnce)
		for _, name := range names {
			if err := r.remove(inside, name, depth+1); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// detach unmounts the mount on a file.
func (r *remover) detach(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return r.unmount(fd)
}

// unmount returns errAgain after it has unmounted something.
func (r *remover) unmount(fd int) error {
	if err := r.mounter.Unmount(Open(fd)); err != nil {
		return err
	}
	return errAgain
}
