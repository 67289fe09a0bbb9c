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

// commit makes records durable in the write-ahead log, after a checkpoint if the log is full. If they are too long for
// the log, or the log cannot be used, it writes them to the file. After an error they are in neither, or l is broken.
func (l *log) commit(records []store.Record, reserved int64) error {
	if err := CheckRecords(records); err != nil {
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
		return l.commitToFile(records, reserved)
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
		return l.setBroken(err)
	}
	if err != nil {
		return err
	}
	for _, r := range records {
		l.onlyInWAL[r.Key] = r
	}
	l.reserved = reserved
	return nil
}

// commitToFile writes records to the file, with all earlier records. They end the history of the write-ahead log, which
// does not contain them.
func (l *log) commitToFile(records []store.Record, reserved int64) error {
	next := l.newPlace()
	put := func() error {
		id, err := put(l.db(), append(l.walRecords(), records...), reserved, fixedPlace(next))
		return l.finished(id, err, next, wal.Generation{})
	}
	err := put()
	if len(l.onlyInWAL) > 0 && isNoSpace(err) && l.broken == nil {
		if err = l.checkpoint(false); err == nil { // which can write in parts
			err = put()
		}
	}
	if err == nil {
		l.reserved = reserved
	}
	return err
}

// checkpoint writes to the file the records that are only in the write-ahead log. If newGeneration is true, a new
// generation begins. Otherwise the file is complete without the log afterwards, as older versions require.
func (l *log) checkpoint(newGeneration bool) error {
	if newGeneration && l.ensureWAL() {
		// If the disk loses the next transaction, the file must name the generation that the new one continues, and no copy
		// of the file may name the same generation.
		if l.inFile.Generation == 0 || l.copied {
			if err := l.separate(); err != nil {
				return err
			}
		}
		var next WAL
		var g wal.Generation
		begin := func(id int) (_ WAL, err error) {
			next, g, err = l.begin(id)
			return next, err
		}
		id, err := putInParts(l.db(), l.walRecords(), l.reserved, begin)
		return l.finished(id, err, next, g)
	}
	if next := l.nextPlace(); next != l.inFile {
		return l.complete(next)
	}
	return nil
}

// begin begins a generation of the log, which the transaction id of the file names. If the log has no room, no
// generation begins.
func (l *log) begin(id int) (next WAL, g wal.Generation, err error) {
	next = l.newPlace()
	g = wal.Generation{File: next.File, ID: next.Generation, Before: l.inFile.Generation, After: l.nextPlace().Number,
		Base: uint64(id)}
	next.Size, err = l.wal.Begin(g)
	if errors.Is(err, wal.ErrNoRoom) {
		return l.newPlace(), wal.Generation{}, nil
	}
	next.Open = true
	return next, g, err
}

// separate makes the file complete, and different from earlier copies, so that a copy which replaces the file does not
// continue with records that are written from now on. The file may have to grow, so the caller must not be reading it.
func (l *log) separate() error { return l.complete(l.newPlace()) }

// newPlace returns a place in the log that continues no generation.
func (l *log) newPlace() WAL {
	next := NewWAL(l.nextPlace().At)
	next.File = cmp.Or(l.inFile.File, next.File)
	return next
}

// nextPlace returns the place at which the write-ahead log continues when the file is complete.
func (l *log) nextPlace() WAL {
	next := l.inFile
	next.Open = false
	if l.wal != nil {
		next.At = l.wal.At()
	}
	if l.inFile.Open {
		next.Number = l.wal.Number()
	}
	return next
}

// complete writes all records to the file, and lets it name the next place in the write-ahead log.
func (l *log) complete(next WAL) error {
	id, err := putInParts(l.db(), l.walRecords(), l.reserved, fixedPlace(next))
	return l.finished(id, err, next, wal.Generation{})
}

// walRecords returns the newest record of each key that is only in the write-ahead log.
func (l *log) walRecords() []store.Record { return slices.Collect(maps.Values(l.onlyInWAL)) }

// ensureWAL opens the write-ahead log, unless it is open. It returns false if that fails; then commits are written to
// the file.
func (l *log) ensureWAL() bool {
	if l.wal != nil {
		return true
	}
	p := l.fileCheck.place
	opened, err := wal.Open(logOf(p.path), p.cfg.LogBytes, l.inFile.At)
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

// finished is called after transactions of the file. If err is nil, the file names next, and g has begun if it is not
// zero. After an error the file is unchanged, or l is broken.
func (l *log) finished(id int, err error, next WAL, g wal.Generation) error {
	l.fileCheck.record(l.open.Load())
	if err != nil {
		if !l.rolledBack(err, id) {
			return l.setBroken(err)
		}
		return err
	}
	if l.wal != nil {
		l.wal.Began(g)
	}
	l.inFile, l.copied = next, l.copied && next.Generation == l.inFile.Generation
	l.onlyInWAL = map[store.Key]store.Record{}
	return nil
}

// setBroken makes all further commits fail.
func (l *log) setBroken(err error) error {
	l.broken = fmt.Errorf("the state file can no longer be written, restart to continue from the content of the disk: %w",
		err)
	return l.broken
}

// use makes s, which is complete, the open file, and returns the previous one.
func (l *log) use(s *stateFile) (was *stateFile) {
	was = l.open.Swap(s)
	l.closeWAL()
	l.inFile, l.copied, l.reserved = s.header.WAL, false, s.header.Reserved
	l.onlyInWAL = map[store.Key]store.Record{}
	l.fileCheck.record(s)
	return was
}

// closeWAL closes the write-ahead log. The file must be complete.
func (l *log) closeWAL() {
	if l.wal != nil {
		_ = l.wal.Close() // its content is not needed
		l.wal = nil
	}
}

// replaceWAL completes the file and sets aside a write-ahead log that another process has changed.
func (l *log) replaceWAL() (setAside string, err error) {
	err = l.checkpoint(false)
	if isNoSpace(err) && l.broken == nil && l.reserve.release() {
		err = l.checkpoint(false)
	}
	if err != nil {
		return "", err
	}
	l.closeWAL()
	return l.fileCheck.place.dropLog("replaced", &Report{}), nil
}
