package state

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

// Place is the location of the state.
type Place struct {
	DataDir string
	URL     string // of an etcd; empty: the file state.db in DataDir
	TLS     etcd.TLS
	Keep    int // snapshots of the file; see bolt.Config
	// MaxSize is the maximum size of all objects, in bytes of JSON; 0: depends on the machine's memory, -1: no limit.
	MaxSize int64
	// Traces are files that prove that the state file once existed; see bolt.Config.
	Traces []string
	// SnapshotInterval is the time between snapshots of the file; 0: no snapshots.
	SnapshotInterval time.Duration
}

// State is an open store: either File or Etcd.
type State struct {
	store.Store
	File *bolt.DB
	Etcd *etcd.Store

	folder   io.Closer      // lock of DataDir; nil: File holds it
	losses   chan bolt.Loss // losses that Run reports; when it is full, losses are only logged
	interval time.Duration
	log      *zap.Logger
}

// Open opens the state at p, and locks the data folder.
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

// Shared reports whether other processes may use the same state.
func (s *State) Shared() bool { return s.Etcd != nil }

// errNoFile is the error of Save for a state in etcd.
var errNoFile = errors.New("the state is in etcd: make snapshots with etcdctl")

// Save makes a snapshot of the file.
func (s *State) Save() (any, error) {
	if s.File == nil {
		return nil, errNoFile
	}
	return s.File.Save()
}

// Snapshots returns the snapshots of the file, newest first; none for etcd, or if they cannot be read.
func (s *State) Snapshots() []bolt.Snapshot {
	if s.File == nil {
		return nil
	}
	all, err := s.File.Snapshots()
	if err != nil {
		return nil
	}
	return all
}

// Close implements store.Store.
func (s *State) Close() error {
	err := s.Store.Close()
	if s.folder != nil {
		err = errors.Join(err, s.folder.Close())
	}
	return err
}

// Run maintains the state until ctx ends: it watches the file, takes snapshots, and drops old history. It calls tell
// with a sentence for each loss of the file; tell may be nil.
func (s *State) Run(ctx context.Context, tell func(message string)) error {
	if s.File == nil {
		return nil
	}
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.File.Guard(ctx); err != nil {
			s.log.Warn("cannot watch the state file: its removal is detected only at the next write", zap.Error(err))
		}
	})
	if s.interval > 0 {
		group.Go(func() {
			s.File.KeepSnapshots(ctx, s.interval, func(err error) {
				s.log.Error("failed to take a snapshot of the state", zap.Error(err))
			})
		})
	}
	group.Go(func() { s.Tidy(ctx) })
	for {
		select {
		case l := <-s.losses:
			if tell != nil {
				tell(lossMessage(l))
			}
		case <-ctx.Done():
			group.Wait()
			return nil
		}
	}
}

// Name returns the name of the health check.
func (s *State) Name() string {
	if s.Etcd != nil {
		return "etcd"
	}
	return "state"
}

// Healthy returns an error if the state cannot be written, or if etcd does not answer.
func (s *State) Healthy(ctx context.Context) error {
	if s.Etcd != nil {
		return s.Etcd.Ping(ctx)
	}
	_, err := s.File.Repair(ctx)
	return err
}

// lost logs the loss of a file and passes it to Run. It does not block, because the writer calls it.
func (s *State) lost(l bolt.Loss) {
	select {
	case s.losses <- l:
	default:
	}
	fields := []zap.Field{zap.NamedError("reason", l.Why), zap.String("setAside", l.SetAside)}
	if l.Why == nil {
		s.log.Error("writes are refused", zap.Error(l.Err))
		return
	}
	if l.Err != nil {
		s.log.Error("the state file was lost and cannot be rewritten: writes are refused until it can",
			append(fields, zap.Error(l.Err))...)
		return
	}
	s.log.Error("the state file was lost and rewritten from memory: nothing is missing", fields...)
}

// lossMessage describes the result of a loss to a user.
func lossMessage(l bolt.Loss) string {
	kept := ""
	if l.SetAside != "" {
		kept = ", the file found in its place is kept as " + l.SetAside
	}
	if l.Why == nil {
		return fmt.Sprintf("writes of durable objects are refused: %v", l.Err)
	}
	if l.Err != nil {
		return fmt.Sprintf("%v: writes of durable objects are refused until the state can be written to a new file%s: %v",
			l.Why, kept, l.Err)
	}
	return fmt.Sprintf("%v: the state was written again from memory, nothing is missing%s", l.Why, kept)
}

// Tell logs repairs and migrations that opening the state needed. If the state was restored from a snapshot or created
// empty, or if the newest writes are missing, it returns a description; otherwise "".
func (s *State) Tell(log *zap.Logger) (restored string) {
	if s.File == nil {
		return ""
	}
	report := s.File.Report
	for _, err := range report.Problems {
		log.Error("opened the state, but an optional step failed", zap.Error(err))
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
	if report.LogOnly {
		log.Error("the log of the newest writes was damaged: writes after the damage are lost",
			zap.Error(report.Damage), zap.String("setAside", report.SetAside))
		return fmt.Sprintf(
			"the log of the newest writes was damaged, writes after the damage are lost; the damaged log: %s; %v",
			cmp.Or(report.SetAside, "none"), report.Damage)
	}
	if report.Restored.Name == "" {
		log.Error("the state was missing without a snapshot of it: starting with an empty state", zap.Error(report.Damage))
		return fmt.Sprintf("the state was missing and there was no snapshot of it: it was created empty; %v", report.Damage)
	}
	log.Error("the state was damaged and a snapshot replaced it: writes after the snapshot are lost",
		zap.Error(report.Damage), zap.String("snapshot", report.Restored.Name), zap.String("setAside", report.SetAside))
	return fmt.Sprintf(
		"the state was damaged; snapshot %s replaced it, writes after the snapshot are lost; the damaged file: %s; %v",
		report.Restored.Name, cmp.Or(report.SetAside, "none"), report.Damage)
}
