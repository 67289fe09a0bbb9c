package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"monopod/store"
	"monopod/store/etcd"
	"monopod/store/state"
)

// storeCommand is `monopod store`; cfg is called when a command runs.
func storeCommand(cfg func() state.Config) *cobra.Command {
	root := &cobra.Command{Use: "store", Short: "Move the state between a file and etcd", GroupID: Maintain}
	root.AddCommand(storeCopyCommand(cfg))
	return root
}

// storeCopy is one `monopod store copy`.
type storeCopy struct {
	state.Config
	from, to string
	force    bool
	files    etcd.TLS
	out      io.Writer
}

func storeCopyCommand(cfg func() state.Config) *cobra.Command {
	var c storeCopy
	cmd := &cobra.Command{
		Use:   "copy --from STORE --to STORE",
		Short: "Copy every object from one store to another",
		Long: "copy takes every object from one store to another: a state file (a path) or etcd\n" +
			"(etcd://host:port[,host:port]). Nothing may write to the source meanwhile: stop monopod first.\n" +
			"Names, UIDs and everything else are unchanged; resourceVersions are new.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Config, c.out = cfg(), cmd.OutOrStdout()
			return c.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.from, "from", "", "Store to copy from: the path of a state.db, or etcd://HOST:PORT[,HOST:PORT].")
	f.StringVar(&c.to, "to", "", "Store to copy to: the same; a file is created if it does not exist.")
	f.BoolVar(&c.force, "force", false,
		"Write into a store that is not empty: objects of the same name are replaced, all others stay.")
	state.TLSFlags(f, &c.files)
	return cmd
}

func (c *storeCopy) run(ctx context.Context) (err error) {
	if c.from == "" || c.to == "" {
		return errors.New("--from and --to are both required: each is the path of a state.db, or etcd://HOST:PORT")
	}
	from, err := c.source(ctx)
	if err != nil {
		return fmt.Errorf("--from: %w", withPlaceHint(err))
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := c.target(ctx)
	if err != nil {
		return fmt.Errorf("--to: %w", withPlaceHint(err))
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if err := c.mayWrite(ctx, to); err != nil {
		return err
	}
	resources, err := c.resources(ctx, from)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	counts, err := store.Copy(ctx, to, from, resources)
	if err != nil {
		return fmt.Errorf("%w; copied so far: %v", err, counts)
	}
	left, err := unserved(ctx, from)
	if err != nil {
		return err
	}
	return printCopied(c.out, counts, left)
}

// withPlaceHint adds to the error about a missing store how to name one.
func withPlaceHint(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w; name the state.db of a data folder, or etcd://HOST:PORT", err)
	}
	return err
}

// resources returns the names of all resources of a store: the built-in ones, then those that it defines.
func (c *storeCopy) resources(ctx context.Context, of store.Store) ([]string, error) {
	all := slices.Clone(c.Resources)
	if c.Definitions == "" {
		return all, nil
	}
	definitions, _, err := of.List(ctx, store.Selector{Resource: c.Definitions})
	if err != nil {
		return nil, err
	}
	for _, e := range definitions {
		all = append(all, e.Key.Name)
	}
	return all, nil
}

// source opens the store to copy from, which must exist.
func (c *storeCopy) source(ctx context.Context) (store.Store, error) {
	if !state.IsEtcd(c.from) {
		if _, err := os.Stat(c.from); err != nil {
			return nil, err
		}
	}
	return state.OpenAt(ctx, c.from, c.files, c.Config)
}

func (c *storeCopy) target(ctx context.Context) (store.Store, error) {
	if !state.IsEtcd(c.to) {
		if err := os.MkdirAll(filepath.Dir(c.to), 0o700); err != nil {
			return nil, err
		}
	}
	return state.OpenAt(ctx, c.to, c.files, c.Config)
}

// mayWrite refuses a target that is not empty, unless --force is set.
func (c *storeCopy) mayWrite(ctx context.Context, to store.Store) error {
	if c.force {
		return nil
	}
	found, err := unserved(ctx, to)
	if err != nil {
		return err
	}
	resources, err := c.resources(ctx, to)
	if err != nil {
		return err
	}
	for _, resource := range resources {
		entries, _, err := to.List(ctx, store.Selector{Resource: resource, Limit: 1})
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			found[resource] = len(entries)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("--to: %s is not empty: it contains %s; use --force to write into it anyway", c.to,
			strings.Join(slices.Sorted(maps.Keys(found)), ", "))
	}
	return nil
}

// unserved counts the objects of a store that monopod does not serve.
func unserved(ctx context.Context, s store.Store) (map[string]int, error) {
	if e, ok := s.(*etcd.Store); ok {
		return e.Unserved(ctx)
	}
	return map[string]int{}, nil
}

// printCopied prints the numbers of copied and of omitted objects.
func printCopied(out io.Writer, counts, left map[string]int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	total := 0
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			fmt.Fprintf(w, "%s\t%d\n", name, counts[name])
		}
		total += counts[name]
	}
	fmt.Fprintf(w, "copied\t%d\n", total)
	for _, name := range slices.Sorted(maps.Keys(left)) {
		fmt.Fprintf(w, "not copied, not served by monopod: %s\t%d\n", name, left[name])
	}
	return w.Flush()
}
