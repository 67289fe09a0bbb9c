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

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"monopod/agent/runtime/cri"
)

// shim is a process that keeps the containers of one pod for containerd.
type shim struct {
	pid    int
	id     string // of the container it was started for
	helper bool   // it only starts or removes a shim
	empty  bool   // it has no processes except inits
	inits  []int  // processes of containers that were created and never started
}

// endShims ends the shims in which nothing runs, or only what was never started: their containerd was killed before
// they made a container or after the last one was removed, and the next one may
// not know them. In a pod that lives at least the process of its sandbox runs. No
// containerd may run. What one had begun just before has a moment to come to its
// end.
func (c *Child) endShims(ctx context.Context) error {
	var shims []shim
	for range helping / glance {
		var err error
		if shims, err = c.shims(); err != nil {
			return err
		}
		if !slices.ContainsFunc(shims, func(s shim) bool { return s.helper }) {
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
		if s.empty && !s.helper {
			errs = append(errs, c.endShim(s))
			continue
		}
		alive[s.id] = true
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

// endShim stops the process and removes its socket outside of the data folder
// (containerd 1.6 and 1.7).
func (c *Child) endShim(s shim) error {
	for _, pid := range append(s.inits, s.pid) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end the shim of %s: %w", s.id, err)
		}
	}
	name := sha256.Sum256([]byte(filepath.Join(c.layout.socket, cri.Namespace, s.id)))
	_ = os.Remove(filepath.Join("/run/containerd/s", fmt.Sprintf("%x", name)))
	return nil
}

// shims returns the shims of this containerd, identified by its socket in their
// arguments.
func (c *Child) shims() ([]shim, error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	var shims []shim
	for _, p := range processes {
		args, err := p.CmdLine()
		if err != nil || !slices.Contains(args, c.layout.socket) {
			continue // another containerd's, or it has ended
		}
		if i := slices.Index(args, "-id"); i > 0 && i+1 < len(args) {
			last := args[len(args)-1]
			shims = append(shims, shim{pid: p.PID, id: args[i+1], helper: last == "start" || last == "delete"})
		}
	}
	if len(shims) == 0 {
		return nil, nil
	}
	parents, inits := map[int]bool{}, map[int][]int{}
	for _, p := range processes {
		stat, err := p.Stat()
		if err == nil && stat.State == "Z" { // it ended, but the shim hangs and has not reaped it
			continue
		}
		if args, _ := p.CmdLine(); err == nil && len(args) == 2 && filepath.Base(args[0]) == "runc" && args[1] == "init" {
			inits[stat.PPID] = append(inits[stat.PPID], p.PID)
		} else if err == nil {
			parents[stat.PPID] = true
		}
	}
	for i := range shims {
		shims[i].empty, shims[i].inits = !parents[shims[i].pid], inits[shims[i].pid]
	}
	return shims, nil
}
