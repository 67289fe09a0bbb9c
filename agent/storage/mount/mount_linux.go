// Package mount mounts, unmounts and removes on this machine.
//
//   - Kernel does so by the kernel's own calls; but for block devices (Device) it runs
//     blkid, fsck, mkfs and mount.
//   - Folders mounts nothing, for pods that only seem to run.
//   - RemoveAll removes folders without ever removing through a mount.
package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Tmpfs says how a file system in memory is made.
type Tmpfs struct {
	Size  int64 // in bytes; 0: the kernel's default
	Mode  os.FileMode
	Group *int64 // of its top; nil: root's
	Page  int64  // of huge pages, in bytes
	// Plain: neither devices nor set-user-id programs count in it.
	Plain bool
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

// unixMode is a mode as system calls have it.
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

// Kernel mounts with the kernel's own calls, and devices with programs.
type Kernel struct{}

// Tmpfs is kept out of swap where the kernel can do that (Linux 6.4).
func (Kernel) Tmpfs(dir string, o Tmpfs) error {
	err := unix.Mount("tmpfs", dir, "tmpfs", o.flags(), o.options()+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", o.flags(), o.options())
	}
	return os.NewSyscallError("mount", err)
}

// Huge fails where the kernel has no pages of that size.
func (Kernel) Huge(dir string, o Tmpfs) error {
	return os.NewSyscallError("mount", unix.Mount("nodev", dir, "hugetlbfs", o.flags(), o.options()))
}

// Bind mounts what fd is, whatever its name has become since it was opened.
func (Kernel) Bind(fd int, target string) (string, error) {
	return target, os.NewSyscallError("mount", unix.Mount(Open(fd), target, "", unix.MS_BIND, ""))
}

// Share binds dir onto itself unless it is a mount already.
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

// Mounted asks the kernel about dir alone: reading the table of all mounts for each
// volume would cost the square of their number.
func (Kernel) Mounted(dir string) (bool, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	return mountRoot(fd)
}

// mountRoot says whether fd is the top of a mount. It asks nobody but this kernel: the
// server of a file system may be gone.
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

// isDead says whether an error is that of a mount whose file system is no more
// (upstream: IsCorruptedMnt).
func isDead(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOTCONN, unix.ESTALE, unix.EIO, unix.EHOSTDOWN}, func(dead error) bool { return errors.Is(err, dead) })
}

// Unmount detaches: what still uses the mount keeps it until it is done.
func (Kernel) Unmount(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return os.NewSyscallError("umount2", err)
}

// UnmountBelow detaches every mount below dir, whoever made it: the last one made goes
// first. It goes on after a failure.
func (k Kernel) UnmountBelow(dir string) error {
	points, err := Below(dir)
	errs := []error{err}
	for _, point := range points {
		errs = append(errs, k.Unmount(point))
	}
	return errors.Join(errs...)
}

// Folders mounts nothing: what would lie in memory lies in plain folders. It is for
// pods that only seem to run.
type Folders struct{}

// Tmpfs makes dir, while it is empty, as the file system would be.
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

// Huge leaves dir as it is.
func (Folders) Huge(string, Tmpfs) error { return nil }

// Device leaves dir as it is.
func (Folders) Device(string, Device) error { return nil }

// Bind gives a file a second name, so that it stays when the first goes. A folder is
// seen where it lies.
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

// Share has nothing to do.
func (Folders) Share(string) error { return nil }

// Mounted says that nothing is.
func (Folders) Mounted(string) (bool, error) { return false, nil }

// Unmount has nothing to do.
func (Folders) Unmount(string) error { return nil }

// Open names what is open as fd, whatever has become of its name.
func Open(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
