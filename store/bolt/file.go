package bolt

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"monopod/store"
)

// stateFile is an open file with its metadata.
type stateFile struct {
	db     *bbolt.DB
	file   *os.File // of db
	torn   bool     // one of the two meta pages was torn
	header Header
	free   int64 // bytes of free pages
	size   int64 // bytes of all pages
}

// tornBlock is added to the revision if a meta page was torn: the disk may have damaged the newest one, and with it
// lost the last commit.
const tornBlock = 2 << 20

// firstRevision returns a revision that is at least as high as every revision used before.
func (s *stateFile) firstRevision() int64 {
	if s.torn {
		return s.header.Reserved + tornBlock
	}
	return s.header.Reserved
}

func (p *Place) options() *bbolt.Options {
	o := &bbolt.Options{
		Timeout:        LockTimeout,
		FreelistType:   bbolt.FreelistMapType,
		NoFreelistSync: true,
		PageSize:       PageSize,
	}
	if strconv.IntSize == 32 {
		o.MaxSize = 1 << 30 // the whole file is mapped
	}
	return o
}

// openChecked opens an existing file, locked for reading or writing. It checks all pages before bbolt reads them.
func (p *Place) openChecked(path string, readOnly bool) (s *stateFile, err error) {
	s = &stateFile{}
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
		if err = LockFile(f, how); err == nil {
			s.torn, err = checkFile(f)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		s.file = f
		return f, nil
	}
	err = RecoverFault(func() error {
		var err error
		s.db, err = bbolt.Open(path, 0o600, o)
		return err
	})
	switch {
	case err == nil, errors.Is(err, ErrLocked), errors.Is(err, ErrDamaged):
	case unreadable(err):
		err = fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	default:
		err = fmt.Errorf("open %s: %w", path, err)
	}
	return s, err
}

func checkFile(f *os.File) (torn bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file", f.Name())
	}
	torn, err = CheckPages(f, info.Size())
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrDamaged, f.Name(), err)
	}
	return torn, err
}

// openMigrated opens a file for writing and reads its entries. It takes a snapshot of a file in an older format, and
// migrates it.
func (p *Place) openMigrated(path string, report *Report) (s *stateFile, entries []*store.Entry, err error) {
	each := func(e *store.Entry) { entries = append(entries, e) }
	s, err = p.open(path, false, report, each)
	if err != nil || s.header.Format == Format {
		return s, entries, err
	}
	report.MigratedFrom = s.header.Format
	if path == p.path {
		if _, err := p.save(s.db.View); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("snapshot before the migration of %s: %w", path, err), s.close())
		}
	}
	if err := s.db.Update(Migrate); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("migrate %s: %w", path, err), s.close())
	}
	entries = nil
	if err := s.load(p.cfg.Config, each); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("load %s after its migration: %w", path, err), s.close())
	}
	return s, entries, nil
}

// openState opens the file at path for reading or writing and validates all of it.
func (p *Place) openState(path string, readOnly bool) (*stateFile, error) {
	return p.open(path, readOnly, nil, nil)
}

// open opens and validates the file at path, and calls each, which may be nil, with every entry. If report is nil, a
// damaged log is an error; otherwise it is reported.
func (p *Place) open(path string, readOnly bool, report *Report, each func(*store.Entry)) (*stateFile, error) {
	s, err := p.openChecked(path, readOnly)
	if err != nil {
		return nil, err
	}
	if err := p.load(s, path, readOnly, report, each); err != nil {
		return nil, errors.Join(fmt.Errorf("load %s: %w", path, err), s.close())
	}
	return s, nil
}

// load reads the file. If it is open for writing, load also writes the records of its log to it.
func (p *Place) load(s *stateFile, path string, readOnly bool, report *Report, each func(*store.Entry)) error {
	var newest *unapplied
	if !readOnly {
		var err error
		if newest, err = s.readLog(path); err != nil {
			return err
		}
	}
	if err := s.load(p.cfg.Config, newest.except(each)); err != nil {
		return err
	}
	if newest != nil {
		return p.replay(s, newest, report, each)
	}
	if s.header.WAL.Open {
		return fmt.Errorf("%w: it was copied while monopod was running, without its log; take a snapshot instead", ErrDamaged)
	}
	return nil
}

// load reads the header and every object, and checks them against each other.
func (s *stateFile) load(cfg store.Config, each func(*store.Entry)) error {
	return RecoverFault(func() error {
		return s.db.View(func(tx *bbolt.Tx) (err error) {
			s.size = tx.Size()
			s.free = int64(s.db.Stats().FreePageN+s.db.Stats().PendingPageN) * PageSize
			s.header, err = ReadHeader(tx)
			if err != nil {
				return err
			}
			return ReadObjects(tx, s.header, cfg, each)
		})
	})
}

func (s *stateFile) close() error { return s.db.Close() }
