package bolt

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"monopod/store"
	"monopod/store/bolt/wal"
)

// commit makes records durable in the write-ahead log, after a checkpoint if that is full. It puts them into the file
// if they are too long for the log, or if that cannot be used. An error means that they are in neither, or that the log
// is broken.
func (l *log) commit(records []store.Record, reserved int64) error {
	if err := CanWrite(records); err != nil {
		return err
	}
	err := l.append(records, reserved)
	if errors.Is(err, wal.ErrNoRoom) {
		if err := l.checkpoint(true); err != nil {
			return err
		}
		err = l.append(records, reserved)
	}
	if errors.Is(err, wal.ErrNoRoom) || errors.Is(err, wal.ErrTooLong) {
		return l.direct(records, reserved)
	}
	return err
}

// append appends to the write-ahead log.
func (l *log) append(records []store.Record, reserved int64) error {
	if l.wal == nil {
		return wal.ErrNoRoom
	}
	err := l.wal.Append(records, reserved)
	if errors.Is(err, wal.ErrUnknown) {
		return l.breaks(err)
	}
	if err != nil {
		return err
	}
	for _, r := range records {
		l.behind[r.Key] = r
	}
	l.reserved = reserved
	return nil
}

// direct puts records into the file, with everything before them. They end the history of the write-ahead log, which
// does not have them.
func (l *log) direct(records []store.Record, reserved int64) error {
	next := l.another()
	put := func() error {
		id, err := put(l.db(), append(l.onlyInLog(), records...), reserved, names(next))
		return l.done(id, err, next, wal.Generation{})
	}
	err := put()
	if len(l.behind) > 0 && isNoSpace(err) && l.broken == nil {
		if err = l.checkpoint(false); err == nil { // in parts
			err = put()
		}
	}
	if err == nil {
		l.reserved = reserved
	}
	return err
}

// checkpoint puts what is only in the write-ahead log into the file. If goOn a new generation begins. Otherwise the
// file is complete by itself afterwards, as older versions need it.
func (l *log) checkpoint(goOn bool) error {
	if goOn && l.openWAL() {
		// If the next transaction is lost, the file must have a name for what follows it, and no copy the same.
		if l.named.Generation == 0 || l.copied {
			if err := l.part(); err != nil {
				return err
			}
		}
		var next WAL
		var g wal.Generation
		begin := func(id int) (_ WAL, err error) {
			next, g, err = l.begin(id)
			return next, err
		}
		id, err := putSome(l.db(), l.onlyInLog(), l.reserved, begin)
		return l.done(id, err, next, g)
	}
	if next := l.next(); next != l.named {
		return l.bring(next)
	}
	return nil
}

// begin begins a generation of the log that the file names from this transaction on. If the log has no room, there is
// none.
func (l *log) begin(id int) (next WAL, g wal.Generation, err error) {
	next = l.another()
	g = wal.Generation{File: next.File, ID: next.Generation, Before: l.named.Generation, After: l.next().Number,
		Base: uint64(id)}
	next.Size, err = l.wal.Begin(g)
	if errors.Is(err, wal.ErrNoRoom) {
		return l.another(), wal.Generation{}, nil
	}
	next.Open = true
	return next, g, err
}

// part makes the file complete, and differ from copies of it that were made before, which may replace it: what is
// written from now on does not continue these. The caller must not be reading the file: it may have to grow.
func (l *log) part() error { return l.bring(l.another()) }

// another is a place in the log that continues no other.
func (l *log) another() WAL {
	next := NewWAL(l.next().At)
	next.File = cmp.Or(l.named.File, next.File)
	return next
}

// next is where the write-ahead log goes on once the file is complete.
func (l *log) next() WAL {
	next := l.named
	next.Open = false
	if l.wal != nil {
		next.At = l.wal.At()
	}
	if l.named.Open {
		next.Number = l.wal.Number()
	}
	return next
}

// bring brings the file up to date, and lets it name the next place in the write-ahead log.
func (l *log) bring(next WAL) error {
	id, err := putSome(l.db(), l.onlyInLog(), l.reserved, names(next))
	return l.done(id, err, next, wal.Generation{})
}

// onlyInLog returns the newest record of each key that the file has not.
func (l *log) onlyInLog() []store.Record { return slices.Collect(maps.Values(l.behind)) }

// openWAL opens the write-ahead log; false if that fails, and commits go to the file.
func (l *log) openWAL() bool {
	if l.wal != nil {
		return true
	}
	p := l.watched.place
	opened, err := wal.Open(logOf(p.path), p.cfg.LogBytes, l.named.At)
	if err == nil {
		if err = syncDir(p.dir()); err != nil {
			_ = opened.Close() // nothing was written
		}
	}
	if err != nil {
		return false
	}
	l.wal = opened
	return true
}

// done is called after transactions of the file, which now names next and the generation that begins there, if any. An
// error leaves the file as it was, or the log broken.
func (l *log) done(id int, err error, next WAL, g wal.Generation) error {
	l.watched.look(l.open.Load())
	if err != nil {
		if !l.rolledBack(err, id) {
			return l.breaks(err)
		}
		return err
	}
	if l.wal != nil {
		l.wal.Began(g)
	}
	l.named, l.copied = next, l.copied && next.Generation == l.named.Generation
	l.behind = map[store.Key]store.Record{}
	return nil
}

// breaks ends all commits.
func (l *log) breaks(err error) error {
	l.broken = fmt.Errorf("the state file can no longer be written, restart to continue from the content of the disk: %w",
		err)
	return l.broken
}

// replaced makes s the file. It contains everything.
func (l *log) replaced(s *state) (was *state) {
	was = l.open.Swap(s)
	l.closeWAL()
	l.named, l.copied, l.reserved = s.header.WAL, false, s.header.Reserved
	l.behind = map[store.Key]store.Record{}
	l.watched.look(s)
	return was
}

// closeWAL closes the write-ahead log. The file has everything.
func (l *log) closeWAL() {
	if l.wal != nil {
		_ = l.wal.Close() // nothing in it is needed
		l.wal = nil
	}
}

// replaceWAL gives up a write-ahead log that another process has changed, and sets aside what is there now.
func (l *log) replaceWAL() (setAside string, err error) {
	err = l.checkpoint(false)
	if isNoSpace(err) && l.broken == nil && l.reserve.release() {
		err = l.checkpoint(false)
	}
	if err != nil {
		return "", err
	}
	l.closeWAL()
	return l.watched.place.dropLog("replaced", &Report{}), nil
}
