package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel mounts with the kernel's own calls.
type Kernel struct{}

var _ Mounter = Kernel{}

// Tmpfs mounts a tmpfs that everybody may write to.
func (Kernel) Tmpfs(dir string, size int64) error {
	options := "mode=0777"
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	return os.NewSyscallError("mount", unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options))
}

// Mounted reads the kernel's table: comparing devices would miss bind mounts.
func (Kernel) Mounted(dir string) (bool, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false, err
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	return strings.Contains(string(table), " "+escape(real)+" "), nil
}

// Folders mounts nothing: what would lie in memory lies in plain folders. It is for
// pods that only seem to run.
type Folders struct{}

var _ Mounter = Folders{}

// Tmpfs leaves the folder as it is.
func (Folders) Tmpfs(string, int64) error { return nil }

// Mounted says that nothing is.
func (Folders) Mounted(string) (bool, error) { return false, nil }

// Unmount has nothing to do.
func (Folders) Unmount(string) error { return nil }

// escape writes a path as mountinfo does.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
}

// Unmount detaches what is mounted on dir; nothing there is no error.
func (Kernel) Unmount(dir string) error {
	err := unix.Unmount(dir, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return os.NewSyscallError("umount2", err)
}
