// Package bolt makes a store.Memory durable by one bbolt file.
//
// The file holds the present and nothing else: one bucket maps
// /registry/<resource>/<namespace>/<name>, as etcd does under a kube-apiserver,
// to the object's JSON; a second one holds the format and the reserved
// revision. It is read once, at Open; from then on it is only written.
package bolt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"monopod/store"
)

// format is the version of the file's layout.
const format = 1

// lockTimeout is how long Open waits for another process to let go of the file.
const lockTimeout = time.Second

// ErrLocked says that another process has the file open.
var ErrLocked = errors.New("the state file is in use by another process")

var (
	objects     = []byte("objects")
	meta        = []byte("meta")
	formatKey   = []byte("format")
	reservedKey = []byte("reserved")
)

// Open loads the file at path, made when there is none, into a Memory that
// writes every durable change to it. Close the Memory to release the file.
func Open(path string, cfg store.Config) (*store.Memory, error) {
	if err := create(path); err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	db, err := bbolt.Open(path, 0o600, options())
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: %w: stop it, or choose another --data-dir", path, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	entries, reserved, err := load(db, cfg)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	return store.NewMemory(cfg, &file{db}, entries, reserved), nil
}

func options() *bbolt.Options {
	o := &bbolt.Options{
		Timeout:        lockTimeout,
		FreelistType:   bbolt.FreelistMapType,
		NoFreelistSync: true,
		PageSize:       4096,
	}
	if strconv.IntSize == 32 {
		o.MaxSize = 1 << 30 // the file is mapped whole
	}
	return o
}

// create makes an empty file at path unless there is one. A power cut leaves
// either nothing or a complete file behind.
func create(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := bbolt.Open(tmp, 0o600, options())
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(layout), db.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func layout(tx *bbolt.Tx) error {
	if _, err := tx.CreateBucketIfNotExists(objects); err != nil {
		return err
	}
	b, err := tx.CreateBucketIfNotExists(meta)
	if err != nil {
		return err
	}
	return b.Put(formatKey, number(format))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func parseNumber(b []byte) int64 {
	if len(b) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b))
}

// load reads every object and the reserved revision.
func load(db *bbolt.DB, cfg store.Config) (entries []*store.Entry, reserved int64, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		m, o := tx.Bucket(meta), tx.Bucket(objects)
		if m == nil || o == nil {
			return errors.New("not a state file of monopod")
		}
		if f := parseNumber(m.Get(formatKey)); f != format {
			return fmt.Errorf("format %d is not known to this version, which reads %d", f, format)
		}
		reserved = parseNumber(m.Get(reservedKey))
		return o.ForEach(func(k, v []byte) error {
			e, err := decode(string(k), v, cfg)
			entries = append(entries, e)
			return err
		})
	})
	return entries, reserved, err
}

// decode makes an entry of a key and value, copied out of the mapped file.
func decode(path string, data []byte, cfg store.Config) (*store.Entry, error) {
	key, ok := parseKey(path)
	if !ok {
		return nil, fmt.Errorf("key %q is not of the form /registry/resource/[namespace/]name", path)
	}
	kind, ok := cfg.Kind(key.Resource)
	if !ok {
		return nil, fmt.Errorf("%v: resource is not served by this version", key)
	}
	data = append([]byte(nil), data...)
	obj := kind.New()
	if err := json.Unmarshal(data, obj); err != nil {
		return nil, fmt.Errorf("%v: %w", key, err)
	}
	rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%v: resourceVersion: %w", key, err)
	}
	return &store.Entry{Key: key, Rev: rev, Object: obj, JSON: data}, nil
}

const prefix = "/registry/"

func encodeKey(k store.Key) []byte { return []byte(prefix + k.String()) }

func parseKey(path string) (store.Key, bool) {
	rest, ok := strings.CutPrefix(path, prefix)
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

// file is the log of a Memory: one transaction, two fsyncs, for each Commit.
type file struct {
	db *bbolt.DB
}

var _ store.Log = (*file)(nil)

// Commit implements store.Log.
func (f *file) Commit(records []store.Record, reserved int64) error {
	err := f.db.Update(func(tx *bbolt.Tx) error {
		o := tx.Bucket(objects)
		for _, r := range records {
			if err := apply(o, r); err != nil {
				return err
			}
		}
		m := tx.Bucket(meta)
		if parseNumber(m.Get(reservedKey)) == reserved {
			return nil
		}
		return m.Put(reservedKey, number(reserved))
	})
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %w", store.ErrNoSpace, err)
	}
	return err
}

func apply(o *bbolt.Bucket, r store.Record) error {
	if r.JSON == nil {
		return o.Delete(encodeKey(r.Key))
	}
	return o.Put(encodeKey(r.Key), r.JSON)
}

// Close implements store.Log.
func (f *file) Close() error { return f.db.Close() }
