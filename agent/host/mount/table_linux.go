package mount

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Below returns the mount points below dir, the last mounted one first: the order in which they can be unmounted. It
// does not return dir itself, which may be a disk of the user. It resolves symlinks in dir, because the kernel's table
// contains resolved paths.
func Below(dir string) ([]string, error) {
	path, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	points := make([]string, 0, len(mounts))
	for _, m := range slices.Backward(mounts) {
		if m.Mountpoint != path {
			points = append(points, m.Mountpoint)
		}
	}
	return points, err
}

// inTable reports whether fd is in the mount table. Comparing devices would miss bind mounts.
func inTable(fd int) (bool, error) {
	path, err := os.Readlink(Open(fd))
	if err != nil {
		return false, err
	}
	return anyMount(mountinfo.SingleEntryFilter(path))
}

// inUse reports whether a device is mounted anywhere, under any of its names.
func inUse(device *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &st); err != nil {
		return false, &os.PathError{Op: "stat", Path: device.Name(), Err: err}
	}
	major, minor := int(unix.Major(st.Rdev)), int(unix.Minor(st.Rdev))
	return anyMount(func(m *mountinfo.Info) (skip, stop bool) {
		found := m.Major == major && m.Minor == minor
		return !found, found
	})
}

func anyMount(filter mountinfo.FilterFunc) (bool, error) {
	found, err := mountinfo.GetMounts(filter)
	return len(found) > 0, err
}

// ShareTree makes dir a shared mount, so that what a container mounts below it with mountPropagation appears on the
// machine. It changes nothing if dir is shared already, as with systemd, or if there are mounts below it, which would
// be hidden.
func (k Kernel) ShareTree(dir string) error {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	parents, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return err
	}
	of := &mountinfo.Info{}
	for _, m := range parents { // of several mounts on one folder the last is visible
		if len(m.Mountpoint) >= len(of.Mountpoint) {
			of = m
		}
	}
	if strings.Contains(of.Optional, "shared:") {
		return nil
	}
	if below, err := Below(path); err != nil || len(below) > 0 && of.Mountpoint != path {
		return err
	}
	return k.Share(path)
}

// UnshareTree undoes ShareTree, also that of an earlier process, unless there are mounts below dir. It leaves a disk
// that is mounted on dir.
func (k Kernel) UnshareTree(dir string) error {
	var is, parent unix.Stat_t
	err := errors.Join(unix.Stat(dir, &is), unix.Stat(filepath.Dir(dir), &parent))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	below, tableErr := Below(dir)
	if err = errors.Join(err, tableErr); err != nil || is.Dev != parent.Dev || len(below) > 0 {
		return err
	}
	return k.Unmount(dir)
}
