package bolt

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/bbolt"

	"monopod/store"
)

// migrations convert each older format to the next one.
var migrations = map[int64]func(tx *bbolt.Tx) error{
	1: addChecksums,
	2: movePaths,
}

// reservedKey is the key of the reserved revision in format 1.
var reservedKey = []byte("reserved")

// Migrate applies, in one transaction, the migrations from the file's format to the newest. It returns an error for an
// unknown format.
func Migrate(tx *bbolt.Tx) error {
	m := tx.Bucket(MetaBucket)
	for from := parseNumber(m.Get(formatKey)); from < Format; from++ {
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
	m, o := tx.Bucket(MetaBucket), tx.Bucket(objects)
	h := Header{Format: 2, Reserved: parseNumber(m.Get(reservedKey))}
	sealed := map[string][]byte{}
	if err := o.ForEach(func(k, v []byte) error {
		value := seal(k, v)
		h.digest.add(sumOf(value))
		sealed[string(k)] = value
		rev, err := revisionOf(v)
		h.Revision = max(h.Revision, rev)
		return err
	}); err != nil {
		return err
	}
	for k, v := range sealed {
		if err := o.Put([]byte(k), v); err != nil {
			return err
		}
	}
	return errors.Join(m.Delete(reservedKey), h.Put(m))
}

// movePaths migrates to format 3: it moves objects whose Key.Path differs from their Key.String.
func movePaths(tx *bbolt.Tx) error {
	o := tx.Bucket(objects)
	h, err := ReadHeader(tx)
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
	h.Format, h.WAL = 3, NewWAL(0)
	return h.Put(tx.Bucket(MetaBucket))
}

// move changes the key of an object, and its checksum, which covers the key.
func (h *Header) move(o *bbolt.Bucket, from, to []byte) error {
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
