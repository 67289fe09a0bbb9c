package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"monopod/store"
)

// watchRetryDelay is the time before a watch that etcd ended is restarted.
const watchRetryDelay = time.Second

// Watch implements store.Store. The history begins Config.History revisions before the first watch of the resource, so
// that clients of another server can continue at their revision.
func (s *Store) Watch(ctx context.Context, sel store.Selector, rev int64) (*store.Changes, error) {
	if err := s.reachable(ctx, rev); err != nil {
		return nil, fmt.Errorf("%s: revision %d: %w", sel.Resource, rev, err)
	}
	h, err := s.hub(sel.Resource)
	if err != nil {
		return nil, err
	}
	return h.feed.Follow(s.stopped.Done(), sel, rev)
}

// reachable checks that rev exists in etcd and is not compacted.
func (s *Store) reachable(ctx context.Context, rev int64) error {
	if rev < 1 {
		return store.ErrExpired
	}
	ctx, done, err := s.request(ctx)
	if err != nil {
		return err
	}
	defer done()
	resp, err := s.client.Get(ctx, store.PathPrefix, clientv3.WithRev(rev))
	if err != nil {
		return translate(err)
	}
	s.observe(resp.Header.Revision)
	return nil
}

// hub is the single watch of etcd that all watches of a resource share.
type hub struct {
	s        *Store
	resource string
	feed     *store.Feed
	next     int64 // the revision to continue from
	log      *zap.Logger
}

// hub returns the resource's hub. It starts the hub on first use.
func (s *Store) hub(resource string) (*hub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Err() != nil {
		return nil, store.ErrClosed
	}
	if h := s.hubs[resource]; h != nil {
		return h, nil
	}
	from := max(s.Revision()-int64(s.cfg.History), 1)
	h := &hub{s: s, resource: resource, feed: store.NewFeed(s.cfg.Config, from), next: from + 1,
		log: s.cfg.Log.With(zap.String("resource", resource))}
	s.hubs[resource] = h
	s.running.Go(func() { h.run(s.stopped) })
	return h, nil
}

// run watches until ctx ends, and restarts the watch if etcd ends it.
func (h *hub) run(ctx context.Context) {
	for {
		if err := h.watch(ctx); err != nil && ctx.Err() == nil {
			h.log.Warn("the watch of etcd ended, watching again", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-h.s.cfg.Clock.After(watchRetryDelay):
		}
	}
}

// watch adds events to the feed until etcd ends the watch.
func (h *hub) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for {
		responses := h.s.client.Watch(ctx, store.ResourcePath(h.resource, ""),
			clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithProgressNotify(), clientv3.WithRev(h.next))
		compacted, err := h.drain(responses)
		if compacted == 0 {
			return err
		}
		// Events up to that revision are compacted: continue after it.
		h.feed.Reset(compacted)
		h.next = compacted + 1
	}
}

// drain processes responses until the channel is closed. compacted is the revision to which etcd has compacted its
// history.
func (h *hub) drain(responses clientv3.WatchChan) (compacted int64, err error) {
	for resp := range responses {
		if resp.CompactRevision > 0 {
			return resp.CompactRevision, nil
		}
		if err := resp.Err(); err != nil {
			return 0, err
		}
		h.process(resp)
	}
	return 0, nil
}

// process adds the events of a response to the feed: all events of one or more revisions, or a progress notification.
func (h *hub) process(resp clientv3.WatchResponse) {
	seen := resp.Header.Revision
	var events []*store.Event
	for _, ev := range resp.Events {
		seen = ev.Kv.ModRevision
		if ev.PrevKv == nil && !ev.IsCreate() { // the previous value is compacted
			h.feed.Reset(seen)
			events = nil
			continue
		}
		if e := h.event(ev); e != nil {
			events = append(events, e)
		}
	}
	h.next = seen + 1
	h.s.observe(seen)
	h.feed.Add(seen, events...)
}

// event converts an event of etcd; nil: neither value can be decoded.
func (h *hub) event(ev *clientv3.Event) *store.Event {
	key, ok := store.ParsePath(string(ev.Kv.Key))
	if !ok || key.Resource != h.resource {
		return nil
	}
	out := &store.Event{Key: key, Rev: ev.Kv.ModRevision}
	if ev.PrevKv != nil {
		out.Old = h.entryOrNil(key, ev.PrevKv)
	}
	if ev.Type == mvccpb.Event_PUT {
		out.New = h.entryOrNil(key, ev.Kv)
	} else {
		h.s.cache.forget(key, out.Rev)
	}
	if out.Old == nil && out.New == nil {
		return nil
	}
	return out
}

// entryOrNil returns the entry of a value; nil: it cannot be decoded.
func (h *hub) entryOrNil(key store.Key, kv *mvccpb.KeyValue) *store.Entry {
	e, err := h.s.entry(key, kv)
	if err != nil {
		h.log.Error("cannot decode a value in etcd", zap.Error(err))
		return nil
	}
	return e
}
