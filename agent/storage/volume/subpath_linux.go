package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/agent/host/mount"
	"monopod/agent/storage/tree"
)

// subPathsDir contains the mounts of subPaths below a pod's folder in kubelet's layout:
// <volume>/<container>/<index of the mount>.
const subPathsDir = "volume-subpaths"

// subPath mounts sub, a file or folder of the volume at root, on target and returns target. It creates a missing folder
// with the mode and group of root.
//
// A container may change names in the volume meanwhile, but the mount never leaves the volume: subPath mounts the
// opened file, and looks up no name twice.
func (s *Set) subPath(root, sub, target string) (string, error) {
	if err := checkSubPath(sub); err != nil {
		return "", err
	}
	fd, err := tree.Open(root, sub)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	want, err := tree.Stat(fd)
	if err != nil {
		return "", err
	}
	if s.isMounted(target, want) {
		return target, nil
	}
	if err := s.makeTarget(target, tree.IsFolder(want)); err != nil {
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

// isMounted reports whether an earlier attempt has mounted the same file on target.
func (s *Set) isMounted(target string, want *unix.Stat_t) bool {
	mounted, err := s.Mounter.Mounted(target)
	if err != nil || !mounted {
		return false
	}
	var st unix.Stat_t
	return unix.Lstat(target, &st) == nil && st.Dev == want.Dev && st.Ino == want.Ino
}

// makeTarget creates an empty file or folder to mount on. It replaces the target of an earlier attempt.
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
