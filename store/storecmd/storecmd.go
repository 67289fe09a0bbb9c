// Package storecmd implements --store and `monopod store`: where the state is stored,
// and how it is copied to another store.
package storecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/etcd"
)

// Config is what a store needs to know about the resources.
type Config struct {
	store.Config
	Resources []string // the names of all built-in ones that Kind knows
	// Definitions is the resource whose objects define further resources by their names; empty: none.
	Definitions string
	TTL         map[string]time.Duration // see etcd.Config
	Log         *zap.Logger              // nil: silent
}

// Flags adds the flags for the location of serve's state.
func (p *Place) Flags(f *pflag.FlagSet) {
	f.StringVar(&p.URL, "store", "", "etcd to keep the state in, as etcd://HOST:PORT[,HOST:PORT]; several servers can share it. Empty: the file state.db in the data folder.")
	f.DurationVar(&p.SnapshotInterval, "snapshot-interval", 24*time.Hour, "Interval between snapshots of the state, which are made only if it has changed. 0: no automatic snapshots.")
	f.IntVar(&p.Keep, "snapshot-keep", bolt.DefaultKeep, "Number of snapshots to keep.")
	f.Int64Var(&p.MaxSize, "max-state-size", 0, "Maximum size in bytes of all objects as JSON, which take about four times as much memory. Beyond it no object is created (507). 0: a sixteenth of the memory, at least 64 MiB and at most 2 GiB; -1: no limit. etcd has a quota of its own.")
	tlsFlags(f, &p.TLS)
}

// tlsFlags adds the flags for TLS to etcd, named as kube-apiserver's.
func tlsFlags(f *pflag.FlagSet, files *etcd.TLS) {
	f.StringVar(&files.CAFile, "etcd-cafile", "", "Certificate Authority file used to verify the certificates of etcd.")
	f.StringVar(&files.CertFile, "etcd-certfile", "", "Client certificate file used to authenticate to etcd.")
	f.StringVar(&files.KeyFile, "etcd-keyfile", "", "Key file of the client certificate for etcd.")
}

// isEtcd reports whether place is the URL of an etcd, not a file.
func isEtcd(place string) bool { return strings.Contains(place, "://") }

// openEtcd opens the store at an etcd's URL.
func openEtcd(ctx context.Context, url string, files etcd.TLS, cfg Config) (*etcd.Store, error) {
	endpoints, err := etcd.Endpoints(url, files)
	if err != nil {
		return nil, err
	}
	return etcd.Open(ctx, etcd.Config{Config: cfg.Config, Endpoints: endpoints, TLS: files, TTL: cfg.TTL, Log: cfg.Log})
}

// New is `monopod store`; cfg is called when it is needed.
func New(cfg func() Config) *cobra.Command {
	root := &cobra.Command{Use: "store", Short: "Move the state between a file and etcd"}
	root.AddCommand(copyCommand(cfg))
	return root
}

// copying is one `monopod store copy`.
type copying struct {
	Config
	from, to string
	force    bool
	files    etcd.TLS
	out      io.Writer
}

func copyCommand(cfg func() Config) *cobra.Command {
	var c copying
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
	f.BoolVar(&c.force, "force", false, "Write into a store that is not empty: objects of the same name are replaced, all others stay.")
	tlsFlags(f, &c.files)
	return cmd
}

func (c *copying) run(ctx context.Context) (err error) {
	if c.from == "" || c.to == "" {
		return errors.New("--from and --to are both required: each is the path of a state.db, or etcd://HOST:PORT")
	}
	from, err := c.source(ctx)
	if err != nil {
		return fmt.Errorf("--from: %w", placed(err))
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := c.target(ctx)
	if err != nil {
		return fmt.Errorf("--to: %w", placed(err))
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
		return fmt.Errorf("%w; what was copied so far: %v", err, counts)
	}
	left, err := unserved(ctx, from)
	if err != nil {
		return err
	}
	return report(c.out, counts, left)
}

// placed says what a store's place may be, if there is none at the one that was given.
func placed(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w; name the state.db of a data folder, or etcd://HOST:PORT", err)
	}
	return err
}

// resources returns the names of all resources of a store: the built-in ones, then those that it defines.
func (c *copying) resources(ctx context.Context, of store.Store) ([]string, error) {
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
func (c *copying) source(ctx context.Context) (store.Store, error) {
	if !isEtcd(c.from) {
		if _, err := os.Stat(c.from); err != nil {
			return nil, err
		}
	}
	return c.open(ctx, c.from)
}

func (c *copying) target(ctx context.Context) (store.Store, error) {
	if !isEtcd(c.to) {
		if err := os.MkdirAll(filepath.Dir(c.to), 0o700); err != nil {
			return nil, err
		}
	}
	return c.open(ctx, c.to)
}

func (c *copying) open(ctx context.Context, place string) (store.Store, error) {
	if isEtcd(place) {
		return openEtcd(ctx, place, c.files, c.Config)
	}
	path, err := filepath.Abs(place)
	if err != nil {
		return nil, err
	}
	return bolt.Open(path, c.Config.Config)
}

// mayWrite refuses a target that is not empty, unless --force is set.
func (c *copying) mayWrite(ctx context.Context, to store.Store) error {
	if c.force {
		return nil
	}
	held, err := unserved(ctx, to)
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
			held[resource] = len(entries)
		}
	}
	if len(held) > 0 {
		return fmt.Errorf("--to: %s is not empty: it contains %s; use --force to write into it anyway", c.to, strings.Join(names(held), ", "))
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

func names(counts map[string]int) []string {
	var out []string
	for name := range counts {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// report prints what was copied and what was not.
func report(out io.Writer, counts, left map[string]int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	total := 0
	for _, name := range names(counts) {
		if counts[name] > 0 {
			fmt.Fprintf(w, "%s\t%d\n", name, counts[name])
		}
		total += counts[name]
	}
	fmt.Fprintf(w, "copied\t%d\n", total)
	for _, name := range names(left) {
		fmt.Fprintf(w, "not copied, not served by monopod: %s\t%d\n", name, left[name])
	}
	return w.Flush()
}
