package mount

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// Device is a block device that is empty or has a file system.
type Device struct {
	Path    string
	FSType  string // file system of an empty device; empty: ext4
	Options []string
	// ReadOnly means that the device must not be formatted or repaired.
	ReadOnly bool
}

// Device mounts a device with the programs blkid, fsck, mkfs and mount. It checks the file system first, unless it is
// mounted elsewhere, and formats the device only if blkid finds nothing on it. It locks the device meanwhile.
func (Kernel) Device(dir string, d Device) error {
	path, err := filepath.EvalSymlinks(d.Path)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return &os.PathError{Op: "flock", Path: path, Err: err}
	}
	m := mountutils.NewSafeFormatAndMount(mountutils.NewWithoutSystemd(""), utilexec.New())
	has, err := m.GetDiskFormat(path)
	if err != nil {
		return fmt.Errorf("blkid of %s: %w", path, err)
	}
	if has == "" && d.ReadOnly {
		return fmt.Errorf("%s has no file system, and read-only mounts create none", path)
	}
	used, err := inUse(f)
	if err != nil {
		return err
	}
	fsType := cmp.Or(d.FSType, has)
	if used || d.ReadOnly {
		return m.Mount(path, dir, fsType, d.Options)
	}
	return m.FormatAndMount(path, dir, fsType, d.Options)
}
