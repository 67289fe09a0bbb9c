package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"

	"monopod/store"
	"monopod/store/bolt/wal"
)

// logOf is the path of the write-ahead log of the file at path.
func logOf(path string) string { return path + "-wal" }

// unapplied is what a log has that its file has not.
type unapplied struct {
	wal.Content
	damage error // nil: it is all that was written
	header Header
}

// readLog returns what the log of the file has that the file has not; nil: nothing.
func (s *stateFile) readLog(path string) (*unapplied, error) {
	h, id, err := s.readHeader()
	if err != nil || h.WAL.Generation == 0 {
		return nil, err
	}
	found, err := wal.Read(logOf(path), wal.Expected{
		Place: h.WAL.Place, File: h.WAL.File, Base: id, Size: h.WAL.Size,
		All: h.WAL.Open || s.torn, Open: h.WAL.Open && h.WAL.File != 0,
	})
	switch {
	case err != nil && !errors.Is(err, wal.ErrDamaged):
		return nil, err
	case !h.WAL.Open && (errors.Is(err, fs.ErrNotExist) || err == nil && found.Next == h.WAL.Place):
		return nil, nil
	}
	return &unapplied{Content: found, damage: err, header: h}, nil
}

// except returns each for the entries that u does not replace.
func (u *unapplied) except(each func(*store.Entry)) func(*store.Entry) {
	if u == nil || each == nil {
		return each
	}
	replaced := make(map[store.Key]bool, len(u.Records))
	for _, r := range u.Records {
		replaced[r.Key] = true
	}
	return func(e *store.Entry) {
		if !replaced[e.Key] {
			each(e)
		}
	}
}

// replay puts u into the file, which has been checked, and calls each with every entry of it. A damaged log is an
// error, unless there is a report: then the writes before the damage are kept.
func (p *Place) replay(s *stateFile, u *unapplied, report *Report, each func(*store.Entry)) error {
	next := u.header.WAL
	next.Place, next.Open = u.Next, false
	reserved := max(u.header.Reserved, u.Reserved) + tornBlock // a frame may have vanished without a trace
	if u.damage != nil {
		if report == nil {
			return fmt.Errorf("%w; start monopod to continue without the missing writes", u.damage)
		}
		next = NewWAL(0)
		reserved += unknownBlock
	}
	for _, r := range u.Records {
		if r.JSON == nil || each == nil {
			continue
		}
		e, err := Decode(r.Key, r.JSON, p.cfg.Config)
		if err != nil {
			return err
		}
		each(e)
	}
	_, err := putInParts(s.db, u.Records, reserved, fixedPlace(next))
	if isNoSpace(err) && os.Remove(p.reserve()) == nil {
		_, err = putInParts(s.db, u.Records, reserved, fixedPlace(next))
	}
	if isNoSpace(err) {
		return noSpace(err)
	}
	if err == nil {
		s.header, _, err = s.readHeader()
	}
	if err == nil && u.damage != nil {
		report.Damage, report.LogOnly = u.damage, true
		report.SetAside = p.dropLog("damaged", report)
	}
	return err
}

// dropLog sets the log aside, of which the file needs nothing. A problem is part of the report.
func (p *Place) dropLog(why string, report *Report) (setAside string) {
	setAside, err := p.setAside(logOf(p.path), why)
	if err == nil {
		err = removeIfThere(logOf(p.path))
	}
	if err != nil {
		report.Problems = append(report.Problems, err)
	}
	return setAside
}

// readHeader also returns the number of the newest transaction.
func (s *stateFile) readHeader() (h Header, id uint64, err error) {
	err = RecoverFault(func() error {
		return s.db.View(func(tx *bbolt.Tx) (err error) {
			id = uint64(tx.ID())
			h, err = ReadHeader(tx)
			return err
		})
	})
	return h, id, err
}

// walPlace returns where the log goes on once the transaction with this number is durable.
type walPlace func(id int) (WAL, error)

func fixedPlace(next WAL) walPlace { return func(int) (WAL, error) { return next, nil } }

// put writes records, the reserved revision and where the log goes on, unless name is nil, in one transaction, and
// returns its number.
func put(db *bbolt.DB, records []store.Record, reserved int64, name walPlace) (id int, err error) {
	err = RecoverFault(func() error {
		return db.Update(func(tx *bbolt.Tx) error {
			id = tx.ID()
			if name == nil {
				return Write(tx, records, reserved, nil)
			}
			next, err := name(id)
			if err != nil {
				return err
			}
			return Write(tx, records, reserved, &next)
		})
	})
	return id, err
}

// putInParts is put for records that the log has, too: they can be written in parts. On a disk that is too full for all of
// them, each part can use the pages that the one before made free.
func putInParts(db *bbolt.DB, records []store.Record, reserved int64, name walPlace) (id int, err error) {
	id, err = put(db, records, reserved, name)
	if !isNoSpace(err) || len(records) < 2 {
		return id, err
	}
	half := len(records) / 2
	if id, err = putInParts(db, records[:half], 0, nil); err != nil {
		return id, err
	}
	return putInParts(db, records[half:], reserved, name)
}
