package storecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/etcd"
)

// Place is where a monopod keeps its state.
type Place struct {
	DataDir string
	URL     string // an etcd's; empty: state.db in DataDir
	TLS     etcd.TLS
	Keep    int // snapshots of the file; see bolt.Config
	// SnapshotInterval is the time between snapshots of the file; 0: none is made.
	SnapshotInterval time.Duration
}

// State is an open store: either File or Etcd.
type State struct {
	store.Store
	File *bolt.DB
	Etcd *etcd.Store

	folder io.Closer // the lock of DataDir, where there is no file to be locked
}

// Open opens the state at p, which no other process on this machine uses with
// the same data folder.
func Open(ctx context.Context, p Place, cfg Config) (*State, error) {
	if p.URL == "" {
		file, err := bolt.At(filepath.Join(p.DataDir, "state.db"), bolt.Config{Config: cfg.Config, Keep: p.Keep}).Open()
		if err != nil {
			return nil, err
		}
		return &State{Store: file, File: file}, nil
	}
	folder, err := bolt.LockDir(p.DataDir)
	if err != nil {
		return nil, err
	}
	s, err := openEtcd(ctx, p.URL, p.TLS, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--store: %w", err), folder.Close())
	}
	return &State{Store: s, Etcd: s, folder: folder}, nil
}

// Shared says that other processes may use the same state.
func (s *State) Shared() bool { return s.Etcd != nil }

// errNoFile answers who asks for a snapshot of what is in etcd.
var errNoFile = errors.New("the state is in etcd: make snapshots with etcdctl")

// Save makes a snapshot of the file.
func (s *State) Save() (any, error) {
	if s.File == nil {
		return nil, errNoFile
	}
	return s.File.Save()
}

// Close implements store.Store.
func (s *State) Close() error {
	err := s.Store.Close()
	if s.folder != nil {
		err = errors.Join(err, s.folder.Close())
	}
	return err
}

// Tell logs what it took to open the state, and returns what happened when a
// snapshot took its place; "" otherwise.
func (s *State) Tell(log *zap.Logger) (restored string) {
	if s.File == nil {
		return ""
	}
	report := s.File.Report
	for _, err := range report.Problems {
		log.Error("the state is open, but not all is well", zap.Error(err))
	}
	if report.MigratedFrom != 0 {
		log.Info("state migrated", zap.Int64("from", report.MigratedFrom))
	}
	if report.Compacted != 0 {
		log.Info("state compacted", zap.Int64("bytes", report.Compacted))
	}
	if report.Damage == nil {
		return ""
	}
	log.Error("the state was damaged and a snapshot took its place: writes after it are lost",
		zap.Error(report.Damage), zap.String("snapshot", report.Restored.Name), zap.String("setAside", report.SetAside))
	return fmt.Sprintf("the state was damaged; snapshot %s took its place, writes after it are lost; the damaged file: %s; %v",
		report.Restored.Name, cmp.Or(report.SetAside, "none"), report.Damage)
}
