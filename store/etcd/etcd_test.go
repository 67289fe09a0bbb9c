package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/store"
	"monopod/store/etcd"
	"monopod/store/etcd/etcdtest"
	"monopod/store/storetest"
	"monopod/testdata/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, url string) *etcd.Store {
	t.Helper()
	return openWith(t, url, etcd.Config{Config: storetest.Config()})
}

func openWith(t testing.TB, url string, cfg etcd.Config) *etcd.Store {
	t.Helper()
	var err error
	if cfg.Endpoints, err = etcd.Endpoints(url, cfg.TLS); err != nil {
		t.Fatal(err)
	}
	s, err := etcd.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s
}

func TestEtcd(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, etcdtest.Start(t)) })
}

// Without a cache the store decodes every object each time.
func TestWithoutCache(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		return openWith(t, etcdtest.Start(t), etcd.Config{Config: storetest.Config(), DecodedBytes: 1})
	})
}

func key(name string) store.Key {
	return store.Key{Resource: "configmaps", Namespace: "ns", Name: name}
}

var all = store.Selector{Resource: "configmaps"}

// A server reads and watches another server's writes at once, also from a revision before its start.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	a := open(t, url)
	first := storetest.Put(t, a, key("a"), "1")
	storetest.Put(t, a, key("a"), "2")
	b := open(t, url)
	events, err := storetest.Watch(t.Context(), b, all, first.Rev)
	if err != nil {
		t.Fatal(err)
	}
	want(t, events, "1>2")
	last := storetest.Put(t, a, key("a"), "3")
	want(t, events, "2>3")
	if e, err := b.Get(t.Context(), key("a")); err != nil || e.Rev != last.Rev {
		t.Errorf("b reads %v, %v", e, err)
	}
	storetest.Put(t, b, key("a"), "4")
	want(t, events, "3>4")
	// b knows the newest revision before a does.
	if _, err := storetest.Watch(t.Context(), a, all, b.Revision()); err != nil {
		t.Errorf("a watches from b's revision: %v", err)
	}
}

func want(t *testing.T, events <-chan *store.Event, change string) {
	t.Helper()
	for {
		select {
		case ev, ok := <-events:
			if !ok || ev.Lagged() {
				t.Fatalf("the watch ended before %s", change)
			}
			if ev.Progress() {
				continue
			}
			if got := value(ev.Old) + ">" + value(ev.New); got != change {
				t.Errorf("got %s, want %s", got, change)
			}
			return
		case <-time.After(harness.Bound):
			t.Fatalf("no event, want %s", change)
		}
	}
}

func value(e *store.Entry) string {
	if e == nil {
		return ""
	}
	return e.Object.(*corev1.ConfigMap).Data["v"]
}

// While etcd is unavailable requests fail in time. When it is available again, watches continue.
func TestOutage(t *testing.T) {
	t.Parallel()
	dir := etcdtest.Dir(t)
	url, stop := etcdtest.StartIn(t, dir)
	s := open(t, url)
	e := storetest.Put(t, s, key("a"), "1")
	events, err := storetest.Watch(t.Context(), s, all, e.Rev)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.Get(ctx, key("a")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Get: %v", err)
	}
	change := func(store.Object) (store.Object, error) { return nil, nil }
	if _, err := s.Update(ctx, key("a"), change); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Update: %v", err)
	}
	etcdtest.StartIn(t, dir)
	storetest.Put(t, open(t, url), key("a"), "2")
	want(t, events, "1>2")
	storetest.Put(t, s, key("a"), "3")
	want(t, events, "2>3")
}

// One of the servers compacts etcd's history up to the round before the last, and all servers continue.
func TestCompaction(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	clock := clocktesting.NewFakeClock(time.Now())
	a := openWith(t, url, etcd.Config{Config: storetest.Config(), Clock: clock})
	openWith(t, url, etcd.Config{Config: storetest.Config(), Clock: clock})
	first := storetest.Put(t, a, key("a"), "0")
	events, err := storetest.Watch(t.Context(), a, all, first.Rev)
	if err != nil {
		t.Fatal(err)
	}
	past := all
	past.At = first.Rev
	for i := 1; ; i++ {
		storetest.Put(t, a, key("a"), strconv.Itoa(i))
		want(t, events, strconv.Itoa(i-1)+">"+strconv.Itoa(i))
		if _, _, err = a.List(t.Context(), past); err != nil {
			break
		}
		if i == 1000 {
			t.Fatal("nothing was compacted in 1000 rounds")
		}
		clock.Step(5 * time.Minute)
		time.Sleep(5 * time.Millisecond) // etcd needs real time
	}
	if !errors.Is(err, store.ErrExpired) {
		t.Errorf("a read of a compacted revision: %v", err)
	}
	if _, err := storetest.Watch(t.Context(), a, all, first.Rev); !errors.Is(err, store.ErrExpired) {
		t.Errorf("a watch from a compacted revision: %v", err)
	}
}

// A server that starts after etcd compacted earlier changes reports that to watches from before.
func TestCompactedWhileAway(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	a := open(t, url)
	first := storetest.Put(t, a, key("a"), "1")
	storetest.Put(t, a, key("a"), "2")
	last := storetest.Put(t, a, key("a"), "3")
	if err := a.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := open(t, url) // its history would begin before the compaction
	if _, err := storetest.Watch(t.Context(), b, all, first.Rev); !errors.Is(err, store.ErrExpired) {
		t.Errorf("a watch from a compacted revision: %v", err)
	}
	events, err := storetest.Watch(t.Context(), b, all, last.Rev)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, a, key("a"), "4")
	want(t, events, "3>4")
}

// The store attaches objects with a TTL to a lease of etcd, which objects share that are written together.
func TestTTL(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	s := openWith(t, url, etcd.Config{Config: storetest.Config(), TTL: map[string]time.Duration{"leases": time.Hour}})
	client := etcdtest.Client(t, url)
	var ids []int64
	for _, k := range []store.Key{{Resource: "leases", Namespace: "ns", Name: "a"},
		{Resource: "leases", Namespace: "ns", Name: "b"}, key("c")} {
		storetest.Put(t, s, k, "1")
		resp, err := client.Get(t.Context(), k.Path())
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatal(resp, err)
		}
		ids = append(ids, resp.Kvs[0].Lease)
	}
	if ids[0] == 0 || ids[0] != ids[1] || ids[2] != 0 {
		t.Fatalf("leases %x, want the same for two objects and none for the third", ids)
	}
	all, err := client.Leases(t.Context())
	if err != nil || len(all.Leases) != 1 {
		t.Fatal(all, err)
	}
	ttl, err := client.TimeToLive(t.Context(), all.Leases[0].ID)
	if err != nil || ttl.GrantedTTL != 3660 {
		t.Errorf("TTL %d s, %v, want an hour and a minute", ttl.GrantedTTL, err)
	}
}

func TestUnreachableEtcd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := etcd.Open(ctx, etcd.Config{Config: storetest.Config(), Endpoints: []string{"unix:///nowhere"}})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// Servers that start at the same time agree on the same keys.
func TestAgree(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	s := open(t, url)
	var all [8][]byte
	var group errgroup.Group
	for i := range all {
		group.Go(func() (err error) {
			all[i], err = s.Agree(t.Context(), "pki", fmt.Append(nil, "server ", i))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, got := range all {
		if len(got) == 0 || string(got) != string(all[0]) {
			t.Errorf("agreed on %q", all)
		}
	}
	if counts, err := s.Unserved(t.Context()); err != nil || len(counts) > 0 {
		t.Errorf("%v, %v", counts, err)
	}
}

// An etcd that exceeds its quota acts like a full disk: the store refuses writes, but reads and deletions work.
func TestQuota(t *testing.T) {
	t.Parallel()
	url, _ := etcdtest.StartIn(t, etcdtest.Dir(t), "--quota-backend-bytes", "200000")
	s := open(t, url)
	storetest.Put(t, s, key("a"), "1")
	if got, err := s.Agree(t.Context(), "pki", []byte("first")); err != nil || string(got) != "first" {
		t.Errorf("agreed on %q, %v", got, err)
	}
	large := func(store.Object) (store.Object, error) {
		cm := &corev1.ConfigMap{Data: map[string]string{"v": strings.Repeat("x", 50000)}}
		cm.Kind, cm.APIVersion, cm.Namespace, cm.Name = "ConfigMap", "v1", "ns", "large"
		return cm, nil
	}
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		k := key(strconv.Itoa(i))
		_, err = s.Update(t.Context(), k, large)
	}
	if !errors.Is(err, store.ErrNoSpace) || !strings.Contains(err.Error(), "quota") {
		t.Fatalf("got %v", err)
	}
	if _, err := s.Get(t.Context(), key("a")); err != nil {
		t.Error(err)
	}
	if got, err := s.Agree(t.Context(), "pki", []byte("other")); err != nil || string(got) != "first" {
		t.Errorf("agreed on %q, %v", got, err)
	}
	if _, err := s.Update(t.Context(), key("a"),
		func(store.Object) (store.Object, error) { return nil, nil }); err != nil {
		t.Errorf("a deletion: %v", err)
	}
}
