package bolt

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"monopod/store"
)

// Loss describes an open state file, or its folder, that another process removed, replaced or wrote.
type Loss struct {
	// Why describes the loss of the file; nil: its folder was lost, as Err describes.
	Why error
	// SetAside is the new path of the file that was found in its place; empty: there was none.
	SetAside string
	// Err is the reason why the state could not be written to a new file; nil: it was written, and nothing is lost. If the
	// folder was replaced, Monopod does not write to the new one.
	Err error
}

// A failed rewrite is retried after firstRetry, doubled each time up to lastRetry. A lost folder is reported every
// lastRetry.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// retry contains the last error and the time of the next attempt.
type retry struct {
	err  error
	at   time.Time
	wait time.Duration
}

func (r *retry) fail(err error, now time.Time) {
	r.wait = min(max(2*r.wait, firstRetry), lastRetry)
	r.err, r.at = err, now.Add(r.wait)
}

// Rewrite implements store.Log. A new file with the records replaces the current one, which is set aside. If only the
// write-ahead log is lost, its records are written to the file. Rewrite writes only to the locked folder.
func (l *log) Rewrite(records []store.Record, reserved int64) error {
	now := l.fileCheck.place.cfg.Clock.Now()
	if l.retry.err != nil && now.Before(l.retry.at) {
		return l.retry.err
	}
	loss := Loss{Why: l.intact()}
	if errors.Is(loss.Why, errFolder) {
		return loss.Why
	}
	if l.walOnly() {
		loss.SetAside, loss.Err = l.replaceWAL()
	} else {
		loss.SetAside, loss.Err = l.recreate(records, reserved)
	}
	if loss.Err == nil {
		l.retry = retry{}
	} else {
		loss.Err = fmt.Errorf("cannot write the state to a new file: %w", rewriteError(loss.Err))
		l.retry.fail(loss.Err, now)
	}
	l.report(loss)
	return loss.Err
}

// walOnly reports whether the file is intact and, with the records in l, complete: a commit has removed the volatile
// objects that the last clean stop saved.
func (l *log) walOnly() bool {
	return l.wal != nil && (l.wal.Number() > 1 || !l.inFile.Open) && l.fileCheck.check() == nil
}

// recreate replaces the file by a new one with records.
func (l *log) recreate(records []store.Record, reserved int64) (setAside string, err error) {
	next, setAside, err := l.fileCheck.place.recreate(records, reserved)
	if err == nil {
		_ = l.use(next).close() // an error would be about the replaced file
	}
	return setAside, err
}

func (l *log) report(loss Loss) {
	if report := l.fileCheck.place.cfg.Lost; report != nil {
		report(loss)
	}
}

// rewriteError returns the store's error for a file that could not be written.
func rewriteError(err error) error {
	if isNoSpace(err) {
		return noSpace(err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// recreate replaces the current file by a new, verified file with records, and keeps the old one under another name.
// It returns the new file, open and locked.
func (p *Place) recreate(records []store.Record, reserved int64) (next *stateFile, setAside string, err error) {
	tmp := p.tempPath()
	err = removeIfThere(tmp)
	if err == nil {
		err = RecoverFault(func() error { return p.fill(tmp, records, reserved) })
	}
	if err == nil {
		next, err = p.openState(tmp, false)
	}
	if err != nil {
		return nil, "", errors.Join(err, removeIfThere(tmp))
	}
	if setAside, err = p.setAside(p.path, "replaced"); err == nil {
		err = renameSynced(tmp, p.path)
	}
	if err != nil {
		return nil, setAside, errors.Join(err, next.close(), removeIfThere(tmp))
	}
	return next, setAside, nil
}

// fillTx is the maximum number of records of a transaction, which limits its memory.
const fillTx = 1000

// fill creates a file with records and syncs it.
func (p *Place) fill(path string, records []store.Record, reserved int64) error {
	o := p.options()
	o.NoSync = true
	db, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := CreateBuckets(tx); err != nil {
			return err
		}
		return Write(tx, nil, reserved, nil)
	})
	for some := range slices.Chunk(records, fillTx) {
		if err == nil {
			err = db.Update(func(tx *bbolt.Tx) error { return Write(tx, some, reserved, nil) })
		}
	}
	if err == nil {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}
