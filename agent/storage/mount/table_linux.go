package mount

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Below lists the mount points below dir, the last one made first: the order in which
// they can be unmounted. One at dir itself is left out: it is the user's, who keeps
// this folder on another disk. Symlinks in dir are followed, as the kernel's table
// holds none.
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

// inTable looks for what fd is in the table of all mounts. Comparing devices would
// miss bind mounts.
func inTable(fd int) (bool, error) {
	path, err := os.Readlink(Open(fd))
	if err != nil {
		return false, err
	}
	return anyMount(mountinfo.SingleEntryFilter(path))
}

// inUse says whether a device is mounted anywhere, under whatever name.
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
