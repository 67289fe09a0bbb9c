package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"monopod/agent/node/shutdown"
	"monopod/apiserver/kit/local"
)

type drainOptions struct {
	dataDir  string
	shutdown bool
	periods  shutdown.Periods
}

// drainCommand is `monopod drain`, which makes a running monopod stop its pods, by priority, before the machine
// shuts down. dataDir is the default of --data-dir.
func drainCommand(dataDir string) *cobra.Command {
	c := &drainOptions{periods: shutdown.Default()}
	cmd := &cobra.Command{
		Use:     "drain --shutdown",
		GroupID: Maintain,
		Short:   "Stop all pods of the server's own node, critical ones last, before the machine shuts down",
		Long: "drain --shutdown makes the server that runs on the data folder stop the pods of its own node within\n" +
			"a time limit: first those that are not critical, then the others. They end as Failed, with the\n" +
			"reason Terminated; the node is not ready and rejects new pods until monopod restarts,\n" +
			"or until a shutdown that serve waits for (--shutdown-grace-period) is cancelled.\n" +
			"Stopping monopod itself leaves pods running. To drain a node that stays up, or a machine that has joined,\n" +
			"use kubectl drain.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f := cmd.Flags(); f.Changed(shutdown.PriorityFlag) && !f.Changed(shutdown.TotalFlag) &&
				!f.Changed(shutdown.CriticalFlag) {
				c.periods.Total, c.periods.Critical = 0, 0
			}
			return c.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&c.dataDir, "data-dir", dataDir, "Data folder of the server, as given to serve.")
	cmd.Flags().BoolVar(&c.shutdown, "shutdown", false, "Terminate all pods because the machine is about to shut down.")
	c.periods.Flags(cmd.Flags())
	return cmd
}

// drainPoll is the interval of progress requests.
const drainPoll = 100 * time.Millisecond

func (c *drainOptions) run(ctx context.Context, out io.Writer) error {
	if !c.shutdown {
		return errors.New("drain stops all pods until monopod restarts: confirm with --shutdown, " +
			"or use kubectl drain for a node that stays up")
	}
	if local.Joined(c.dataDir) {
		return fmt.Errorf("%s is the data folder of a machine that has joined: use kubectl drain with the name of its "+
			"node, or monopod join --shutdown-grace-period", c.dataDir)
	}
	if err := c.periods.Check(); err != nil {
		return err
	}
	body, err := json.Marshal(c.periods)
	if err != nil {
		return err
	}
	p, err := c.request(ctx, http.MethodPost, body)
	for err == nil && !p.Done {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drainPoll):
		}
		p, err = c.request(ctx, http.MethodGet, nil)
	}
	switch {
	case err != nil:
		return err
	case p.Unknown:
		return fmt.Errorf("the node did not list its pods within %v: check that the container runtime responds",
			c.periods.Bound())
	case len(p.Running) > 0:
		return fmt.Errorf("not all pods ended in %v: %s", c.periods.Bound(), strings.Join(p.Running, ", "))
	}
	fmt.Fprintln(out, "all pods have ended")
	return nil
}

// request sends a request to the monopod that runs on the folder.
func (c *drainOptions) request(ctx context.Context, method string, body []byte) (p shutdown.Progress, err error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://monopod"+shutdown.Path, bytes.NewReader(body))
	if err != nil {
		return p, err
	}
	resp, err := local.Transport(c.dataDir).RoundTrip(req)
	if errors.Is(err, os.ErrPermission) {
		return p, err
	}
	if err != nil {
		return p, fmt.Errorf("no monopod runs on %s: %w; stop its pods, if there are any, with monopod reset, "+
			"or name another folder with --data-dir", c.dataDir, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return p, err
	}
	if resp.StatusCode != http.StatusOK {
		return p, errors.New(strings.TrimSpace(string(answer)))
	}
	return p, json.Unmarshal(answer, &p)
}
