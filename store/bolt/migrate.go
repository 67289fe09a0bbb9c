package bolt

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/bbolt"

	"monopod/store"
)

// migrations convert each older format to the next, in one transaction. A file in any
// other format is refused.
var migrations = map[int64]func(tx *bbolt.Tx) error{
	1: addChecksums,
	2: movePaths,
}

// reservedKey is where format 1 kept the reserved revision.
var reservedKey = []byte("reserved")

// openMigrated opens a file for writing and reads its entries. It migrates a file in
// an older format after taking a snapshot of it.
func (p *Place) openMigrated(path string, report *Report) (s *state, entries []*store.Entry, err error) {
	each := func(e *store.Entry) { entries = append(entries, e) }
	s, err = p.openState(path, false, each)
	if err != nil || s.header.format == format {
		return s, entries, err
	}
	report.MigratedFrom = s.header.format
	if path == p.path {
		if _, err := p.save(s.db); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("snapshot before the migration of %s: %w", path, err), s.close())
		}
	}
	if err := s.db.Update(migrate); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("migrate %s: %w", path, err), s.close())
	}
	entries = nil
	if err := s.load(p.cfg.Config, each); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("load %s after its migration: %w", path, err), s.close())
	}
	return s, entries, nil
}

// migrate applies every migration from the file's format to the newest.
func migrate(tx *bbolt.Tx) error {
	m := tx.Bucket(meta)
	for from := parseNumber(m.Get(formatKey)); from < format; from++ {
		step := migrations[from]
		if step == nil {
			return fmt.Errorf("no migration from format %d", from)
		}
		if err := step(tx); err != nil {
			return fmt.Errorf("from format %d: %w", from, err)
		}
		if err := m.Put(formatKey, number(from+1)); err != nil {
			return err
		}
	}
	return nil
}

// addChecksums migrates to format 2.
func addChecksums(tx *bbolt.Tx) error {
	m, o := tx.Bucket(meta), tx.Bucket(objects)
	h := header{format: 2, reserved: parseNumber(m.Get(reservedKey))}
	sealed := map[string][]byte{}
	if err := o.ForEach(func(k, v []byte) error {
		value := seal(k, v)
		h.digest.add(sumOf(value))
		sealed[string(k)] = value
		rev, err := revisionOf(v)
		h.revision = max(h.revision, rev)
		return err
	}); err != nil {
		return err
	}
	for k, v := range sealed {
		if err := o.Put([]byte(k), v); err != nil {
			return err
		}
	}
	return errors.Join(m.Delete(reservedKey), h.put(m))
}

// movePaths migrates to format 3: it moves objects whose path differs from their
// name.
func movePaths(tx *bbolt.Tx) error {
	o := tx.Bucket(objects)
	h, err := readHeader(tx)
	if err != nil {
		return err
	}
	moved := map[string]string{}
	if err := o.ForEach(func(k, _ []byte) error {
		key, ok := parsePlainKey(string(k))
		if !ok {
			return fmt.Errorf("key %q is not of the form /registry/resource/[namespace/]name", k)
		}
		if to := key.Path(); to != string(k) {
			moved[string(k)] = to
		}
		return nil
	}); err != nil {
		return err
	}
	for from, to := range moved {
		if err := h.move(o, []byte(from), []byte(to)); err != nil {
			return err
		}
	}
	h.format = 3
	return h.put(tx.Bucket(meta))
}

// move gives an object another key, which its checksum covers.
func (h *header) move(o *bbolt.Bucket, from, to []byte) error {
	old := o.Get(from)
	value, ok := unseal(from, old)
	if !ok {
		return fmt.Errorf("%w: the checksum of %s is wrong", ErrDamaged, from)
	}
	h.digest.remove(sumOf(old))
	next := seal(to, value)
	h.digest.add(sumOf(next))
	return errors.Join(o.Put(to, next), o.Delete(from))
}

// parsePlainKey parses a key of the formats before 3.
func parsePlainKey(path string) (store.Key, bool) {
	rest, ok := strings.CutPrefix(path, store.PathPrefix)
	if !ok {
		return store.Key{}, false
	}
	switch p := strings.Split(rest, "/"); len(p) {
	case 2:
		return store.Key{Resource: p[0], Name: p[1]}, true
	case 3:
		return store.Key{Resource: p[0], Namespace: p[1], Name: p[2]}, true
	}
	return store.Key{}, false
}
