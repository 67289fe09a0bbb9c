package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"monopod/store"
	"monopod/store/bolt/wal"
)

// log is the store.Log of a file with its write-ahead log. A Commit is one write with one fsync to the write-ahead log.
// When that is full, a checkpoint writes the newest record of each key to the file, in one transaction with two fsyncs.
type log struct {
	open         atomic.Pointer[stateFile] // snapshots read it while it is written
	fileCheck    fileCheck
	retry        retry     // of Rewrite
	folderLostAt time.Time // of the last report that the folder is lost
	reserve      reserve
	broken       error // when it is set, the content of the disk is unknown

	wal         *wal.Log                   // nil: not opened yet, or cannot be opened
	inFile      WAL                        // place in the file's header
	copied      bool                       // a snapshot has the same inFile
	onlyInWAL   map[store.Key]store.Record // newest records that are not in the file
	reserved    int64                      // newest reserved revision, in wal or the file
	triedNumber uint64                     // wal.Number of the last checkpoint that freeInside tried
}

var _ store.Log = (*log)(nil)

func (l *log) db() *bbolt.DB { return l.open.Load().db }

// Commit implements store.Log. When the disk is full, it returns ErrNoSpace. Then only deletions succeed, which use the
// space of the reserve, until there is space for the reserve again, on the disk or in the file.
func (l *log) Commit(records []store.Record, reserved int64) error {
	if err := l.Check(); err != nil {
		return err
	}
	deletes := !slices.ContainsFunc(records, func(r store.Record) bool { return !r.Deletes })
	if !deletes {
		if err := l.reserve.create(); isNoSpace(err) && !l.freeInside() {
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

// freeInside reports whether the file has as much free space as the reserve, as after many deletions on a full disk.
func (l *log) freeInside() bool {
	enough := func() bool {
		stats := l.db().Stats()
		return int64(stats.FreePageN+stats.PendingPageN)*PageSize >= l.reserve.size
	}
	if enough() || len(l.onlyInWAL) == 0 || l.triedNumber == l.wal.Number() {
		return enough()
	}
	l.triedNumber = l.wal.Number()
	return l.checkpoint(true) == nil && enough() // deletions may be only in the log
}

// unmap releases the pages of the mapped file, which stay in the kernel's page cache. Otherwise they count as memory of
// this process and are hard to reclaim.
func unmap(db *bbolt.DB) {
	_ = db.View(func(tx *bbolt.Tx) error { // during a transaction the mapping does not move
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, db.Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
		return errno
	})
}

// rolledBack reports whether the transaction is certainly not in the file. After a failed fsync that is unknown,
// because the kernel drops pages that it could not write.
func (l *log) rolledBack(err error, id int) bool {
	var path *fs.PathError // a failed write; bbolt returns a failed fsync unwrapped
	if !errors.As(err, &path) && !errors.Is(err, bolterrors.ErrMaxSizeReached) &&
		!errors.Is(err, bolterrors.ErrKeyTooLarge) && !errors.Is(err, bolterrors.ErrValueTooLarge) {
		return strings.HasPrefix(err.Error(), "file resize error") // nothing was written yet
	}
	return RecoverFault(func() error {
		return l.db().View(func(tx *bbolt.Tx) error {
			if tx.ID() >= id {
				return errors.New("the transaction is in the file")
			}
			return nil
		})
	}) == nil
}

// isNoSpace reports whether the disk, the owner's quota or the file's limit is full.
func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, bolterrors.ErrMaxSizeReached)
}

func noSpace(err error) error {
	return fmt.Errorf("%w, free some below the data folder: %w", store.ErrNoSpace, err)
}

// Check implements store.Log.
func (l *log) Check() error {
	if l.broken != nil {
		return l.broken
	}
	err := l.intact()
	if errors.Is(err, errFolder) {
		if now := l.fileCheck.place.cfg.Clock.Now(); now.Sub(l.folderLostAt) >= lastRetry {
			l.folderLostAt = now
			l.report(Loss{Err: err})
		}
	}
	return err
}

// intact returns store.ErrLost if another process has changed the file or its write-ahead log.
func (l *log) intact() error {
	if err := l.fileCheck.check(); err != nil || l.wal == nil {
		return err
	}
	return l.wal.Check()
}

// Close implements store.Log. Afterwards the file is complete without the write-ahead log, unless the disk is full.
func (l *log) Close() error {
	var errs []error
	if l.broken == nil && l.fileCheck.check() == nil {
		err := l.checkpoint(false)
		if err == nil && l.copied {
			err = l.separate()
		}
		if !isNoSpace(err) {
			errs = append(errs, err)
		}
	}
	if l.wal != nil {
		errs = append(errs, l.wal.Close())
	}
	return errors.Join(append(errs, l.open.Load().close(), l.fileCheck.folder.Close())...)
}
