package store_test

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"monopod/store"
	"monopod/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store {
		return store.NewMemory(storetest.Config(), nil, nil, 0)
	})
}

// counting is a log that only counts commits and records.
type counting struct{ commits, records int }

func (c *counting) Commit(records []store.Record, _ int64) error {
	c.commits++
	c.records += len(records)
	return nil
}

func (c *counting) Check() error                        { return nil }
func (c *counting) Rewrite([]store.Record, int64) error { return nil }
func (c *counting) Close() error                        { return nil }

// For a week of volatile writes, leases and events, the log has only one reservation of revisions.
func TestVolatileWritesAreNotStored(t *testing.T) {
	t.Parallel()
	log := &counting{}
	s := store.NewMemory(storetest.Config(), log, nil, 0)
	lease := store.Key{Resource: "leases", Namespace: "ns", Name: "node"}
	for i := range 60000 {
		storetest.Put(t, s, lease, strconv.Itoa(i))
	}
	if log.commits != 1 || log.records != 0 {
		t.Errorf("%d commits of %d records, want the one reservation", log.commits, log.records)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if log.commits != 2 || log.records != 1 {
		t.Errorf("a clean stop made %d commits of %d records in all, want the lease saved", log.commits, log.records)
	}
}

// On one processor, writers that are ready at the same time share commits.
func TestCommitsAreSharedOnOneProcessor(t *testing.T) { // not parallel: it changes GOMAXPROCS
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const writers, writes = 32, 50
	log := &counting{}
	s := store.NewMemory(storetest.Config(), log, nil, 0)
	var running sync.WaitGroup
	for i := range writers {
		running.Go(func() {
			for n := range writes {
				storetest.Put(t, s, store.Key{Resource: "configmaps", Namespace: "ns", Name: strconv.Itoa(i)}, strconv.Itoa(n))
			}
		})
	}
	running.Wait()
	if log.records != writers*writes || log.commits > log.records/4 {
		t.Errorf("%d commits of %d records, want at most a fourth", log.commits, log.records)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A selector that panics ends only its own watch.
func TestPanicInSelector(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(storetest.Config(), nil, nil, 0)
	defer s.Close()
	bad, err := storetest.Watch(t.Context(), s,
		store.Selector{Resource: "configmaps", Match: func(store.Object) bool { panic("boom") }}, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	good, err := storetest.Watch(t.Context(), s, store.Selector{Resource: "configmaps"}, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	rev := storetest.Put(t, s, store.Key{Resource: "configmaps", Namespace: "ns", Name: "a"}, "1").Rev
	if ev, ok := <-bad; !ok || !ev.Lagged() {
		t.Errorf("got %+v, %v", ev, ok)
	}
	if ev, ok := <-bad; ok {
		t.Errorf("the watch continues with %+v", ev)
	}
	if ev := <-good; ev.Rev != rev {
		t.Errorf("another watch reads %+v", ev)
	}
}

// A watch cannot start in forgotten history; a reader that has read everything continues.
func TestForget(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(storetest.Config(), nil, nil, 0)
	defer s.Close()
	k := store.Key{Resource: "configmaps", Namespace: "ns", Name: "a"}
	sel := store.Selector{Resource: "configmaps"}
	first := storetest.Put(t, s, k, "1").Rev
	reader, err := storetest.Watch(t.Context(), s, sel, first)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, s, k, "2")
	<-reader
	newest := s.Forget(0)
	if _, err := storetest.Watch(t.Context(), s, sel, first); err != nil {
		t.Errorf("forgotten too early: %v", err)
	}
	third := storetest.Put(t, s, k, "3").Rev
	if ev := <-reader; ev.Rev != third {
		t.Errorf("read %d, want %d", ev.Rev, third)
	}
	s.Forget(newest)
	if _, err := storetest.Watch(t.Context(), s, sel, first); !errors.Is(err, store.ErrExpired) {
		t.Errorf("not forgotten: %v", err)
	}
	if ch, err := storetest.Watch(t.Context(), s, sel, newest); err != nil || (<-ch).Rev != third {
		t.Errorf("newer events were forgotten: %v", err)
	}
	sel.At = third
	if _, _, err := s.List(t.Context(), sel); err != nil {
		t.Errorf("a list of the present state failed: %v", err)
	}
	s.Forget(third)
	storetest.Put(t, s, store.Key{Resource: "nodes", Name: "a"}, "1")
	if _, _, err := s.List(t.Context(), sel); err != nil {
		t.Errorf("forgotten too early: %v", err)
	}
	s.Forget(s.Revision())
	if _, _, err := s.List(t.Context(), sel); !errors.Is(err, store.ErrExpired) {
		t.Errorf("a list of a forgotten revision: %v", err)
	}
	if fourth := storetest.Put(t, s, k, "4").Rev; (<-reader).Rev != fourth {
		t.Error("a reader that had read everything lost the next event")
	}
}

// explosive is an object that panics in the writer.
type explosive struct{ *corev1.ConfigMap }

func (explosive) SetResourceVersion(string) { panic("boom") }

func (e explosive) DeepCopyObject() apiruntime.Object { return e }

// explosiveLog panics in a commit.
type explosiveLog struct {
	counting
	panics bool
}

func (l *explosiveLog) Commit(records []store.Record, reserved int64) error {
	if l.panics {
		panic("boom")
	}
	return l.counting.Commit(records, reserved)
}

// panics reports whether f panicked.
func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// A panic in a change, in an object or in the log fails only one write.
func TestPanicsDoNotStopOthers(t *testing.T) {
	t.Parallel()
	log := &explosiveLog{}
	s := store.NewMemory(storetest.Config(), log, nil, 0)
	defer s.Close()
	k := store.Key{Resource: "configmaps", Namespace: "ns", Name: "a"}
	before := storetest.Put(t, s, k, "1").Rev
	for name, change := range map[string]store.Change{
		"change": func(store.Object) (store.Object, error) { panic("boom") },
		"object": func(store.Object) (store.Object, error) { return explosive{&corev1.ConfigMap{}}, nil },
		"log": func(store.Object) (store.Object, error) {
			log.panics = true
			return &corev1.ConfigMap{}, nil
		},
	} {
		if !panics(func() { s.Update(t.Context(), k, change) }) {
			t.Errorf("%s: no panic", name)
		}
		log.panics = false
		after := storetest.Put(t, s, k, name).Rev
		if after <= before {
			t.Errorf("%s: revision %d after %d", name, after, before)
		}
		before = after
	}
}

// Writes in the same batch as one that panics get a response.
func TestPanicFailsItsBatch(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(storetest.Config(), nil, nil, 0)
	defer s.Close()
	var writers sync.WaitGroup
	for i := range 50 {
		writers.Go(func() {
			k := store.Key{Resource: "configmaps", Namespace: "ns", Name: strconv.Itoa(i)}
			panics(func() {
				_, err := s.Update(t.Context(), k, func(store.Object) (store.Object, error) {
					if i%5 == 0 {
						return explosive{&corev1.ConfigMap{}}, nil
					}
					return &corev1.ConfigMap{}, nil
				})
				if err != nil && !strings.Contains(err.Error(), "panic") {
					t.Error(err)
				}
			})
		})
	}
	writers.Wait()
	storetest.Put(t, s, store.Key{Resource: "configmaps", Namespace: "ns", Name: "last"}, "1")
}

// TestNewest: the last change of each resource, including changes before the start.
func TestNewest(t *testing.T) {
	t.Parallel()
	m := store.NewMemory(storetest.Config(), nil, nil, 0)
	defer m.Close()
	if n := m.Newest("configmaps"); n != 0 {
		t.Errorf("%d before the first change", n)
	}
	storetest.Put(t, m, store.Key{Resource: "nodes", Name: "x"}, "1")
	first := storetest.Put(t, m, store.Key{Resource: "configmaps", Namespace: "a", Name: "x"}, "1")
	if n := m.Newest("configmaps"); n != first.Rev {
		t.Errorf("%d, want %d", n, first.Rev)
	}
	again := store.NewMemory(storetest.Config(), nil, []*store.Entry{first}, first.Rev+10)
	defer again.Close()
	if n := again.Newest("configmaps"); n != first.Rev {
		t.Errorf("after a restart %d, want %d", n, first.Rev)
	}
}
