// Package bolt makes a store.Memory durable by one bbolt file.
//
// The file holds the present and nothing else: one bucket maps store.Key's Path,
// the same key as in etcd under a kube-apiserver, to the object's JSON and its
// checksum; a second one holds the format and the header: revisions, and a digest
// of all objects. It is read once, at Open; from then on it is only written. Four
// nouns:
//
//   - Place: where the file lies, and beside it its snapshots and the reserve.
//   - DB: the file while it is open, a store.Store.
//   - Snapshot: a verified copy of the file at one moment.
//   - Report: what had to be done to open the file.
//
// Beside the file, in the same folder, lie:
//
//	snapshots/<time>-<revision>.db  copies, each with its .sha256
//	reserve                         space for deletions when the disk is full
//	state.db.damaged-<time>         a file that a snapshot took the place of
//	state.db.replaced-<time>        a file that somebody restored a snapshot over
//	state.db.new                    a file in the making; of no use after a crash
//
// A file that is damaged is never opened: every page is checked before bbolt
// maps it, every object against its checksum, all of them together against the
// digest, which also tells when the disk lost or mixed up whole pages.
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

// Errors of a file that cannot be opened.
var (
	// ErrDamaged says that what is on the disk is not what was written.
	ErrDamaged = errors.New("the state file is damaged")
	// ErrNewer says that a later version of this program wrote the file.
	ErrNewer = errors.New("the state file was written by a newer version")
)

// Config of a Place.
type Config struct {
	store.Config
	// Keep is how many snapshots are kept; 0: DefaultKeep.
	Keep int
	// Lost is called when the file was removed, replaced or written by somebody else
	// while it was open, after what was done about it; nil: nobody is.
	Lost func(Loss)
	// Traces are files that show, where the file is missing, that there was one.
	Traces []string
	// Clock names snapshots and files set aside; nil: the real one.
	Clock clock.WithTicker
}

// DefaultKeep is how many snapshots are kept unless somebody says otherwise.
const DefaultKeep = 5

// Place is where a state file is. It holds nothing open.
type Place struct {
	path string
	cfg  Config
}

// At is the place of the file at path.
func At(path string, cfg Config) *Place {
	cfg.Keep = cmp.Or(cfg.Keep, DefaultKeep)
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
	// Report is what had to be done to open the file.
	Report Report

	place  *Place
	log    *log
	saving sync.Mutex // one snapshot at a time; guards snapshots/
}

var _ store.Store = (*DB)(nil)

// Open is At(path, cfg).Open().
func Open(path string, cfg store.Config) (*DB, error) { return At(path, Config{Config: cfg}).Open() }

// Forget is Memory's; it lets go of what was read of the file, too.
func (d *DB) Forget(rev int64) (newest int64) {
	unmap(d.log.db())
	return d.Memory.Forget(rev)
}

// Size is that of the file in bytes.
func (d *DB) Size() (int64, error) {
	info, err := os.Stat(d.place.path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Report says what opening the file took beside reading it.
type Report struct {
	// Damage is what was wrong with the file, so that a snapshot took its place;
	// nil: nothing was.
	Damage error
	// Restored is that snapshot; the zero value: there was none, and the file is new.
	Restored Snapshot
	// SetAside is where the damaged file is now; empty when it was missing.
	SetAside string
	// MigratedFrom is the older format that the file had; 0: none.
	MigratedFrom int64
	// Compacted is how many bytes the file shrank by.
	Compacted int64
	// Problems kept something from being done that the file can do without: the
	// snapshot after a restore, a compaction, the reserve.
	Problems []error
}

// Open loads the file, made when there is none, into a DB. A file of an older
// format is migrated, one that is mostly free space is compacted. A damaged one
// is set aside and the newest good snapshot takes its place; without one Open
// fails and leaves everything as it is. A file that is missing, though there was
// one, is made anew if there are no snapshots. The folder is locked until Close.
func (p *Place) Open() (*DB, error) {
	folder, err := lockDir(p.dir())
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
	l := &log{watched: watched{place: p, folder: folder}, reserve: reserve{path: p.reserve(), size: reserveSize}}
	l.open.Store(s)
	l.watched.look(s)
	if err := l.reserve.hold(); err != nil {
		report.Problems = append(report.Problems, fmt.Errorf("reserve for a full disk: %w", err))
	}
	unmap(s.db)
	mem := store.NewMemory(p.cfg.Config, l, entries, s.firstRevision())
	return &DB{Memory: mem, Report: report, place: p, log: l}, nil
}

// reserve is the file of space for deletions.
func (p *Place) reserve() string { return filepath.Join(p.dir(), "reserve") }

// openOrCreate opens the file. One that is missing though there are snapshots of
// it is damaged, not new; one of which there are other traces is made anew, which
// report says.
func (p *Place) openOrCreate(report *Report) (*state, []*store.Entry, error) {
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
			if err = p.moveOn(p.path, unknownBlock); err == nil {
				return p.openRestored(report)
			}
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("create %s: %w", p.path, err)
	}
	return p.openMigrated(p.path, report)
}

// trace is a file that shows that there was a state here; empty: there is none.
func (p *Place) trace() string {
	for _, path := range p.cfg.Traces {
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return ""
}

// create makes an empty file. A power cut leaves either nothing or a complete
// file behind.
func (p *Place) create() error {
	tmp := p.scratch()
	if err := removeIfThere(tmp); err != nil {
		return err
	}
	db, err := bbolt.Open(tmp, 0o600, p.options())
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(layout), db.Close()); err != nil {
		return err
	}
	if err := moveInto(tmp, p.path); err != nil {
		return err
	}
	return syncAbove(p.dir())
}

// scratch is where a new file is made, under the folder's lock.
func (p *Place) scratch() string { return p.path + ".new" }

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// moveInto puts a complete file in the place of another, for good.
func moveInto(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// syncAbove makes the folder itself survive, and those above it, which may have
// been made a moment ago. One that cannot be synced was there before.
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
