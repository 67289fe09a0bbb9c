package bolt

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sync/errgroup"

	"monopod/store"
	"monopod/store/bolt/wal"
)

// Format is the current version of the file's layout; migrate.go handles older ones.
//
//	1: objects are JSON; the bucket meta contains format and reserved
//	2: objects are JSON and a checksum; the bucket meta contains format and header
//	3: keys are Key.Path; before, they were Key.String
//	4: as 3, but the newest writes are in a log of version 1 (package wal)
//	5: as 4, but with a log of version 2; the file and the log refer to each other
//
// A file has format 5 from the first write until Monopod stops. From format 2, the checksum of the header covers the
// number of the format, so that a damaged number is not taken for a newer format.
const Format = 3

const (
	formatWAL1 = 4 // written by older versions
	formatWAL2 = 5
)

var (
	// ErrDamaged means that the content of the file is not the one that was written.
	ErrDamaged = errors.New("the state file is damaged")
	// ErrNewer means that a later version of this program wrote the file.
	ErrNewer = errors.New("the state file was written by a newer version")
)

// MetaBucket is the bucket that contains the header.
var MetaBucket = []byte("meta")

var (
	objects    = []byte("objects")
	formatKey  = []byte("format") // 8 bytes, big endian, in every format
	headerKey  = []byte("header")
	walKey     = []byte("log")
	walFileKey = []byte("pair") // what format 5 adds to log; older versions ignore it
)

// Header is the metadata of the file.
type Header struct {
	Format   int64
	Reserved int64 // no revision above it has been used
	Revision int64 // the newest write in the file
	WAL      WAL
	digest   digest
}

// WAL is the place at which the write-ahead log of the file continues. The zero value is that of a file of an older
// version.
type WAL struct {
	wal.Place
	Open bool   // there may be frames
	File uint64 // see wal.Generation; 0: the log has version 1
	Size int64  // minimum size of the log in bytes
}

// NewWAL returns the place of a new generation of a new state file. at is its wal.Place.At.
func NewWAL(at int64) WAL {
	return WAL{Place: wal.Place{Generation: wal.NewGeneration(), At: at}, File: wal.NewGeneration()}
}

// digest identifies a set of objects by their number and the sum of their checksums.
type digest struct {
	count, sum uint64
}

func (d *digest) add(sum uint32) { d.count, d.sum = d.count+1, d.sum+uint64(sum) }

func (d *digest) remove(sum uint32) { d.count, d.sum = d.count-1, d.sum-uint64(sum) }

// CreateBuckets creates the buckets of an empty file.
func CreateBuckets(tx *bbolt.Tx) error {
	if _, err := tx.CreateBucketIfNotExists(objects); err != nil {
		return err
	}
	m, err := tx.CreateBucketIfNotExists(MetaBucket)
	if err != nil {
		return err
	}
	return Header{Format: Format, WAL: NewWAL(0)}.Put(m)
}

// SeparateLog makes a copy of a file not use the log of the original.
func SeparateLog(tx *bbolt.Tx) error {
	h, err := ReadHeader(tx)
	if err != nil || h.Format != Format {
		return err
	}
	h.WAL = NewWAL(h.WAL.At)
	return h.Put(tx.Bucket(MetaBucket))
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func parseNumber(b []byte) int64 {
	if len(b) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

// Put stores the format, the place at which the log continues, and the header with a checksum of header and format.
func (h Header) Put(m *bbolt.Bucket) error {
	if h.Format == Format {
		if h.WAL.Open {
			h.Format = formatWAL2
		}
		place := numbers(h.WAL.Generation, h.WAL.Number, uint64(h.WAL.At))
		if err := m.Put(walKey, seal(walKey, place)); err != nil {
			return err
		}
		if err := m.Put(walFileKey, seal(walFileKey, numbers(h.WAL.File, uint64(h.WAL.Size)))); err != nil {
			return err
		}
	}
	if err := m.Put(formatKey, number(h.Format)); err != nil {
		return err
	}
	b := numbers(uint64(h.Reserved), uint64(h.Revision), h.digest.count, h.digest.sum)
	return m.Put(headerKey, seal(number(h.Format), b))
}

func numbers(all ...uint64) (b []byte) {
	for _, n := range all {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// ReadHeader reads the header of any known format.
func ReadHeader(tx *bbolt.Tx) (Header, error) {
	m := tx.Bucket(MetaBucket)
	if m == nil || tx.Bucket(objects) == nil {
		return Header{}, fmt.Errorf("%w: its content is not monopod's, it may be another program's file", ErrDamaged)
	}
	h, sealed := Header{Format: parseNumber(m.Get(formatKey))}, m.Get(headerKey)
	if h.Format == 1 && sealed == nil {
		h.Reserved = parseNumber(m.Get(reservedKey))
		return h, nil
	}
	b, ok := unseal(number(h.Format), sealed)
	switch {
	case !ok:
		return h, fmt.Errorf("%w: its header is bad", ErrDamaged)
	case h.Format > formatWAL2:
		return h, fmt.Errorf("%w: it has format %d, this version reads up to %d", ErrNewer, h.Format, formatWAL2)
	case len(b) != 32:
		return h, fmt.Errorf("%w: its header is bad", ErrDamaged)
	}
	h.Reserved, h.Revision = parseNumber(b[:8]), parseNumber(b[8:16])
	h.digest = digest{binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])}
	version1 := h.Format == formatWAL1
	if h.Format == formatWAL2 || version1 {
		h.Format, h.WAL.Open = Format, true
	}
	if sealed := m.Get(walKey); sealed != nil || h.WAL.Open {
		b, ok := unseal(walKey, sealed)
		if !ok || len(b) != 24 {
			return h, fmt.Errorf("%w: its reference to the log is bad", ErrDamaged)
		}
		h.WAL.Place = wal.Place{Generation: binary.BigEndian.Uint64(b), Number: binary.BigEndian.Uint64(b[8:]),
			At: parseNumber(b[16:])}
	}
	if b, ok := unseal(walFileKey, m.Get(walFileKey)); ok && len(b) == 16 && !version1 {
		h.WAL.File, h.WAL.Size = binary.BigEndian.Uint64(b), parseNumber(b[8:])
	}
	return h, nil
}

const sumSize = 4

// checksum returns the CRC-32 (Castagnoli) of a key and its value.
func checksum(key, value []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Update(crc32.Checksum(key, table), table, []byte{0}), table, value)
}

// seal returns a value with its checksum.
func seal(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(value), checksum(key, value))
}

// unseal is the inverse of seal; false if the checksum is wrong.
func unseal(key, sealed []byte) (value []byte, ok bool) {
	if len(sealed) < sumSize {
		return nil, false
	}
	value = sealed[:len(sealed)-sumSize]
	return value, sumOf(sealed) == checksum(key, value)
}

func sumOf(sealed []byte) uint32 { return binary.BigEndian.Uint32(sealed[len(sealed)-sumSize:]) }

// CheckRecords returns an error for records that Write cannot write.
func CheckRecords(records []store.Record) error {
	for _, r := range records {
		k := r.Key
		switch {
		case len(k.Resource)+len(k.Namespace)+len(k.Name) > bbolt.MaxKeySize-64:
			return fmt.Errorf("%.100s...: %w", k, bolterrors.ErrKeyTooLarge)
		case len(r.JSON) > bbolt.MaxValueSize-64:
			return fmt.Errorf("%s: %w", k, bolterrors.ErrValueTooLarge)
		}
	}
	return nil
}

// Write applies records in a transaction. It also stores reserved, unless it is 0, and the place at which the log
// continues, unless it is nil.
func Write(tx *bbolt.Tx, records []store.Record, reserved int64, log *WAL) error {
	h, err := ReadHeader(tx)
	if err != nil {
		return err
	}
	o := tx.Bucket(objects)
	for _, r := range records {
		if err := h.apply(o, r); err != nil {
			return err
		}
	}
	if reserved != 0 {
		h.Reserved = reserved
	}
	if log != nil {
		h.WAL = *log
	}
	return h.Put(tx.Bucket(MetaBucket))
}

func (h *Header) apply(o *bbolt.Bucket, r store.Record) error {
	key := []byte(r.Key.Path())
	if old := o.Get(key); old != nil {
		h.digest.remove(sumOf(old))
	}
	h.Revision = max(h.Revision, r.Rev)
	if r.JSON == nil {
		return o.Delete(key)
	}
	value := seal(key, r.JSON)
	h.digest.add(sumOf(value))
	return o.Put(key, value)
}

// ReadObjects reads and copies every object, and checks them against the digest in the header. It calls each with every
// entry, one at a time, in any order.
func ReadObjects(tx *bbolt.Tx, h Header, cfg store.Config, each func(*store.Entry)) error {
	var found digest
	d := &decoder{cfg: cfg, each: each}
	d.group.SetLimit(runtime.GOMAXPROCS(0))
	err := tx.Bucket(objects).ForEach(func(k, v []byte) error {
		if h.Format > 1 {
			value, ok := unseal(k, v)
			if !ok {
				return fmt.Errorf("%w: the checksum of %s is wrong", ErrDamaged, k)
			}
			found.add(sumOf(v))
			v = value
		}
		key, ok := parseKey(string(k), h.Format)
		if !ok {
			return fmt.Errorf("key %q is not of the form /registry/resource/[namespace/]name", k)
		}
		d.add(key, bytes.Clone(v))
		return nil
	})
	if err = errors.Join(err, d.group.Wait()); err != nil {
		return err
	}
	if h.Format > 1 && found != h.digest {
		return fmt.Errorf("%w: it has %d objects that are not the %d written last", ErrDamaged, found.count, h.digest.count)
	}
	return nil
}

// decoder decodes objects on all CPUs, because decoding takes most of the time of opening a file.
type decoder struct {
	cfg   store.Config
	group errgroup.Group

	mu   sync.Mutex // held while each runs
	each func(*store.Entry)
}

// add decodes data, which the entry retains.
func (d *decoder) add(key store.Key, data []byte) {
	d.group.Go(func() error {
		return RecoverFault(func() error {
			e, err := Decode(key, data, d.cfg)
			if err != nil || d.each == nil {
				return err
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.each(e)
			return nil
		})
	})
}

// RecoverFault calls do and turns a panic into an error, including a fault in the mapped file, which a failing disk
// causes.
func RecoverFault(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return do()
}

// Decode returns the entry of a key's value, which it retains.
func Decode(key store.Key, data []byte, cfg store.Config) (*store.Entry, error) {
	kind, ok := cfg.Kind(key.Resource)
	if !ok {
		return nil, fmt.Errorf("%v: resource is not served by this version", key)
	}
	obj := kind.New()
	if err := store.Decode(data, obj); err != nil {
		return nil, fmt.Errorf("%v: %w", key, err)
	}
	rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%v: resourceVersion: %w", key, err)
	}
	return store.ReadEntry(key, rev, obj, data), nil
}

// revisionOf reads the revision in an object's JSON.
func revisionOf(data []byte) (int64, error) {
	var o struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return 0, err
	}
	return strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64)
}

// parseKey parses a key of a file of the format.
func parseKey(path string, format int64) (store.Key, bool) {
	if format < 3 {
		return parsePlainKey(path)
	}
	return store.ParsePath(path)
}
