package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/local"
	"monopod/store"
	"monopod/store/bolt"
)

// Path is the API path at which a POST makes a running monopod take a snapshot.
const Path = "/monopod/snapshot"

// snapshotConfig configures the command. Both fields are required.
type snapshotConfig struct {
	DataDir string // the default of --data-dir
	Store   func() store.Config
}

type snapshotOptions struct {
	snapshotConfig
	keep int
}

// snapshotCommand is `monopod snapshot`, the command for the snapshots of a data folder, whether monopod runs on it
// or not.
func snapshotCommand(cfg snapshotConfig) *cobra.Command {
	c := &snapshotOptions{snapshotConfig: cfg}
	root := &cobra.Command{
		Use:     "snapshot",
		GroupID: Maintain,
		Short:   "Save, list, verify and restore copies of the state",
	}
	root.PersistentFlags().StringVar(&c.DataDir, "data-dir", cfg.DataDir, "Data folder of the server, as given to serve.")
	save := c.sub("save", "Take a snapshot, even while monopod runs", cobra.NoArgs, c.save)
	save.Flags().IntVar(&c.keep, "snapshot-keep", bolt.DefaultKeep,
		"Number of snapshots to keep; a running monopod uses its own flag.")
	root.AddCommand(save,
		c.sub("list", "List the snapshots, newest first, and verify them", cobra.NoArgs, c.list),
		c.sub("verify [NAME...]", "Check the checksum, the pages and the objects of snapshots; without a name, of all",
			cobra.ArbitraryArgs, c.verify),
		c.sub("restore NAME", "Replace the state by a snapshot; the replaced state is kept next to it", cobra.ExactArgs(1),
			c.restore),
		c.sub("compact", "Rewrite the state without its free space", cobra.NoArgs, c.compact))
	return root
}

func (c *snapshotOptions) sub(use, short string, args cobra.PositionalArgs,
	run func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: run}
}

// place returns the Place of the data folder's state.
func (c *snapshotOptions) place() (*bolt.Place, error) {
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("--data-dir: %w; name the folder that serve uses", err)
	}
	if !isDataDir(dir) {
		return nil, fmt.Errorf("--data-dir: %s is not a data folder of monopod; name the folder that serve uses", dir)
	}
	return bolt.At(filepath.Join(dir, "state.db"), bolt.Config{Config: c.Store(), Keep: c.keep}), nil
}

// isDataDir reports whether serve has ever used a folder. A folder that has lost its state still contains snapshots.
func isDataDir(dir string) bool {
	return slices.ContainsFunc([]string{"state.db", "snapshots", "admin.kubeconfig"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	})
}

func (c *snapshotOptions) save(cmd *cobra.Command, _ []string) error {
	place, err := c.place()
	if err != nil {
		return err
	}
	progress := commandline.NewProgress(cmd.ErrOrStderr(), "saving a snapshot", 0, nil)
	defer progress.End()
	s, err := c.saveRunning(cmd.Context())
	if local.Stopped(err) {
		s, err = place.Save() // monopod does not run
	}
	progress.End()
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), s.Name)
	return nil
}

// saveRunning requests a snapshot from the monopod that runs on the folder.
func (c *snapshotOptions) saveRunning(ctx context.Context) (s bolt.Snapshot, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://monopod"+Path, nil)
	if err != nil {
		return s, err
	}
	resp, err := local.Transport(c.DataDir).RoundTrip(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return s, err
	}
	if resp.StatusCode != http.StatusOK {
		var answer struct{ Message string } // of a Status
		if json.Unmarshal(body, &answer) != nil || answer.Message == "" {
			return s, errors.New(resp.Status)
		}
		return s, errors.New(answer.Message)
	}
	return s, json.Unmarshal(body, &s)
}

func (c *snapshotOptions) list(cmd *cobra.Command, _ []string) error {
	place, err := c.place()
	if err != nil {
		return err
	}
	all, err := place.List()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tTIME\tREVISION\tBYTES\tOK")
	for _, s := range all {
		ok := "yes"
		if err := place.Verify(s.Name); err != nil {
			ok = "no: " + err.Error()
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", s.Name, s.Time.Format(time.RFC3339), s.Revision, s.Size, ok)
	}
	return w.Flush()
}

func (c *snapshotOptions) verify(cmd *cobra.Command, names []string) error {
	place, err := c.place()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		all, err := place.List()
		if err != nil {
			return err
		}
		for _, s := range all {
			names = append(names, s.Name)
		}
	}
	var errs []error
	for _, name := range names {
		err := withListHint(place.Verify(name))
		errs = append(errs, err)
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), name, "is good")
		}
	}
	return errors.Join(errs...)
}

// withListHint adds to the error about a missing snapshot how to list the existing ones.
func withListHint(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; monopod snapshot list shows those that exist", err)
	}
	return err
}

func (c *snapshotOptions) restore(cmd *cobra.Command, args []string) error {
	place, err := c.place()
	if err != nil {
		return err
	}
	progress := commandline.NewProgress(cmd.ErrOrStderr(), "restoring "+args[0], 0, nil)
	report, err := place.Restore(args[0])
	progress.End()
	if err != nil {
		return withListHint(err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), args[0], "restored")
	if report.SetAside != "" {
		fmt.Fprintln(cmd.OutOrStdout(), "the replaced state is", report.SetAside)
	}
	return errors.Join(report.Problems...)
}

func (c *snapshotOptions) compact(cmd *cobra.Command, _ []string) error {
	place, err := c.place()
	if err != nil {
		return err
	}
	progress := commandline.NewProgress(cmd.ErrOrStderr(), "compacting", 0, nil)
	before, after, err := place.Compact()
	progress.End()
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d bytes before, %d after\n", before, after)
	return nil
}
