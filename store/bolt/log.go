package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"monopod/store"
)

// log is the store.Log of one file: one transaction, two fsyncs, a Commit.
type log struct {
	open    atomic.Pointer[state] // snapshots read it while it is written
	watched watched
	retry   retry // of Rewrite
	reserve reserve
	memory  scratch
	commits int
	broken  error // after it, what is on the disk is not known
}

var _ store.Log = (*log)(nil)

func (l *log) db() *bbolt.DB { return l.open.Load().db }

// Commit implements store.Log. When the disk is full it fails with ErrNoSpace;
// then deletions alone go on, in the space of the reserve, until there is room
// for the reserve again, or as much in the file itself.
func (l *log) Commit(records []store.Record, reserved int64) error {
	if err := l.Check(); err != nil {
		return err
	}
	defer l.watched.look(l.open.Load())
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
	stats := l.db().Stats()
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
		unmap(l.db())
	}
	id := 0
	err := guard(func() error {
		return l.db().Update(func(tx *bbolt.Tx) error {
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
		return l.db().View(func(tx *bbolt.Tx) error {
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

// Check implements store.Log.
func (l *log) Check() error {
	if l.broken != nil {
		return l.broken
	}
	return l.watched.check()
}

// Close implements store.Log.
func (l *log) Close() error { return errors.Join(l.open.Load().close(), l.watched.folder.Close()) }
