// Package bolt makes a store.Memory durable in one bbolt file and a write-ahead log.
//
// The file contains only the current state. One bucket maps store.Key's Path, which is also the key in the etcd of a
// kube-apiserver, to the object's JSON and its checksum. A second bucket contains the format and the header: revisions,
// and a digest of all objects. Open reads the whole file; afterwards it is only written. A commit is written to the log
// with one fsync, and later, together with some hundred others, to the file (see log). When Monopod stops, and before a
// snapshot, all commits are written to the file, so that it is complete without the log. Four nouns:
//
//   - Place: the paths of the file, its snapshots and the reserve.
//   - DB: the open file, a store.Store.
//   - Snapshot: a verified copy of the file at one revision.
//   - Report: the repairs and migrations that opening the file required.
//
// The same folder contains:
//
//	state.db-wal                    the newest writes
//	snapshots/<time>-<revision>.db  copies, each with its .sha256
//	reserve                         space for deletions when the disk is full
//	state.db.damaged-<time>         a damaged file that a snapshot replaced
//	state.db-wal.damaged-<time>     its log, or a damaged log
//	state.db.replaced-<time>        a file that a restored snapshot replaced
//	state.db.new                    a file that is being written; useless after a crash
//
// A damaged file is never opened: every page is checked before bbolt maps it, every object against its checksum, and
// all objects against the digest, which also detects whole pages that the disk lost or exchanged.
//
//   - content.go: the content of the file: its format, and the checksums of objects
//   - flock.go: locks the data folder and the state file against other processes
//   - pages.go: checks the pages of the file before bbolt opens it: bbolt reads the file through a mapping and does not
//     validate it, so a wrong page number or length from a failing disk would crash the process
package bolt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"
	"k8s.io/utils/clock"

	"monopod/store"
)

// Config of a Place.
type Config struct {
	store.Config
	// Keep is the number of snapshots to keep; 0: DefaultKeep.
	Keep int
	// Lost is called, with the result of the repair, after another process has removed, replaced or written the open file;
	// it may be nil.
	Lost func(Loss)
	// Traces are files that prove that a missing state file once existed.
	Traces []string
	// Clock is for the names of snapshots and of files that are set aside; nil: the real one.
	Clock clock.WithTicker
	// LogBytes is the maximum size of the write-ahead log in bytes, a multiple of 64 KiB; 0: DefaultLogBytes.
	LogBytes int64
}

const (
	// DefaultKeep is the default number of snapshots to keep.
	DefaultKeep = 5
	// DefaultLogBytes is the default size of the write-ahead log. A checkpoint writes half of it to the file at once,
	// which is 128 small commits; a start after a power failure reads as much.
	DefaultLogBytes = 1 << 20
)

// Place is the location of a state file. It keeps no file open.
type Place struct {
	path string
	cfg  Config
}

// At returns the Place of the file at path.
func At(path string, cfg Config) *Place {
	cfg.Keep = cmp.Or(cfg.Keep, DefaultKeep)
	cfg.LogBytes = cmp.Or(cfg.LogBytes, DefaultLogBytes)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Place{path: path, cfg: cfg}
}

func (p *Place) dir() string { return filepath.Dir(p.path) }

// DB is an open state file: a Memory that writes every durable change to it.
// Close releases the file.
type DB struct {
	*store.Memory
	Report Report // of Open

	place  *Place
	log    *log
	saveMu sync.Mutex // held during a snapshot; guards the folder of snapshots
}

var _ store.Store = (*DB)(nil)

// Open is At(path, cfg).Open().
func Open(path string, cfg store.Config) (*DB, error) { return At(path, Config{Config: cfg}).Open() }

// Forget is Memory.Forget. It also releases pages of the mapped file.
func (d *DB) Forget(rev int64) (newest int64) {
	unmap(d.log.db())
	return d.Memory.Forget(rev)
}

// Size returns the size of the file and its write-ahead log in bytes.
func (d *DB) Size() (int64, error) {
	file, err := os.Stat(d.place.path)
	if err != nil {
		return 0, err
	}
	if log, err := os.Stat(logOf(d.place.path)); err == nil {
		return file.Size() + log.Size(), nil
	}
	return file.Size(), nil
}

// Snapshots returns the snapshots of the file, newest first.
func (d *DB) Snapshots() ([]Snapshot, error) { return d.place.List() }

// Report describes the repairs and migrations that opening the file required.
type Report struct {
	// Damage is the reason why a snapshot replaced the file, or why the newest writes are missing; nil: the file was
	// intact.
	Damage error
	// Restored is the snapshot that replaced the file; zero: there was no snapshot, so the file is new, or only the log
	// was damaged.
	Restored Snapshot
	// LogOnly means that only the log was damaged: writes before the damage are not lost.
	LogOnly bool
	// SetAside is the new path of the damaged file or log; empty: it was missing.
	SetAside string
	// MigratedFrom is the older format that the file had; 0: it was not migrated.
	MigratedFrom int64
	// Compacted is the number of bytes that a compaction freed.
	Compacted int64
	// Problems are errors of optional steps: the snapshot after a restore, a compaction, the reserve.
	Problems []error
}

// Open loads the file into a DB, and creates a missing file. It migrates a file in an older format and compacts a file
// that is mostly free space. It sets a damaged file aside and replaces it by the newest valid snapshot; without a
// snapshot it returns an error and changes nothing. The folder is locked until Close.
func (p *Place) Open() (*DB, error) {
	folder, err := LockDir(p.dir())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.path, err)
	}
	d, err := p.openLocked(folder)
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return d, nil
}

func (p *Place) openLocked(folder *os.File) (*DB, error) {
	var report Report
	s, entries, err := p.openOrCreate(&report)
	if errors.Is(err, ErrDamaged) {
		s, entries, err = p.recover(err, &report)
	}
	if err != nil {
		return nil, err
	}
	if s, err = p.compactIfWorthwhile(s, &report); err != nil {
		return nil, err
	}
	l := &log{fileCheck: fileCheck{place: p, folder: folder}, reserve: reserve{path: p.reserve(), size: reserveSize}}
	l.use(s)
	if err := l.reserve.create(); err != nil {
		report.Problems = append(report.Problems, fmt.Errorf("reserve for a full disk: %w", err))
	}
	unmap(s.db)
	mem := store.NewMemory(p.cfg.Config, l, entries, s.firstRevision())
	return &DB{Memory: mem, Report: report, place: p, log: l}, nil
}

// reserve returns the path of the file that reserves space for deletions.
func (p *Place) reserve() string { return filepath.Join(p.dir(), "reserve") }

// openOrCreate opens the file. A missing file counts as damaged if there are snapshots of it. If there are only Traces
// of it, openOrCreate creates it empty and reports that.
func (p *Place) openOrCreate(report *Report) (*stateFile, []*store.Entry, error) {
	_, err := os.Stat(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		snapshots, listErr := p.List()
		if listErr != nil {
			return nil, nil, listErr
		}
		if len(snapshots) > 0 {
			return nil, nil, fmt.Errorf("%w: %s is missing, but there are snapshots of it", ErrDamaged, p.path)
		}
		if err = p.create(); err == nil && p.trace() != "" {
			report.Damage = fmt.Errorf("%w: %s is missing, but %s shows that there was one", ErrDamaged, p.path, p.trace())
			if err = p.raiseRevision(p.path, unknownBlock); err == nil {
				return p.openRestored(report)
			}
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("create %s: %w", p.path, err)
	}
	return p.openMigrated(p.path, report)
}

// trace returns the first file of Traces that exists, or "".
func (p *Place) trace() string {
	for _, path := range p.cfg.Traces {
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return ""
}

// create creates an empty file. After a power failure there is either no file or a complete one.
func (p *Place) create() error {
	tmp := p.tempPath()
	if err := removeIfThere(tmp); err != nil {
		return err
	}
	db, err := bbolt.Open(tmp, 0o600, p.options())
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(CreateBuckets), db.Close()); err != nil {
		return err
	}
	if err := renameSynced(tmp, p.path); err != nil {
		return err
	}
	return syncAbove(p.dir())
}

// tempPath returns the path at which a new file is written, under the lock of the folder.
func (p *Place) tempPath() string { return p.path + ".new" }

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// renameSynced durably replaces the file at to by the file at from, which is synced.
func renameSynced(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// syncAbove syncs the parents of the folder, which may have just been created. It stops at a folder that cannot be
// synced, because that folder existed before.
func syncAbove(dir string) error {
	dir, err := filepath.Abs(dir)
	for err == nil && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		if syncDir(dir) != nil {
			break
		}
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
