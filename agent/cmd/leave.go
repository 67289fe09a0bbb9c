package cmd

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"monopod/agent/join"
	"monopod/apiserver/kit/local"
)

// leaveTime limits the wait for a server's answer.
const leaveTime = 20 * time.Second

// leaveCommand is `monopod leave`, which undoes join. dataDir is the default of --data-dir.
func leaveCommand(dataDir string) *cobra.Command {
	c := resetOptions{factory: true}
	cmd := &cobra.Command{
		Use:     "leave",
		GroupID: Maintain,
		Short:   "Take this machine out of the cluster that it has joined, with its pods",
		Long: "leave undoes monopod join, which must be stopped first: it stops the pods of this machine, deletes its Node\n" +
			"and removes what is in the data folder, like reset --factory. If no server answers, the Node stays: delete\n" +
			"it with kubectl delete node.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.leave(cmd.Context(), cmd.ErrOrStderr()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.dataDir, "data-dir", dataDir, "Data folder of the node, as given to join.")
	f.StringVar(&c.runtime.BinDir, "bin-dir", "", "Folder of the bundled containerd, as given to join.")
	return cmd
}

func (c resetOptions) leave(ctx context.Context, out io.Writer) error {
	dir, err := filepath.Abs(c.dataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if !local.Joined(dir) {
		return fmt.Errorf("--data-dir: %s is not the data folder of a machine that has joined", dir)
	}
	folder, err := hold(dir)
	if err != nil {
		return fmt.Errorf("%w; stop monopod join first", err)
	}
	defer folder.Close()
	stop := c
	stop.factory = false
	if err := stop.resetHeld(ctx, dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if node, err := join.Leave(ctx, dir); err != nil {
		fmt.Fprintf(out, "The server still has the Node: %v. Delete it there: kubectl delete node %s\n", err, node)
	}
	return c.resetHeld(context.WithoutCancel(ctx), dir)
}
