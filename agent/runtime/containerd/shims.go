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

// endShims ends the shims in which nothing runs, or only what was never started: their containerd was killed before
// they made a container or after the last one was removed, and the next one may
// not know them. In a pod that lives at least the process of its sandbox runs. No
// containerd may run. What one had begun just before has a moment to come to its
// end.
func (c *Child) endShims(ctx context.Context) error {
	var shims []cri.Shim
	for range helping / glance {
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
		case <-c.config.Clock.After(glance):
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

// clearBundles removes the folders of containers that no shim has begun to create:
// the file with its runtime is missing. containerd fails to do so at each start.
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

// tasks is where containerd keeps a folder for each container that was started.
func (c *Child) tasks(dir string) string {
	return filepath.Join(dir, "io.containerd.runtime.v2.task", cri.Namespace)
}

const (
	// helping is how long the programs that start a shim may take; usually 20 ms.
	helping = 2 * time.Second
	glance  = 10 * time.Millisecond
)

// endShim kills the shim and removes its socket outside of the data folder (containerd
// 1.6 and 1.7).
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
