package etcd

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"monopod/store"
)

// pageSize is the maximum number of keys in one request of a list, so that a long list does not delay other requests.
const pageSize = 1000

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key store.Key) (*store.Entry, error) {
	e, err := s.read(ctx, key)
	if err == nil && e == nil {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", key, err)
	}
	return e, nil
}

// read returns the entry of key; nil: there is none.
func (s *Store) read(ctx context.Context, key store.Key) (*store.Entry, error) {
	ctx, done, err := s.request(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	resp, err := s.client.Get(ctx, key.Path())
	if err != nil {
		return nil, translate(err)
	}
	s.observe(resp.Header.Revision)
	return s.first(key, resp.Kvs)
}

func (s *Store) first(key store.Key, kvs []*mvccpb.KeyValue) (*store.Entry, error) {
	if len(kvs) == 0 {
		return nil, nil
	}
	return s.entry(key, kvs[0])
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, sel store.Selector) ([]*store.Entry, int64, error) {
	if s.stopped.Err() != nil {
		return nil, 0, store.ErrClosed
	}
	l := &listing{s: s, sel: sel, rev: sel.At}
	l.next, l.end = keyRange(sel)
	for more := true; more; {
		var err error
		if more, err = l.page(ctx); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", sel.Resource, err)
		}
	}
	return l.entries, l.rev, nil
}

// keyRange returns the range of keys that sel selects: from is included, end is not.
func keyRange(sel store.Selector) (from, end string) {
	if sel.Namespace != "" && sel.Name != "" {
		from = store.Key{Resource: sel.Resource, Namespace: sel.Namespace, Name: sel.Name}.Path()
		end = from + "\x00"
	} else {
		from = store.ResourcePath(sel.Resource, sel.Namespace)
		end = clientv3.GetPrefixRangeEnd(from)
	}
	return max(from, keyAfter(sel)), end
}

// keyAfter returns the first key after sel.After; empty: sel.After is empty.
func keyAfter(sel store.Selector) string {
	if sel.After == "" {
		return ""
	}
	place := sel.After
	if place[0] == '/' {
		place = place[1:]
	}
	return store.ResourcePath(sel.Resource, "") + place + "\x00"
}

// listing is a List in progress.
type listing struct {
	s         *Store
	sel       store.Selector
	rev       int64 // 0 until the first page was read
	next, end string
	entries   []*store.Entry
}

// page reads the next keys; more means that there may be more.
func (l *listing) page(ctx context.Context) (more bool, err error) {
	ctx, done, err := l.s.request(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if l.next >= l.end {
		return false, l.empty(ctx)
	}
	resp, err := l.s.client.Get(ctx, l.next, clientv3.WithRange(l.end), clientv3.WithRev(l.rev),
		clientv3.WithLimit(l.limit()))
	if err != nil {
		return false, translate(err)
	}
	l.s.observe(resp.Header.Revision)
	if l.rev == 0 {
		l.rev = resp.Header.Revision
	}
	for _, kv := range resp.Kvs {
		l.next = string(kv.Key) + "\x00"
		if err := l.add(kv); err != nil {
			return false, err
		}
		if l.sel.Limit > 0 && len(l.entries) == l.sel.Limit {
			return false, nil
		}
	}
	return resp.More, nil
}

// empty reads only the revision, for a range without keys.
func (l *listing) empty(ctx context.Context) error {
	resp, err := l.s.client.Get(ctx, store.PathPrefix, clientv3.WithRev(l.rev))
	if err != nil {
		return translate(err)
	}
	if l.rev == 0 {
		l.rev = resp.Header.Revision
	}
	return nil
}

// limit returns how many keys to request: only as many as sel.Limit requires if every key matches.
func (l *listing) limit() int64 {
	if l.sel.Limit > 0 && l.sel.Match == nil && l.sel.Name == "" {
		return int64(min(l.sel.Limit-len(l.entries), pageSize))
	}
	return pageSize
}

func (l *listing) add(kv *mvccpb.KeyValue) error {
	key, ok := store.ParsePath(string(kv.Key))
	if !ok || key.Resource != l.sel.Resource || (l.sel.Name != "" && key.Name != l.sel.Name) {
		return nil
	}
	e, err := l.s.entry(key, kv)
	if err == nil && l.sel.Matches(e) {
		l.entries = append(l.entries, e)
	}
	return err
}

// Unserved counts the objects below /registry/ that belong to other API servers, by resource or by the first part of
// the path.
func (s *Store) Unserved(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	next, end := store.PathPrefix, clientv3.GetPrefixRangeEnd(store.PathPrefix)
	for more := true; more; {
		resp, err := s.client.Get(ctx, next, clientv3.WithRange(end), clientv3.WithKeysOnly(),
			clientv3.WithLimit(10*pageSize))
		if err != nil {
			return nil, translate(err)
		}
		for _, kv := range resp.Kvs {
			next = string(kv.Key) + "\x00"
			if what, other := s.unserved(string(kv.Key)); other {
				counts[what]++
			}
		}
		more = resp.More
	}
	return counts, nil
}

func (s *Store) unserved(path string) (what string, other bool) {
	if key, ok := store.ParsePath(path); ok {
		_, served := s.cfg.Kind(key.Resource)
		return key.Resource, !served
	}
	what, _, _ = strings.Cut(strings.TrimPrefix(path, store.PathPrefix), "/")
	return what, true
}

// Ping checks that etcd answers, for health checks.
func (s *Store) Ping(ctx context.Context) error { return s.ping(ctx) }
