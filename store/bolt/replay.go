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

// logOf returns the path of the write-ahead log of the file at path.
func logOf(path string) string { return path + "-wal" }

// unapplied contains the records of a log that are not in its file.
type unapplied struct {
	wal.Content
	damage error // nil: no record is missing
	header Header
}

// readLog returns the records of the log that are not in the file; nil: there are none.
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

// except returns a function that calls each, but not with entries that u replaces.
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

// replay writes u to the file, which has been checked, and calls each with every entry of u. If report is nil, a
// damaged log is an error. Otherwise it is reported, and only the writes before the damage are kept.
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

// dropLog sets the log aside. The file must not need it. Errors are reported as Problems.
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

// readHeader returns the header and the number of the newest transaction.
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

// walPlace returns the place at which the log continues when the transaction with this number is durable.
type walPlace func(id int) (WAL, error)

func fixedPlace(next WAL) walPlace { return func(int) (WAL, error) { return next, nil } }

// put writes records, the reserved revision and, unless name is nil, the place at which the log continues. It uses one
// transaction and returns its number.
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

// putInParts is put for records that are also in the log, so that they can be written in several transactions. If the
// disk is too full for all of them, each transaction can reuse pages that the previous one freed.
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
