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
	"monopod/store/bolt/content"
	"monopod/store/bolt/pages"
)

// log is the store.Log of one file. A Commit is one transaction with two fsyncs.
type log struct {
	open    atomic.Pointer[state] // snapshots read it while it is written
	watched watched
	retry   retry     // of Rewrite
	away    time.Time // of the last report that the folder is lost
	reserve reserve
	memory  content.Scratch
	commits int
	broken  error // once set, the content of the disk is unknown
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
	defer l.watched.look(l.open.Load())
	deletes := !slices.ContainsFunc(records, func(r store.Record) bool { return !r.Deletes })
	if !deletes {
		if err := l.reserve.hold(); isNoSpace(err) && !l.freeInside() {
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
	stats := l.db().Stats()
	return int64(stats.FreePageN+stats.PendingPageN)*pages.Size >= l.reserve.size
}

// commit runs one transaction. An error leaves the file as it was, or the log
// broken.
func (l *log) commit(records []store.Record, reserved int64) error {
	defer l.memory.Reset()
	if l.commits++; l.commits%unmapEvery == 0 {
		unmap(l.db())
	}
	id := 0
	err := content.Guard(func() error {
		return l.db().Update(func(tx *bbolt.Tx) error {
			id = tx.ID()
			return content.Write(tx, records, reserved, &l.memory)
		})
	})
	if err != nil && !l.rolledBack(err, id) {
		l.broken = fmt.Errorf("the state file can no longer be written, restart to continue from the content of the disk: %w", err)
		return l.broken
	}
	return err
}

// unmapEvery is the number of commits after which the mapped pages of the file are
// released.
const unmapEvery = 1024

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
	return content.Guard(func() error {
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
	err := l.watched.check()
	if errors.Is(err, errFolder) {
		if now := l.watched.place.cfg.Clock.Now(); now.Sub(l.away) >= lastRetry {
			l.away = now
			l.report(Loss{Err: err})
		}
	}
	return err
}

// Close implements store.Log.
func (l *log) Close() error { return errors.Join(l.open.Load().close(), l.watched.folder.Close()) }
