package store_test

import (
	"errors"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"monopod/store"
	"monopod/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store {
		return store.NewMemory(storetest.Config(), nil, nil, 0)
	})
}

// counting is a log that only counts.
type counting struct{ commits, records int }

func (c *counting) Commit(records []store.Record, _ int64) error {
	c.commits++
	c.records += len(records)
	return nil
}

func (c *counting) Close() error { return nil }

// Volatile writes, a week of leases and events, cost the log one reservation of
// revisions and nothing else.
func TestVolatileWritesReachNoDisk(t *testing.T) {
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

// What is forgotten cannot be watched from any more; who has read it goes on.
func TestForget(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(storetest.Config(), nil, nil, 0)
	defer s.Close()
	k := store.Key{Resource: "configmaps", Namespace: "ns", Name: "a"}
	sel := store.Selector{Resource: "configmaps"}
	first := storetest.Put(t, s, k, "1").Rev
	reader, err := s.Watch(t.Context(), sel, first)
	if err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, s, k, "2")
	<-reader
	newest := s.Forget(0)
	if _, err := s.Watch(t.Context(), sel, first); err != nil {
		t.Errorf("forgotten too early: %v", err)
	}
	third := storetest.Put(t, s, k, "3").Rev
	if ev := <-reader; ev.Rev != third {
		t.Errorf("read %d, want %d", ev.Rev, third)
	}
	s.Forget(newest)
	if _, err := s.Watch(t.Context(), sel, first); !errors.Is(err, store.ErrExpired) {
		t.Errorf("not forgotten: %v", err)
	}
	if ch, err := s.Watch(t.Context(), sel, newest); err != nil || (<-ch).Rev != third {
		t.Errorf("what is newer was forgotten: %v", err)
	}
	s.Forget(third)
	s.Forget(s.Revision())
	if fourth := storetest.Put(t, s, k, "4").Rev; (<-reader).Rev != fourth {
		t.Error("who had read everything lost the next event")
	}
}
