package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
