package storecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
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
	// Traces are files beside it that show that it was there; see bolt.Config.
	Traces []string
	// SnapshotInterval is the time between snapshots of the file; 0: none is made.
	SnapshotInterval time.Duration
}

// State is an open store: either File or Etcd.
type State struct {
	store.Store
	File *bolt.DB
	Etcd *etcd.Store

	folder   io.Closer      // the lock of DataDir, which an open File holds by itself
	losses   chan bolt.Loss // what Run is to tell; more than it holds is only logged
	interval time.Duration
	log      *zap.Logger
}

// Open opens the state at p, which no other process on this machine uses with
// the same data folder.
func Open(ctx context.Context, p Place, cfg Config) (*State, error) {
	if p.URL == "" {
		s := &State{interval: p.SnapshotInterval, log: cfg.Log, losses: make(chan bolt.Loss, 16)}
		if s.log == nil {
			s.log = zap.NewNop()
		}
		var err error
		s.File, err = bolt.At(filepath.Join(p.DataDir, "state.db"), bolt.Config{
			Config: cfg.Config, Keep: p.Keep, Lost: s.lost, Traces: append(p.Traces, filepath.Join(p.DataDir, "reserve")),
		}).Open()
		if err != nil {
			return nil, err
		}
		s.Store = s.File
		return s, nil
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

// Run looks after the state until ctx ends: a file is guarded, copied from time to
// time, and old events are let go of. It calls tell, which may be nil, with one
// sentence for each time that the file is lost.
func (s *State) Run(ctx context.Context, tell func(message string)) error {
	if s.File == nil {
		return nil
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.File.Guard(ctx); err != nil {
			s.log.Warn("a state file that is removed will be noticed by the next write only", zap.Error(err))
		}
	})
	if s.interval > 0 {
		group.Go(func() {
			s.File.KeepSnapshots(ctx, s.interval, func(err error) {
				s.log.Error("no snapshot of the state was made", zap.Error(err))
			})
		})
	}
	group.Go(func() { s.Tidy(ctx) })
	for {
		select {
		case l := <-s.losses:
			if tell != nil {
				tell(sentence(l))
			}
		case <-ctx.Done():
			group.Wait()
			return nil
		}
	}
}

// Name is that of the check of its health.
func (s *State) Name() string {
	if s.Etcd != nil {
		return "etcd"
	}
	return "state"
}

// Healthy says why nothing can be written to the state, or that etcd does not
// answer.
func (s *State) Healthy(ctx context.Context) error {
	if s.Etcd != nil {
		return s.Etcd.Ping(ctx)
	}
	_, err := s.File.Mend(ctx)
	return err
}

// lost logs what happened to a file that somebody has taken away, and has Run tell
// of it. The store's only writer calls it, so it waits for nobody.
func (s *State) lost(l bolt.Loss) {
	select {
	case s.losses <- l:
	default:
	}
	fields := []zap.Field{zap.NamedError("reason", l.Why), zap.String("setAside", l.SetAside)}
	if l.Err != nil {
		s.log.Error("the state file was lost and cannot be written anew: no write is accepted until it can", append(fields, zap.Error(l.Err))...)
		return
	}
	s.log.Error("the state file was lost and written anew from memory: nothing is missing", fields...)
}

// sentence says to a user what became of a lost file.
func sentence(l bolt.Loss) string {
	kept := ""
	if l.SetAside != "" {
		kept = ", the file found in its place is kept as " + l.SetAside
	}
	if l.Err != nil {
		return fmt.Sprintf("%v: no write of durable objects is accepted until the state can be written to a new file%s: %v", l.Why, kept, l.Err)
	}
	return fmt.Sprintf("%v: the state was written to a new file from memory, nothing is missing%s", l.Why, kept)
}

// Tell logs what it took to open the state, and returns what happened when a
// snapshot took its place, or nothing could; "" otherwise.
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
	if report.Restored.Name == "" {
		log.Error("the state was missing and there was no snapshot of it: everything begins anew", zap.Error(report.Damage))
		return fmt.Sprintf("the state was missing and there was no snapshot of it, everything began anew; %v", report.Damage)
	}
	log.Error("the state was damaged and a snapshot took its place: writes after it are lost",
		zap.Error(report.Damage), zap.String("snapshot", report.Restored.Name), zap.String("setAside", report.SetAside))
	return fmt.Sprintf("the state was damaged; snapshot %s took its place, writes after it are lost; the damaged file: %s; %v",
		report.Restored.Name, cmp.Or(report.SetAside, "none"), report.Damage)
}
