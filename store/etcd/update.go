package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"monopod/store"
)

// errStale means that the object changed meanwhile.
var errStale = errors.New("object changed meanwhile")

// Update implements store.Store. If ctx ends during the request to etcd, the object may have been written or not.
//
// change first gets the cached object, which saves a read. If that is outdated, etcd rejects the write. If change would
// write nothing, it runs again with the object from etcd (upstream: GuaranteedUpdate).
func (s *Store) Update(ctx context.Context, key store.Key, change store.Change) (*store.Entry, error) {
	if _, ok := s.cfg.Kind(key.Resource); !ok {
		return nil, fmt.Errorf("%v: resource is not served", key)
	}
	for cur, asked := s.cache.newest(key), false; ; {
		if cur == nil && !asked {
			var err error
			if cur, err = s.read(ctx, key); err != nil {
				return nil, fmt.Errorf("%v: %w", key, err)
			}
			asked = true
		}
		w, err := propose(key, cur, change)
		switch nothing := err != nil || w.unchanged(); {
		case nothing && !asked:
			cur = nil
			continue
		case err != nil:
			return nil, err
		case nothing:
			return cur, nil
		}
		result, now, err := s.commit(ctx, w)
		if err == nil {
			return result, nil
		}
		if !errors.Is(err, errStale) {
			return nil, fmt.Errorf("%v: %w", key, err)
		}
		cur, asked = now, true
	}
}

// write is the replacement of cur by next at key; either may be nil.
type write struct {
	key   store.Key
	cur   *store.Entry
	next  store.Object
	plain []byte // next encoded
}

// propose runs change over cur.
func propose(key store.Key, cur *store.Entry, change store.Change) (*write, error) {
	w := &write{key: key, cur: cur}
	var obj store.Object
	if cur != nil {
		obj = cur.Object
	}
	next, err := change(obj)
	switch {
	case err != nil:
		return nil, err
	case next == nil && cur == nil:
		return nil, fmt.Errorf("%v: %w", key, store.ErrNotFound)
	case next == nil:
		return w, nil
	}
	w.next = next
	if cur != nil && next == cur.Object {
		return w, nil
	}
	if w.plain, err = store.Encode(next); err != nil {
		return nil, fmt.Errorf("%v: encode: %w", key, err)
	}
	return w, nil
}

// unchanged reports whether the write would store the current content.
func (w *write) unchanged() bool {
	return w.cur != nil && w.next != nil && (w.next == w.cur.Object || w.cur.Encodes(w.plain))
}

// revision returns the revision of the entry that the write replaces; 0 for none, as in etcd.
func (w *write) revision() int64 {
	if w.cur == nil {
		return 0
	}
	return w.cur.Rev
}

// commit writes, unless key has changed since w.cur was read; then it returns errStale and the current entry.
func (s *Store) commit(ctx context.Context, w *write) (result, now *store.Entry, err error) {
	ctx, done, err := s.request(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	path := w.key.Path()
	op, err := s.op(ctx, w)
	if err != nil {
		return nil, nil, translate(err)
	}
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(path), "=", w.revision())).
		Then(op).
		Else(clientv3.OpGet(path)).
		Commit()
	if err != nil {
		return nil, nil, translate(err)
	}
	s.observe(resp.Header.Revision)
	if !resp.Succeeded {
		if now, err = s.first(w.key, resp.Responses[0].GetResponseRange().Kvs); err == nil {
			err = errStale
		}
		return nil, now, err
	}
	return s.written(w, resp.Header.Revision), nil, nil
}

// op returns the write as an etcd operation.
func (s *Store) op(ctx context.Context, w *write) (clientv3.Op, error) {
	if w.next == nil {
		return clientv3.OpDelete(w.key.Path()), nil
	}
	var opts []clientv3.OpOption
	if ttl := s.cfg.TTL[w.key.Resource]; ttl > 0 {
		id, err := s.leases.grant(ctx, ttl)
		if err != nil {
			return clientv3.Op{}, err
		}
		opts = append(opts, clientv3.WithLease(id))
	}
	return clientv3.OpPut(w.key.Path(), string(w.plain), opts...), nil
}

// written returns the entry of the write at rev.
func (s *Store) written(w *write, rev int64) *store.Entry {
	if w.next == nil {
		s.cache.forget(w.key, rev)
		return (&store.Event{Key: w.key, Rev: rev, Old: w.cur}).Gone()
	}
	e := store.NewEntry(w.key, rev, w.next, w.plain)
	s.cache.put(e)
	return e
}
