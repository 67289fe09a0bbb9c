package containerd

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// namespaceID identifies a namespace in the kernel.
type namespaceID struct{ dev, inode uint64 }

// removeOrphanedNamespaces removes the network namespaces without processes, which containerd leaks if it is killed
// while it creates or removes a sandbox. containerd must not be running.
func (c *Child) removeOrphanedNamespaces() error {
	files, err := filepath.Glob(filepath.Join(c.layout.state, "*", "netns", "*"))
	if err != nil || len(files) == 0 {
		return err
	}
	used, err := usedNamespaces()
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if id, ok := namespaceOf(file); ok && used[id] {
			continue
		}
		if err := unix.Unmount(file, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // not mounted
			errs = append(errs, err)
		}
		errs = append(errs, os.Remove(file))
	}
	return errors.Join(errs...)
}

// usedNamespaces returns the network namespaces of all processes.
func usedNamespaces() (map[namespaceID]bool, error) {
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	used := map[namespaceID]bool{}
	for _, link := range links {
		if id, ok := namespaceOf(link); ok { // otherwise the process has ended
			used[id] = true
		}
	}
	return used, err
}

func namespaceOf(path string) (namespaceID, bool) {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil {
		return namespaceID{}, false
	}
	return namespaceID{uint64(stat.Dev), stat.Ino}, true //nolint:unconvert // Dev has another type on some architectures
}
