package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"monopod/agent/host/mount"
	"monopod/agent/resources/cgroup"
	"monopod/agent/runtime/containerd"
	"monopod/agent/runtime/cri"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/local"
	"monopod/store/bolt"
)

// prepared are the files of a data folder that the user brings: monopod reset --factory keeps them.
var prepared = []string{"bin", "cdi", "config.json", "config.yaml", "images", "manifests", "seccomp"}

type resetOptions struct {
	dataDir string
	runtime containerd.Options
	factory bool
}

// resetCommand is `monopod reset`, which stops what serve leaves running. dataDir is the default of
// --data-dir.
func resetCommand(dataDir string) *cobra.Command {
	var c resetOptions
	cmd := &cobra.Command{
		Use:     "reset",
		GroupID: Maintain,
		Short:   "Stop all pods of a data folder and take down their network; files stay",
		Long: "reset stops what `serve` leaves running when it ends: the pods of the containerd that\n" +
			"serve started itself, its bridge, its nftables tables and its mounts. The files stay:\n" +
			"the next serve starts the pods again. With --factory the next serve begins anew: the state,\n" +
			"credentials, volumes and logs are removed; what the user brought stays: images/, manifests/,\n" +
			"config.yaml, config.json, cdi/, seccomp/ and containerd/certs.d/.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.reset(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.dataDir, "data-dir", dataDir, "Data folder of the server, as given to serve.")
	f.StringVar(&c.runtime.BinDir, "bin-dir", "", "Folder of the bundled containerd, as given to serve.")
	f.BoolVar(&c.factory, "factory", false,
		"Remove the state, credentials, volumes and logs, too. They cannot be restored afterwards.")
	return cmd
}

// resetTime limits the time until all pods have stopped.
const resetTime = 2 * time.Minute

// reset stops all pods of the data folder and removes everything outside of it.
func (c resetOptions) reset(ctx context.Context) error {
	dir, err := filepath.Abs(c.dataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	folder, err := hold(dir)
	if err != nil { // also when monopod still runs
		return err
	}
	defer folder.Close()
	return c.resetHeld(ctx, dir)
}

// resetHeld is reset of a folder that is locked.
func (c resetOptions) resetHeld(ctx context.Context, dir string) error {
	if containerd.HadChild(dir) { // otherwise no pods, or pods in a containerd that --containerd named
		err := stopPods(ctx, containerd.Config{DataDir: dir, Options: c.runtime, Log: zap.NewNop()})
		if err != nil {
			return err // pods may run, and use their volumes
		}
	}
	var errs []error
	for _, tree := range []string{filepath.Join(dir, "pods"), filepath.Join(dir, "plugins")} {
		errs = append(errs, mount.Kernel{}.UnmountBelow(tree), mount.Kernel{}.UnshareTree(tree))
	}
	err := errors.Join(errors.Join(errs...),
		cgroup.Discard("/sys/fs/cgroup", containerd.CgroupRoot(dir)))
	if err != nil || !c.factory {
		return err
	}
	return errors.Join(removeExcept(dir, append(prepared, "containerd")),
		removeExcept(filepath.Join(dir, "containerd"), []string{"certs.d"}))
}

// stopPods stops the pods of a child and removes their network.
func stopPods(ctx context.Context, cfg containerd.Config) error {
	child, err := containerd.New(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, resetTime)
	defer cancel()
	group, ctx := guard.With(ctx)
	group.Do(func() error { return child.Run(ctx) })
	group.Do(func() error {
		defer cancel()
		rt, err := cri.New(cri.Config{Socket: child.Socket(), Log: zap.NewNop()})
		if err != nil {
			return err
		}
		defer rt.Close()
		for { // containerd takes a moment to start
			err := rt.RemoveAll(ctx)
			if err == nil || ctx.Err() != nil {
				return err
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return errors.Join(group.Wait(), child.Discard())
}

// removeExcept removes what is in dir. It fails before it removes anything if something is mounted there.
func removeExcept(dir string, keep []string) error {
	mounted, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return err
	}
	for _, m := range mounted {
		if m.Mountpoint != dir {
			return fmt.Errorf("reset --factory: something is mounted at %s; unmount it first", m.Mountpoint)
		}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !slices.Contains(keep, e.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// hold prevents monopod from starting on a data folder, whether its state is in the file, in etcd, or damaged.
func hold(dir string) (io.Closer, error) {
	state := filepath.Join(dir, "state.db")
	if _, err := os.Stat(state); err != nil && !local.Joined(dir) {
		if _, err := os.Stat(filepath.Join(dir, "admin.kubeconfig")); err != nil {
			return nil, fmt.Errorf("--data-dir: %s is not a data folder of monopod: %w; name the folder that serve uses", dir,
				err)
		}
	}
	return bolt.Lock(state)
}
