package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"monopod/agent/host/mount"
	"monopod/agent/resources/cgroup"
	"monopod/agent/runtime/containerd"
	"monopod/agent/runtime/cri"
	"monopod/apiserver/kit/guard"
	"monopod/store/bolt"
)

// resetCommand is `monopod reset`, which stops what serve leaves running. dataDir is the default of
// --data-dir.
func resetCommand(dataDir string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "reset",
		GroupID: Maintain,
		Short:   "Stop all pods of a data folder and take down their network; files stay",
		Long: "reset stops what `serve` leaves running when it ends: the pods of the containerd that\n" +
			"serve started itself, its bridge, its nftables tables and its mounts. The files stay:\n" +
			"the next serve starts the pods again. To delete the state, too, remove the folder.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return reset(cmd.Context(), dataDir) },
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", dataDir, "Data folder of the server, as given to serve.")
	return cmd
}

// resetTime limits the time until all pods have stopped.
const resetTime = 2 * time.Minute

// reset stops all pods of the data folder and removes everything outside of it.
func reset(ctx context.Context, dataDir string) error {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	folder, err := hold(dir)
	if err != nil { // also when monopod still runs
		return err
	}
	defer folder.Close()
	if socket, managed := containerd.Locate(ctx, dir, containerd.Auto); !managed {
		return fmt.Errorf("the pods of %s run in the containerd at %s: delete them through the API", dir, socket)
	}
	child, err := containerd.New(containerd.Config{DataDir: dir, Log: zap.NewNop()})
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
	return errors.Join(group.Wait(), mount.Kernel{}.UnmountBelow(filepath.Join(dir, "pods")), child.Discard(),
		cgroup.Discard("/sys/fs/cgroup", containerd.CgroupRoot(dir)))
}

// hold prevents monopod from starting on a data folder, whether its state is in the file, in etcd, or damaged.
func hold(dir string) (io.Closer, error) {
	state := filepath.Join(dir, "state.db")
	if _, err := os.Stat(state); err != nil {
		if _, err := os.Stat(filepath.Join(dir, "admin.kubeconfig")); err != nil {
			return nil, fmt.Errorf("--data-dir: %s is not a data folder of monopod: %w; name the folder that serve uses", dir,
				err)
		}
	}
	return bolt.Lock(state)
}
