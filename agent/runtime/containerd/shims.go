package containerd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"monopod/agent/runtime/cri"
)

// endOrphanedShims kills the shims without running containers: their containerd was killed before it started a
// container or after it removed the last one, and the next containerd may not know them. The shim of a running pod has
// at least the process of the sandbox. containerd must not be running. Helpers that it started just before its end get
// helperTimeout to finish.
func (c *Child) endOrphanedShims(ctx context.Context) error {
	var shims []cri.Shim
	for range helperTimeout / pollInterval {
		var err error
		if shims, err = c.shims(); err != nil {
			return err
		}
		if !slices.ContainsFunc(shims, func(s cri.Shim) bool { return s.Helper }) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.config.Clock.After(pollInterval):
		}
	}
	var errs []error
	alive := map[string]bool{}
	for _, s := range shims {
		if s.Empty && !s.Helper {
			errs = append(errs, c.endShim(s))
			continue
		}
		alive[s.ID] = true
	}
	return errors.Join(append(errs, c.clearBundles(alive))...)
}

// clearBundles removes the bundles of containers that no shim has begun to create: the file with the name of the
// runtime is missing. containerd fails to remove them at each start.
func (c *Child) clearBundles(alive map[string]bool) error {
	bundles, err := filepath.Glob(filepath.Join(c.tasks(c.layout.state), "*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, bundle := range bundles {
		id := filepath.Base(bundle)
		if _, err := os.Stat(filepath.Join(bundle, "runtime")); alive[id] || !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, os.RemoveAll(bundle), os.RemoveAll(filepath.Join(c.tasks(c.layout.root), id)))
	}
	return errors.Join(errs...)
}

// tasks returns the folder in which containerd keeps a bundle for each container that was started.
func (c *Child) tasks(dir string) string {
	return filepath.Join(dir, "io.containerd.runtime.v2.task", cri.Namespace)
}

const (
	// helperTimeout is how long the programs that start or remove a shim may take; usually they take 20 ms.
	helperTimeout = 2 * time.Second
	pollInterval  = 10 * time.Millisecond
)

// endShim kills the shim and removes its socket, which containerd 1.6 and 1.7 create outside of the data folder.
func (c *Child) endShim(s cri.Shim) error {
	if err := s.Kill(); err != nil {
		return err
	}
	name := sha256.Sum256([]byte(filepath.Join(c.layout.socket, cri.Namespace, s.ID)))
	_ = os.Remove(filepath.Join("/run/containerd/s", fmt.Sprintf("%x", name)))
	return nil
}

// shims returns the shims of this containerd, identified by its socket in their
// arguments.
func (c *Child) shims() ([]cri.Shim, error) {
	return cri.FindShims(func(args []string) bool { return slices.Contains(args, c.layout.socket) })
}
