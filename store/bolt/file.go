package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"monopod/store"
)

// state is a file that is open, and what it says of itself.
type state struct {
	db     *bbolt.DB
	torn   bool // one of the two meta pages was
	header header
	free   int64 // bytes of pages in no use
	size   int64 // bytes of all pages
}

// tornBlock is what the revision moves on by when a meta page was torn: in case
// it was the disk that spoilt the newest one, and with it the last commit.
const tornBlock = 2 << 20

// firstRevision is one that no revision handed out before is above.
func (s *state) firstRevision() int64 {
	if s.torn {
		return s.header.reserved + tornBlock
	}
	return s.header.reserved
}

func (p *Place) options() *bbolt.Options {
	o := &bbolt.Options{
		Timeout:        lockTimeout,
		FreelistType:   bbolt.FreelistMapType,
		NoFreelistSync: true,
		PageSize:       pageSize,
	}
	if strconv.IntSize == 32 {
		o.MaxSize = 1 << 30 // the file is mapped whole
	}
	return o
}

// openChecked opens a file that is there, locked for reading or writing, after
// all of its pages were looked at: bbolt never sees a damaged one.
func (p *Place) openChecked(path string, readOnly bool) (db *bbolt.DB, torn bool, err error) {
	o := p.options()
	o.ReadOnly = readOnly
	o.OpenFile = func(name string, flag int, perm os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag&^os.O_CREATE, perm)
		if err != nil {
			return nil, err
		}
		how := unix.LOCK_EX
		if readOnly {
			how = unix.LOCK_SH
		}
		if err = lock(f, how); err == nil {
			torn, err = checkFile(f)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	err = guard(func() error {
		var err error
		db, err = bbolt.Open(path, 0o600, o)
		return err
	})
	switch {
	case err == nil, errors.Is(err, ErrLocked), errors.Is(err, ErrDamaged):
	case unreadable(err):
		err = fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	default:
		err = fmt.Errorf("open %s: %w", path, err)
	}
	return db, torn, err
}

func checkFile(f *os.File) (torn bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is no file", f.Name())
	}
	torn, err = checkPages(f, info.Size())
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrDamaged, f.Name(), err)
	}
	return torn, err
}

// guard runs do and makes an error of a panic, also of a fault in the mapped
// file, which a failing disk causes.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return do()
}

// openState opens the file at path for reading or writing, reads all of it and
// hands every entry to each; nil: they are only checked.
func (p *Place) openState(path string, readOnly bool, each func(*store.Entry)) (*state, error) {
	db, torn, err := p.openChecked(path, readOnly)
	if err != nil {
		return nil, err
	}
	s := &state{db: db, torn: torn}
	if err := s.load(p.cfg.Config, each); err != nil {
		return nil, errors.Join(fmt.Errorf("load %s: %w", path, err), db.Close())
	}
	return s, nil
}

// load reads the header and every object, and holds them against each other.
func (s *state) load(cfg store.Config, each func(*store.Entry)) error {
	return guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) (err error) {
			s.size = tx.Size()
			s.free = int64(s.db.Stats().FreePageN+s.db.Stats().PendingPageN) * pageSize
			s.header, err = readHeader(tx)
			if err != nil {
				return err
			}
			return readObjects(tx, s.header, cfg, each)
		})
	})
}

func (s *state) close() error { return s.db.Close() }

// log is the store.Log of one file: one transaction, two fsyncs, a Commit.
type log struct {
	db      *bbolt.DB
	reserve reserve
	memory  scratch
	commits int
	broken  error // after it, what is on the disk is not known
}

var _ store.Log = (*log)(nil)

// Commit implements store.Log. When the disk is full it fails with ErrNoSpace;
// then deletions alone go on, in the space of the reserve, until there is room
// for the reserve again, or as much in the file itself.
func (l *log) Commit(records []store.Record, reserved int64) error {
	if l.broken != nil {
		return l.broken
	}
	deletes := onlyDeletes(records)
	if !deletes {
		if err := l.reserve.hold(); isNoSpace(err) && !l.roomInside() {
			return noSpace(err)
		}
	}
	err := l.commit(records, reserved)
	if deletes && isNoSpace(err) && l.broken == nil && l.reserve.release() {
		err = l.commit(records, reserved)
	}
	if isNoSpace(err) && l.broken == nil {
		return noSpace(err)
	}
	return err
}

// roomInside says that the file has as much free space of its own as the reserve
// would be: after many deletions, when the disk is still full.
func (l *log) roomInside() bool {
	stats := l.db.Stats()
	return int64(stats.FreePageN+stats.PendingPageN)*pageSize >= l.reserve.size
}

func onlyDeletes(records []store.Record) bool {
	return !slices.ContainsFunc(records, func(r store.Record) bool { return !r.Deletes })
}

// commit runs one transaction. An error leaves the file as it was, or the log
// broken.
func (l *log) commit(records []store.Record, reserved int64) error {
	defer l.memory.reset()
	if l.commits++; l.commits%unmapEvery == 0 {
		unmap(l.db)
	}
	id := 0
	err := guard(func() error {
		return l.db.Update(func(tx *bbolt.Tx) error {
			id = tx.ID()
			return write(tx, records, reserved, &l.memory)
		})
	})
	if err != nil && !l.rolledBack(err, id) {
		l.broken = fmt.Errorf("the state file cannot be written any more, restart to go on from what is on the disk: %w", err)
		return l.broken
	}
	return err
}

// unmapEvery is how many commits may bring pages of the file into this process'
// memory until it lets go of them.
const unmapEvery = 1024

// unmap lets go of the pages of the mapped file, which the kernel's cache keeps:
// else the whole file counts as this process' memory, and is as hard to reclaim.
func unmap(db *bbolt.DB) {
	_ = db.View(func(tx *bbolt.Tx) error { // in which the mapping stays where it is
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, db.Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
		return errno
	})
}

// rolledBack says that nothing of the transaction is left. After a failed fsync
// nobody knows: the kernel forgets what it could not write.
func (l *log) rolledBack(err error, id int) bool {
	var path *fs.PathError // a write that failed; bbolt returns a failed fsync bare
	if !errors.As(err, &path) && !errors.Is(err, bolterrors.ErrMaxSizeReached) &&
		!errors.Is(err, bolterrors.ErrKeyTooLarge) && !errors.Is(err, bolterrors.ErrValueTooLarge) {
		return strings.HasPrefix(err.Error(), "file resize error") // before anything was written
	}
	return guard(func() error {
		return l.db.View(func(tx *bbolt.Tx) error {
			if tx.ID() >= id {
				return errors.New("the transaction is there")
			}
			return nil
		})
	}) == nil
}

// isNoSpace says that the disk, the owner's quota or the file's limit is full.
func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, bolterrors.ErrMaxSizeReached)
}

func noSpace(err error) error {
	return fmt.Errorf("%w, free some below the data folder: %w", store.ErrNoSpace, err)
}

// Close implements store.Log.
func (l *log) Close() error { return l.db.Close() }
