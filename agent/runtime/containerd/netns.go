package containerd

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// namespaceID identifies a namespace in the kernel.
type namespaceID struct{ dev, inode uint64 }

// clearNamespaces removes the pods' network namespaces without processes, which a
// containerd leaks if it is killed while it creates or removes a sandbox. No
// containerd may run; a dead sandbox does not need its namespace.
func (c *Child) clearNamespaces() error {
	files, err := filepath.Glob(filepath.Join(c.layout.state, "*", "netns", "*"))
	if err != nil || len(files) == 0 {
		return err
	}
	lived, err := livedIn()
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if id, ok := namespaceOf(file); ok && lived[id] {
			continue
		}
		if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // not mounted
			errs = append(errs, err)
		}
		errs = append(errs, os.Remove(file))
	}
	return errors.Join(errs...)
}

// livedIn returns the network namespaces of all processes.
func livedIn() (map[namespaceID]bool, error) {
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	lived := map[namespaceID]bool{}
	for _, link := range links {
		if id, ok := namespaceOf(link); ok { // otherwise the process has ended
			lived[id] = true
		}
	}
	return lived, err
}

func namespaceOf(path string) (namespaceID, bool) {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil {
		return namespaceID{}, false
	}
	return namespaceID{uint64(stat.Dev), stat.Ino}, true //nolint:unconvert // of another type on other machines
}
