package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/agent/storage/mount"
)

// subPathsDir contains the mounts of subPaths below a pod's folder in kubelet's layout:
// <volume>/<container>/<index of the mount>.
const subPathsDir = "volume-subpaths"

// subPath mounts sub, a file or folder of the volume at root, on target and returns target. It
// creates a missing folder with the mode and group of root.
//
// A container may change names in the volume meanwhile, but cannot make the mount leave the
// volume: the opened file is mounted, and no name is looked up twice.
func (s *Set) subPath(root, sub, target string) (string, error) {
	if err := checkSubPath(sub); err != nil {
		return "", err
	}
	fd, err := openInside(root, sub)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	want, err := stat(fd)
	if err != nil {
		return "", err
	}
	if s.shows(target, want) {
		return target, nil
	}
	if err := s.makeTarget(target, isFolder(want)); err != nil {
		return "", err
	}
	return s.Mounter.Bind(fd, target)
}

// subPathTarget returns the path at which a subPath is mounted.
func (s *Set) subPathTarget(volume, container string, index int) string {
	return filepath.Join(s.Dir, subPathsDir, volume, container, strconv.Itoa(index))
}

// checkSubPath returns upstream's errors.
func checkSubPath(sub string) error {
	if filepath.IsAbs(sub) {
		return fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return nil
}

// shows reports whether an earlier attempt has mounted the same file on target.
func (s *Set) shows(target string, want *unix.Stat_t) bool {
	mounted, err := s.Mounter.Mounted(target)
	if err != nil || !mounted {
		return false
	}
	var st unix.Stat_t
	return unix.Lstat(target, &st) == nil && st.Dev == want.Dev && st.Ino == want.Ino
}

// makeTarget creates an empty file or folder to mount on, and removes what an earlier attempt
// left.
func (s *Set) makeTarget(target string, folder bool) error {
	if err := mount.RemoveAll(target, s.Mounter); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if folder {
		return os.Mkdir(target, 0o750)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

func isFolder(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// openInside opens sub in the folder root as O_PATH. It creates missing folders.
func openInside(root, sub string) (int, error) {
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
		err = errors.New("it leads out of the volume")
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
	st, err := stat(top)
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

// makeFolder creates a folder with the mode and group of another and opens it. It fails for a
// symlink.
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

// makeLike sets a folder's mode and, where it is inherited, its group to those of another folder,
// whatever the umask. It changes the mode last, because chown clears bits of the mode.
func makeLike(fd int, like *unix.Stat_t) error {
	if like.Mode&unix.S_ISGID != 0 {
		if err := ignoreRights(unix.Fchownat(fd, "", -1, int(like.Gid), unix.AT_EMPTY_PATH)); err != nil {
			return os.NewSyscallError("chown", err)
		}
	}
	return os.NewSyscallError("chmod", unix.Chmod(mount.Open(fd), like.Mode&^unix.S_IFMT))
}
