package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/agent/host/mount"
)

// IsFolder reports whether a file is a folder.
func IsFolder(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// Open opens the path sub in the folder root with O_PATH. It creates missing folders.
func Open(root, sub string) (int, error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: root, Err: err}
	}
	defer unix.Close(top)
	fd, err := openBeneath(top, filepath.Clean(sub))
	if errors.Is(err, unix.ENOENT) {
		fd, err = makeInside(top, filepath.Clean(sub))
	}
	if errors.Is(err, unix.EXDEV) {
		err = errors.New("it points outside the volume")
	}
	if err != nil {
		return -1, fmt.Errorf("subPath %q: %w", sub, err)
	}
	return fd, nil
}

// busyTries is how often a lookup is retried that a concurrent rename has interrupted.
const busyTries = 1024

// openBeneath follows symlinks that stay below top.
func openBeneath(top int, path string) (fd int, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for range busyTries {
		fd, err = unix.Openat2(top, path, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.ENOSYS) {
		err = fmt.Errorf("it cannot be opened safely before Linux 5.6: %w", err)
	}
	return fd, err
}

// makeInside creates the missing folders of path and opens the last one.
func makeInside(top int, path string) (int, error) {
	st, err := Stat(top)
	if err != nil {
		return -1, err
	}
	at, err := openBeneath(top, ".")
	if err != nil {
		return -1, err
	}
	parts := strings.Split(path, "/")
	for i, name := range parts {
		next, err := openBeneath(top, strings.Join(parts[:i+1], "/"))
		if errors.Is(err, unix.ENOENT) {
			next, err = makeFolder(at, name, st)
		}
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// makeFolder creates a folder with the mode and group of another one, and opens it. It fails for a symlink.
func makeFolder(parent int, name string, like *unix.Stat_t) (int, error) {
	made := unix.Mkdirat(parent, name, like.Mode&^unix.S_IFMT)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return -1, made
	}
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if made == nil {
		err = makeLike(fd, like)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// makeLike sets a folder's mode, and if setgid is set also its group, to those of another folder, regardless of the
// umask. It changes the mode last, because chown clears bits of the mode.
func makeLike(fd int, like *unix.Stat_t) error {
	if like.Mode&unix.S_ISGID != 0 {
		if err := IgnoreRights(unix.Fchownat(fd, "", -1, int(like.Gid), unix.AT_EMPTY_PATH)); err != nil {
			return os.NewSyscallError("chown", err)
		}
	}
	return os.NewSyscallError("chmod", unix.Chmod(mount.Open(fd), like.Mode&^unix.S_IFMT))
}
