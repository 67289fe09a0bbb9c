package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Needs returns why no sandbox can start on containerd on the machine below root, and how to fix that; nil if nothing
// is missing. hosts says whether containerd copies /etc/hosts for each pod.
func Needs(root string, hosts bool) error {
	if !hosts {
		return cgroupsMounted(root)
	}
	return errors.Join(cgroupsMounted(root), Hosts(root))
}

func cgroupsMounted(root string) error {
	mount := filepath.Join(root, "sys/fs/cgroup")
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return nil
	}
	if v1, err := filepath.Glob(filepath.Join(mount, "*/cgroup.procs")); err == nil && len(v1) > 0 {
		return nil
	}
	return errors.New("no control groups are mounted: run mount -t cgroup2 none /sys/fs/cgroup")
}

// MountCgroups mounts cgroup v2 if no control groups are mounted.
func MountCgroups() error {
	if cgroupsMounted("/") == nil {
		return nil
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", flags, ""); err != nil {
		return fmt.Errorf("mount cgroup2 at /sys/fs/cgroup: %w", err)
	}
	return nil
}

// Hosts returns an error if the machine below root has no /etc/hosts, which containerd copies for each pod.
func Hosts(root string) error {
	if _, err := os.Stat(filepath.Join(root, "etc/hosts")); err != nil {
		return fmt.Errorf("the machine has no /etc/hosts, which containerd copies for each pod: "+
			"run echo 127.0.0.1 localhost > /etc/hosts (%w)", err)
	}
	return nil
}

// WriteHosts writes the /etc/hosts of the machine below root, if it has none.
func WriteHosts(root string) (written bool, err error) {
	f, err := os.OpenFile(filepath.Join(root, "etc/hosts"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost\n")
	return err == nil, errors.Join(err, f.Close())
}
