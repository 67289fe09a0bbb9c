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

// subPathsDir holds what subPaths show, <volume>/<container>/<index of the mount>,
// below a pod's folder, as kubelet lays it out.
const subPathsDir = "volume-subpaths"

// subPath shows sub, a file or folder of the volume at root, at target and returns
// where it is to be seen. A folder that is not there is made, with the mode of root and
// its group: what is setgid there is so for the pod's group.
//
// A container may change names in the volume meanwhile. It cannot reach out of it:
// what is shown is what was opened, and no name is looked up a second time.
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

// subPathTarget is where a subPath is shown.
func (s *Set) subPathTarget(volume, container string, index int) string {
	return filepath.Join(s.Dir, subPathsDir, volume, container, strconv.Itoa(index))
}

// checkSubPath words its errors as upstream does.
func checkSubPath(sub string) error {
	if filepath.IsAbs(sub) {
		return fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(sub, "/"), "..") {
		return fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return nil
}

// shows says whether an earlier attempt mounted the same on target.
func (s *Set) shows(target string, want *unix.Stat_t) bool {
	mounted, err := s.Mounter.Mounted(target)
	if err != nil || !mounted {
		return false
	}
	var st unix.Stat_t
	return unix.Lstat(target, &st) == nil && st.Dev == want.Dev && st.Ino == want.Ino
}

// makeTarget makes an empty file or folder to mount on, in place of what an earlier
// attempt left.
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

// openInside opens, as O_PATH, what sub is in the folder root; the folders that lead
// to it are made where they are not there.
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

// busyTries is how often a look-up is tried that the kernel could not make sure of,
// since something was renamed meanwhile.
const busyTries = 1024

// openBeneath follows symlinks as long as they stay below top.
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

// makeInside makes the folders of path that are not there, and opens the last one.
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

// makeFolder makes a folder like another and opens it; a symlink in its place is an
// error.
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

// makeLike gives a folder, whatever the umask and the folder it lies in, the mode of
// another, and its group where that is handed down. The mode comes last: the group
// takes bits away.
func makeLike(fd int, like *unix.Stat_t) error {
	if like.Mode&unix.S_ISGID != 0 {
		if err := ignoreRights(unix.Fchownat(fd, "", -1, int(like.Gid), unix.AT_EMPTY_PATH)); err != nil {
			return os.NewSyscallError("chown", err)
		}
	}
	return os.NewSyscallError("chmod", unix.Chmod(mount.Open(fd), like.Mode&^unix.S_IFMT))
}
