// Package state opens the store of --store, which is the file in the data folder or an etcd, and maintains it while
// serve runs.
package state

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/etcd"
)

// Config describes the resources.
type Config struct {
	store.Config
	Resources []string // names of all built-in resources
	// Definitions is the resource whose objects define further resources with their names; empty: none.
	Definitions string
	TTL         map[string]time.Duration // see etcd.Config
	Log         *zap.Logger              // nil: silent
}

// Flags adds the flags for the location of serve's state.
func (p *Place) Flags(f *pflag.FlagSet) {
	f.StringVar(&p.URL, "store", "",
		"etcd to keep the state in, as etcd://HOST:PORT[,HOST:PORT]; several servers can share it. "+
			"Empty: the file state.db in the data folder.")
	f.DurationVar(&p.SnapshotInterval, "snapshot-interval", 24*time.Hour,
		"Interval between snapshots of the state, which are made only if it has changed. 0: no automatic snapshots.")
	f.IntVar(&p.Keep, "snapshot-keep", bolt.DefaultKeep, "Number of snapshots to keep.")
	f.Int64Var(&p.MaxSize, "max-state-size", 0,
		"Maximum size in bytes of all objects as JSON, which take about four times as much memory. "+
			"Beyond it no object is created (507). "+
			"0: a sixteenth of the memory, at least 64 MiB and at most 2 GiB; -1: no limit. etcd has a quota of its own.")
	TLSFlags(f, &p.TLS)
}

// TLSFlags adds kube-apiserver's flags for TLS to etcd.
func TLSFlags(f *pflag.FlagSet, files *etcd.TLS) {
	f.StringVar(&files.CAFile, "etcd-cafile", "", "Certificate Authority file used to verify the certificates of etcd.")
	f.StringVar(&files.CertFile, "etcd-certfile", "", "Client certificate file used to authenticate to etcd.")
	f.StringVar(&files.KeyFile, "etcd-keyfile", "", "Key file of the client certificate for etcd.")
}

// IsEtcd reports whether place is the URL of an etcd, not a file.
func IsEtcd(place string) bool { return strings.Contains(place, "://") }

// openEtcd opens a store on the etcd at url.
func openEtcd(ctx context.Context, url string, files etcd.TLS, cfg Config) (*etcd.Store, error) {
	endpoints, err := etcd.Endpoints(url, files)
	if err != nil {
		return nil, err
	}
	return etcd.Open(ctx, etcd.Config{Config: cfg.Config, Endpoints: endpoints, TLS: files, TTL: cfg.TTL, Log: cfg.Log})
}

// OpenAt opens the store at place: the path of a state file, or the URL of an etcd.
func OpenAt(ctx context.Context, place string, files etcd.TLS, cfg Config) (store.Store, error) {
	if IsEtcd(place) {
		return openEtcd(ctx, place, files, cfg)
	}
	path, err := filepath.Abs(place)
	if err != nil {
		return nil, err
	}
	return bolt.Open(path, cfg.Config)
}
