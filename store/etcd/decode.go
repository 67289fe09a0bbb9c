package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/store"
)

// protobufMagic is the prefix of the values that a kube-apiserver writes by default.
var protobufMagic = []byte("k8s\x00")

// entry decodes the value of a key in etcd.
func (s *Store) entry(key store.Key, kv *mvccpb.KeyValue) (*store.Entry, error) {
	if e := s.cache.get(key, kv.ModRevision); e != nil {
		return e, nil
	}
	kind, ok := s.cfg.Kind(key.Resource)
	if !ok {
		return nil, fmt.Errorf("%v: resource is not served", key)
	}
	obj := kind.New()
	plain, err := decode(kv.Value, obj)
	if err != nil {
		return nil, fmt.Errorf("%v at revision %d: %w", key, kv.ModRevision, err)
	}
	e := store.NewEntry(key, kv.ModRevision, obj, plain)
	s.cache.put(e)
	return e, nil
}

// decode sets obj from value and returns its JSON in the format of store.Encode.
func decode(value []byte, obj store.Object) (plain []byte, err error) {
	if raw, ok := bytes.CutPrefix(value, protobufMagic); ok {
		var envelope runtime.Unknown
		if err := envelope.Unmarshal(raw); err != nil {
			return nil, err
		}
		m, ok := obj.(interface{ Unmarshal([]byte) error })
		if !ok {
			return nil, fmt.Errorf("%T has no protobuf form", obj)
		}
		if err := m.Unmarshal(envelope.Raw); err != nil {
			return nil, err
		}
		obj.GetObjectKind().SetGroupVersionKind(envelope.GroupVersionKind())
		return store.Encode(obj)
	}
	value = bytes.TrimSpace(value) // a kube-apiserver ends JSON with a newline
	if err := store.Decode(value, obj); err != nil {
		return nil, err
	}
	if store.Canonical(value, obj) {
		return value, nil
	}
	return store.Encode(obj)
}

// entryCache caches the newest entries, up to a size.
type entryCache struct {
	max int

	mu      sync.Mutex // guards the fields below
	entries map[store.Key]*store.Entry
	bytes   int
}

// get returns the cached entry of key at rev, or nil.
func (d *entryCache) get(key store.Key, rev int64) *store.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[key]; e != nil && e.Rev == rev {
		return e
	}
	return nil
}

// newest returns the cached entry of key, which may be outdated; nil: there is none.
func (d *entryCache) newest(key store.Key) *store.Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries[key]
}

// put caches e, unless a newer entry is cached, and drops others if the cache is full.
func (d *entryCache) put(e *store.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.entries[e.Key]
	if old != nil && old.Rev >= e.Rev {
		return
	}
	d.drop(old)
	d.entries[e.Key] = e
	d.bytes += size(e)
	for _, other := range d.entries {
		if d.bytes <= d.max {
			return
		}
		d.drop(other)
	}
}

// forget drops key, which was removed at rev.
func (d *entryCache) forget(key store.Key, rev int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[key]; e != nil && e.Rev <= rev {
		d.drop(e)
	}
}

func (d *entryCache) drop(e *store.Entry) {
	if e != nil {
		delete(d.entries, e.Key)
		d.bytes -= size(e)
	}
}

// size returns the length of e's JSON in bytes.
func size(e *store.Entry) int {
	n, _ := e.Size()
	return n
}

func (d *entryCache) verify() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, e := range d.entries {
		errs = append(errs, e.Verify())
	}
	return errors.Join(errs...)
}
