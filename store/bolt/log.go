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

// log is the store.Log of one file and its write-ahead log. A Commit is one write with one fsync to the latter. When
// that is full, a checkpoint puts the newest record of each key into the file, by one transaction with two fsyncs.
type log struct {
	open    atomic.Pointer[stateFile] // snapshots read it while it is written
	fileCheck fileCheck
	retry   retry     // of Rewrite
	folderLostAt    time.Time // of the last report that the folder is lost
	reserve reserve
	broken  error // once set, the content of the disk is unknown

	wal      *wal.Log                   // nil before it is used, and if it cannot be
	inFile    WAL                        // as the file names it
	copied   bool                       // a snapshot of the file names it, too
	onlyInWAL   map[store.Key]store.Record // what it has and the file has not
	reserved int64                      // the newest one, in it or the file
	triedNumber    uint64                     // its number of frames when there was last no room for a checkpoint
}

var _ store.Log = (*log)(nil)

func (l *log) db() *bbolt.DB { return l.open.Load().db }

// Commit implements store.Log. When the disk is full it fails with ErrNoSpace. Then
// only deletions succeed, in the space of the reserve, until there is room for the
// reserve again, or as much free space in the file itself.
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

// freeInside reports whether the file itself has as much free space as the reserve,
// as after many deletions on a full disk.
func (l *log) freeInside() bool {
	enough := func() bool {
		stats := l.db().Stats()
		return int64(stats.FreePageN+stats.PendingPageN)*PageSize >= l.reserve.size
	}
	if enough() || len(l.onlyInWAL) == 0 || l.triedNumber == l.wal.Number() {
		return enough()
	}
	l.triedNumber = l.wal.Number()
	return l.checkpoint(true) == nil && enough() // deletions may be in the log only
}

// unmap releases the pages of the mapped file, which stay in the kernel's page cache.
// Otherwise the whole file counts as this process' memory and is hard to reclaim.
func unmap(db *bbolt.DB) {
	_ = db.View(func(tx *bbolt.Tx) error { // during which the mapping does not move
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, db.Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED)
		return errno
	})
}

// rolledBack reports whether the transaction left no trace. After a failed fsync this
// is unknown, because the kernel drops pages that it could not write.
func (l *log) rolledBack(err error, id int) bool {
	var path *fs.PathError // a failed write; bbolt returns a failed fsync unwrapped
	if !errors.As(err, &path) && !errors.Is(err, bolterrors.ErrMaxSizeReached) &&
		!errors.Is(err, bolterrors.ErrKeyTooLarge) && !errors.Is(err, bolterrors.ErrValueTooLarge) {
		return strings.HasPrefix(err.Error(), "file resize error") // before anything was written
	}
	return RecoverFault(func() error {
		return l.db().View(func(tx *bbolt.Tx) error {
			if tx.ID() >= id {
				return errors.New("the transaction is there")
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

// intact fails with store.ErrLost if another process has changed the file or its write-ahead log.
func (l *log) intact() error {
	if err := l.fileCheck.check(); err != nil || l.wal == nil {
		return err
	}
	return l.wal.Check()
}

// Close implements store.Log. The file is complete afterwards; on a full disk, with the write-ahead log.
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
