package mount

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
)

// Device mounts with the programs blkid, fsck, mkfs and mount. It checks a file system
// before, unless it is mounted elsewhere, and makes one, ext4 if fsType is empty, only
// where the device holds nothing that blkid knows.
func (Kernel) Device(device, dir, fsType string, options []string) error {
	device, err := filepath.EvalSymlinks(device)
	if err != nil {
		return err
	}
	m := mountutils.NewSafeFormatAndMount(mountutils.NewWithoutSystemd(""), utilexec.New())
	has, err := m.GetDiskFormat(device)
	if err != nil {
		return fmt.Errorf("blkid of %s: %w", device, err)
	}
	mounts, err := m.List()
	if err != nil {
		return err
	}
	fsType = cmp.Or(fsType, has)
	if slices.ContainsFunc(mounts, func(p mountutils.MountPoint) bool { return p.Device == device }) {
		return m.Mount(device, dir, fsType, options)
	}
	return m.FormatAndMount(device, dir, fsType, options)
}
