// Package mount mounts, unmounts and removes folders on this machine.
//
//   - Kernel uses system calls, and for block devices (Device) blkid, fsck, mkfs and mount.
//   - Folders mounts nothing, for pods of the fake runtime.
//   - RemoveAll removes folders, and never removes through a mount.
package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Tmpfs are the options of a file system in memory.
type Tmpfs struct {
	Size  int64 // in bytes; 0: the kernel's default
	Mode  os.FileMode
	Group *int64 // of its root; nil: root's
	Page  int64  // of huge pages, in bytes
	Plain bool   // device files and set-user-ID programs have no effect
}

func (o Tmpfs) options() string {
	s := fmt.Sprintf("mode=%04o", unixMode(o.Mode))
	if o.Size > 0 {
		s += fmt.Sprintf(",size=%d", o.Size)
	}
	if o.Group != nil {
		s += fmt.Sprintf(",gid=%d", *o.Group)
	}
	if o.Page > 0 {
		s += fmt.Sprintf(",pagesize=%d", o.Page)
	}
	return s
}

func (o Tmpfs) flags() uintptr {
	if o.Plain {
		return unix.MS_NOSUID | unix.MS_NODEV
	}
	return 0
}

// unixMode converts a mode to that of system calls.
func unixMode(m os.FileMode) uint32 {
	out := uint32(m.Perm())
	if m&os.ModeSetgid != 0 {
		out |= unix.S_ISGID
	}
	if m&os.ModeSticky != 0 {
		out |= unix.S_ISVTX
	}
	return out
}

// Kernel mounts with system calls, and devices with programs.
type Kernel struct{}

// Tmpfs mounts a tmpfs, which is not swapped out if the kernel supports that (Linux 6.4).
func (Kernel) Tmpfs(dir string, o Tmpfs) error {
	err := unix.Mount("tmpfs", dir, "tmpfs", o.flags(), o.options()+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", o.flags(), o.options())
	}
	return os.NewSyscallError("mount", err)
}

// Huge mounts a hugetlbfs. It fails if the kernel has no huge pages of that size.
func (Kernel) Huge(dir string, o Tmpfs) error {
	return os.NewSyscallError("mount", unix.Mount("nodev", dir, "hugetlbfs", o.flags(), o.options()))
}

// Bind bind-mounts the open file fd, even if its name has changed meanwhile.
func (Kernel) Bind(fd int, target string) (string, error) {
	return target, os.NewSyscallError("mount", unix.Mount(Open(fd), target, "", unix.MS_BIND, ""))
}

// Share makes dir a shared mount. It binds dir onto itself unless it is a mount already.
func (k Kernel) Share(dir string) error {
	mounted, err := k.Mounted(dir)
	if err != nil {
		return err
	}
	if !mounted {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return os.NewSyscallError("mount", err)
		}
	}
	return os.NewSyscallError("mount", unix.Mount("", dir, "", unix.MS_SHARED, ""))
}

// Mounted reports whether dir is a mount point. It does not read the mount table, which would take quadratic time for
// many volumes.
func (Kernel) Mounted(dir string) (bool, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	return mountRoot(fd)
}

// mountRoot reports whether fd is the root of a mount. It does not contact the server of a network file system, which
// may not respond.
func mountRoot(fd int) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &st)
	switch {
	case err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	case isDead(err):
		return true, nil
	}
	return inTable(fd) // Linux before 5.8
}

// isDead reports whether an error means that the file system of a mount no longer exists (upstream: IsCorruptedMnt).
func isDead(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOTCONN, unix.ESTALE, unix.EIO, unix.EHOSTDOWN},
		func(dead error) bool { return errors.Is(err, dead) })
}

// Unmount detaches the mount at dir. Processes that use the mount keep it until they end.
func (Kernel) Unmount(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return os.NewSyscallError("umount2", err)
}

// UnmountBelow unmounts every mount below dir, the last one first. It continues after a failure.
func (k Kernel) UnmountBelow(dir string) error {
	points, err := Below(dir)
	errs := []error{err}
	for _, point := range points {
		errs = append(errs, k.Unmount(point))
	}
	return errors.Join(errs...)
}

// Folders mounts nothing: it uses plain folders in place of file systems in memory, for pods of the fake runtime.
type Folders struct{}

// Tmpfs sets owner and mode of dir while it is empty.
func (Folders) Tmpfs(dir string, o Tmpfs) error {
	if inside, err := os.ReadDir(dir); err != nil || len(inside) > 0 {
		return err
	}
	if o.Group != nil {
		if err := os.Chown(dir, -1, int(*o.Group)); err != nil && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	return os.Chmod(dir, o.Mode)
}

// Huge does nothing.
func (Folders) Huge(string, Tmpfs) error { return nil }

// Device does nothing.
func (Folders) Device(string, Device) error { return nil }

// Bind creates a hard link of a file, which remains if the file is removed. For a folder it returns the folder's path.
func (Folders) Bind(fd int, target string) (string, error) {
	path, err := os.Readlink(Open(fd))
	if err != nil {
		return "", err
	}
	link := filepath.Join(filepath.Dir(target), ".new-"+filepath.Base(target))
	if err := unix.Linkat(unix.AT_FDCWD, Open(fd), unix.AT_FDCWD, link, unix.AT_SYMLINK_FOLLOW); err != nil {
		return path, nil
	}
	return target, os.Rename(link, target)
}

// Share does nothing.
func (Folders) Share(string) error { return nil }

// ShareTree does nothing.
func (Folders) ShareTree(string) error { return nil }

// UnshareTree does nothing.
func (Folders) UnshareTree(string) error { return nil }

// Mounted returns false.
func (Folders) Mounted(string) (bool, error) { return false, nil }

// Unmount does nothing.
func (Folders) Unmount(string) error { return nil }

// Open returns a path of the open file fd that does not depend on the file's name.
func Open(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
