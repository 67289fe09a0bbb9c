// Package storetest is the contract of store.Store: tests that every implementation passes.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/store"
)

// Config serves "configmaps" and "nodes", which are durable, and "leases", which are volatile. Their objects are
// ConfigMaps.
func Config() store.Config {
	return store.Config{
		Kind: func(resource string) (store.Kind, bool) {
			k := store.Kind{New: func() store.Object { return &corev1.ConfigMap{} }}
			switch resource {
			case "configmaps", "nodes":
			case "leases":
				k.Durability = func(_, _ store.Object) store.Durability { return store.Volatile }
			default:
				return store.Kind{}, false
			}
			return k, true
		},
		History: 64,
	}
}

// Run tests stores. open returns an empty store with Config, which Run closes.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for name, test := range map[string]func(*testing.T, store.Store){
		"UpdateCreatesReplacesRemoves":    testUpdate,
		"NoOpWritesNothing":               testNoOp,
		"ChangeErrorWritesNothing":        testChangeError,
		"UnknownResourceIsRefused":        testUnknownResource,
		"ConcurrentUpdatesAllCount":       testConcurrent,
		"RevisionsOnlyGrow":               testRevisions,
		"ListIsSortedAndSelected":         testList,
		"PathsAreNotNames":                testPaths,
		"ListContinues":                   testListPages,
		"ListShowsThePast":                testListPast,
		"WatchSendsEveryChangeInOrder":    testWatchOrder,
		"WatchResumes":                    testWatchResume,
		"WatchAgreesWithAModel":           testModel,
		"WatchSeesObjectsLeaveASelection": testWatchSelection,
		"WatchReportsProgress":            testWatchProgress,
		"WatchReportsProgressAtOnce":      testWatchProgressAtOnce,
		"WatchTooOldOrNew":                testWatchReach,
		"SlowWatchIsToldItLagged":         testWatchLag,
		"WatchEndsWithItsContext":         testWatchContext,
		"CloseEndsEverything":             testClose,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			t.Cleanup(func() { finish(t, s) })
			test(t, s)
		})
	}
}

func finish(t *testing.T, s store.Store) {
	if v, ok := s.(interface{ Verify() error }); ok {
		if err := v.Verify(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func key(namespace, name string) store.Key {
	return store.Key{Resource: "configmaps", Namespace: namespace, Name: name}
}

// Put stores a ConfigMap with one value and returns its entry.
func Put(t *testing.T, s store.Store, k store.Key, value string) *store.Entry {
	t.Helper()
	e, err := s.Update(t.Context(), k, set(k, value))
	if err != nil {
		t.Fatalf("put %v: %v", k, err)
	}
	return e
}

func set(k store.Key, value string) store.Change {
	return func(store.Object) (store.Object, error) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
		cm.Kind, cm.APIVersion = "ConfigMap", "v1"
		cm.Data = map[string]string{"v": value}
		return cm, nil
	}
}

func remove(store.Object) (store.Object, error) { return nil, nil }

func value(e *store.Entry) string {
	if e == nil {
		return "-"
	}
	return e.Object.(*corev1.ConfigMap).Data["v"]
}

func testUpdate(t *testing.T, s store.Store) {
	k := key("ns", "a")
	if _, err := s.Get(t.Context(), k); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("Get before: %v", err)
	}
	if _, err := s.Update(t.Context(), k, remove); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("remove before: %v", err)
	}
	one := Put(t, s, k, "1")
	got, err := s.Get(t.Context(), k)
	if err != nil || got.Rev != one.Rev || value(got) != "1" {
		t.Fatalf("Get: %v, %v", got, err)
	}
	if want := strconv.FormatInt(one.Rev, 10); got.Object.GetResourceVersion() != want {
		t.Errorf("resourceVersion %q, want %q", got.Object.GetResourceVersion(), want)
	}
	want := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1",`+
		`"metadata":{"resourceVersion":"%d","name":"a","namespace":"ns"},"data":{"v":"1"}}`, one.Rev)
	if string(got.JSON()) != want {
		t.Errorf("JSON\n got %s\nwant %s", got.JSON(), want)
	}
	Put(t, s, k, "2")
	gone, err := s.Update(t.Context(), k, remove)
	if err != nil || value(gone) != "2" || gone.Rev <= one.Rev {
		t.Fatalf("remove: %v, %v", gone, err)
	}
	if _, err := s.Get(t.Context(), k); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("Get after: %v", err)
	}
}

func testNoOp(t *testing.T, s store.Store) {
	k := key("ns", "a")
	one := Put(t, s, k, "1")
	again := Put(t, s, k, "1")
	same, err := s.Update(t.Context(), k, func(cur store.Object) (store.Object, error) { return cur, nil })
	if err != nil || again.Rev != one.Rev || same.Rev != one.Rev || s.Revision() != one.Rev {
		t.Errorf("revisions %d, %d, %d, store %d, %v: want one", one.Rev, again.Rev, same.Rev, s.Revision(), err)
	}
}

func testChangeError(t *testing.T, s store.Store) {
	k := key("ns", "a")
	one := Put(t, s, k, "1")
	boom := errors.New("boom")
	_, err := s.Update(t.Context(), k, func(store.Object) (store.Object, error) { return nil, boom })
	if !errors.Is(err, boom) || s.Revision() != one.Rev {
		t.Errorf("got %v at revision %d", err, s.Revision())
	}
}

func testUnknownResource(t *testing.T, s store.Store) {
	k := store.Key{Resource: "unicorns", Name: "a"}
	if _, err := s.Update(t.Context(), k, set(k, "1")); err == nil {
		t.Error("stored an object of an unknown resource")
	}
}

func testConcurrent(t *testing.T, s store.Store) {
	const writers, each = 8, 25
	k := key("ns", "counter")
	Put(t, s, k, "0")
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				if _, err := s.Update(t.Context(), k, increment(k)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := s.Get(t.Context(), k)
	if err != nil || value(got) != strconv.Itoa(writers*each) {
		t.Errorf("counter is %s, %v: an update was lost", value(got), err)
	}
}

func increment(k store.Key) store.Change {
	return func(cur store.Object) (store.Object, error) {
		n, err := strconv.Atoi(cur.(*corev1.ConfigMap).Data["v"])
		if err != nil {
			return nil, err
		}
		return set(k, strconv.Itoa(n+1))(cur)
	}
}

func testRevisions(t *testing.T, s store.Store) {
	last := s.Revision()
	if last < 1 {
		t.Errorf("an empty store is at revision %d: 0 means \"any\" to clients", last)
	}
	for i := range 20 {
		k := key("ns", strconv.Itoa(i))
		if i%2 == 0 {
			k.Resource = "leases"
		}
		if e := Put(t, s, k, "1"); e.Rev <= last {
			t.Fatalf("revision %d after %d", e.Rev, last)
		} else {
			last = e.Rev
		}
	}
}

func testList(t *testing.T, s store.Store) {
	for _, k := range []store.Key{key("b", "x"), key("a", "y"), key("a", "x"), key("a-b", "z")} {
		Put(t, s, k, k.Name)
	}
	for _, c := range []struct {
		sel  store.Selector
		want string
	}{
		{store.Selector{}, "a-b/z a/x a/y b/x"},
		{store.Selector{Namespace: "a"}, "a/x a/y"},
		{store.Selector{Namespace: "a", Name: "y"}, "a/y"},
		{store.Selector{Name: "x"}, "a/x b/x"},
		{store.Selector{Namespace: "none"}, ""},
		{store.Selector{Match: func(o store.Object) bool { return o.GetName() != "x" }}, "a-b/z a/y"},
	} {
		c.sel.Resource = "configmaps"
		entries, rev, err := s.List(t.Context(), c.sel)
		got := ""
		for _, e := range entries {
			got += " " + e.Key.Namespace + "/" + e.Key.Name
		}
		if len(got) > 0 {
			got = got[1:]
		}
		if err != nil || got != c.want || rev != s.Revision() {
			t.Errorf("%+v: got %q at %d, %v, want %q", c.sel, got, rev, err, c.want)
		}
	}
}

// names lists what sel selects.
func names(t *testing.T, s store.Store, sel store.Selector) string {
	t.Helper()
	sel.Resource = "configmaps"
	entries, _, err := s.List(t.Context(), sel)
	if err != nil {
		t.Fatalf("%+v: %v", sel, err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Key.Namespace+"/"+e.Key.Name+"="+value(e))
	}
	return strings.Join(out, " ")
}

// An object whose path differs from its name is found by its name.
func testPaths(t *testing.T, s store.Store) {
	all := store.Selector{Resource: "nodes"}
	ch, err := Watch(t.Context(), s, all, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	k := store.Key{Resource: "nodes", Name: "one"}
	want := Put(t, s, k, "1")
	if got, err := s.Get(t.Context(), k); err != nil || got.Key != k || got.Rev != want.Rev {
		t.Errorf("got %v, %v", got, err)
	}
	if got, _, err := s.List(t.Context(), all); err != nil || len(got) != 1 || got[0].Key != k {
		t.Errorf("listed %v, %v", got, err)
	}
	for ev := range ch {
		if !ev.Progress() {
			if ev.Key != k || ev.Rev != want.Rev {
				t.Errorf("watched %v", ev)
			}
			break
		}
	}
}

func testListPages(t *testing.T, s store.Store) {
	for _, k := range []store.Key{key("a", "x"), key("a", "y"), key("b", "x"), key("b", "y")} {
		Put(t, s, k, "1")
	}
	for _, c := range []struct {
		sel  store.Selector
		want string
	}{
		{store.Selector{Limit: 3}, "a/x=1 a/y=1 b/x=1"},
		{store.Selector{After: "a/y", Limit: 1}, "b/x=1"},
		{store.Selector{After: "b/y", Limit: 1}, ""},
		{store.Selector{After: "a/x", Namespace: "a"}, "a/y=1"},
		{store.Selector{After: "a/x", Limit: 1, Match: func(o store.Object) bool { return o.GetName() == "y" }}, "a/y=1"},
	} {
		if got := names(t, s, c.sel); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.sel, got, c.want)
		}
	}
}

func testListPast(t *testing.T, s store.Store) {
	Put(t, s, key("a", "kept"), "1")
	Put(t, s, key("a", "changed"), "1")
	then := Put(t, s, key("b", "removed"), "1").Rev
	Put(t, s, key("a", "changed"), "2")
	Put(t, s, key("a", "added"), "2")
	if _, err := s.Update(t.Context(), key("b", "removed"), remove); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, s, store.Selector{At: then}), "a/changed=1 a/kept=1 b/removed=1"; got != want {
		t.Errorf("at the earlier revision: got %q, want %q", got, want)
	}
	if got, want := names(t, s, store.Selector{}), "a/added=2 a/changed=2 a/kept=1"; got != want {
		t.Errorf("now: got %q, want %q", got, want)
	}
	if got, want := names(t, s, store.Selector{At: then, After: "a/kept"}), "b/removed=1"; got != want {
		t.Errorf("rest of the earlier revision: got %q, want %q", got, want)
	}
	sel := store.Selector{Resource: "configmaps", At: s.Revision() + 1000}
	if _, _, err := s.List(t.Context(), sel); !errors.Is(err, store.ErrFuture) {
		t.Errorf("a future revision: %v", err)
	}
	for i := range 1000 {
		Put(t, s, key("a", "changed"), strconv.Itoa(i))
	}
	forget(t, s)
	sel.At = then
	if _, _, err := s.List(t.Context(), sel); !errors.Is(err, store.ErrExpired) {
		t.Errorf("an expired revision: %v", err)
	}
}

// forget compacts the history of a store that does not limit it by itself.
func forget(t *testing.T, s store.Store) {
	t.Helper()
	if c, ok := s.(interface{ Compact(context.Context) error }); ok {
		if err := c.Compact(t.Context()); err != nil {
			t.Fatalf("Compact: %v", err)
		}
	}
}

func testClose(t *testing.T, s store.Store) {
	w := watch(t, s, store.Selector{}, s.Revision())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range w.ch {
	}
	k := key("a", "x")
	if _, err := s.Update(t.Context(), k, set(k, "1")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Update after Close: %v", err)
	}
}
