package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/store"
	"monopod/store/storetest"
)

// even selects the objects with an even value.
func even(o store.Object) bool {
	n, err := strconv.Atoi(o.(*corev1.ConfigMap).Data["v"])
	return err == nil && n%2 == 0
}

// mirror is what a follower knows; it checks that every event begins with that.
type mirror struct {
	t   *testing.T
	sel store.Selector

	known   map[string]*store.Entry
	reached int64
	events  int
}

func (m *mirror) list(entries []*store.Entry, rev int64) {
	m.known, m.reached = map[string]*store.Entry{}, rev
	for _, e := range entries {
		m.known[e.Key.Name] = e
	}
}

func (m *mirror) each(ev *store.Event) {
	if ev.Progress() {
		if ev.Rev <= m.reached {
			m.t.Errorf("reached %d after %d", ev.Rev, m.reached)
		}
		m.reached = ev.Rev
		return
	}
	m.events++
	name := ev.Key.Name
	if old := m.known[name]; m.sel.Matches(ev.Old) && ev.Old != old || !m.sel.Matches(ev.Old) && old != nil {
		m.t.Errorf("%s: an event from %+v, known is %+v", name, ev.Old, old)
	}
	delete(m.known, name)
	if m.sel.Matches(ev.New) {
		m.known[name] = ev.New
	}
}

// randomly writes a random object: it creates, changes or removes it.
func randomly(t *testing.T, s *store.Memory, r *rand.Rand) {
	key := store.Key{Resource: "configmaps", Namespace: "ns", Name: fmt.Sprint("c", r.IntN(12))}
	if r.IntN(3) > 0 {
		storetest.Put(t, s, key, strconv.Itoa(r.IntN(1000)))
		return
	}
	_, err := s.Update(t.Context(), key, func(store.Object) (store.Object, error) { return nil, nil })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}

// A follower that is often slower than the history sees a gapless sequence for each object, and ends with the state of
// the store.
func TestFollow(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		for _, sel := range []store.Selector{{}, {Match: even}, {Name: "c3"}} {
			r := rand.New(rand.NewPCG(seed, 0))
			cfg := storetest.Config()
			cfg.History = 1 + r.IntN(20)
			s := store.NewMemory(cfg, nil, nil, 0)
			for range r.IntN(10) {
				randomly(t, s, r)
			}
			follow(t, s, r, sel)
			s.Close()
		}
	}
}

// follow follows s and writes to it at the same time, at random, until it has seen some thousand changes.
func follow(t *testing.T, s *store.Memory, r *rand.Rand, sel store.Selector) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sel.Resource = "configmaps"
	m := &mirror{t: t, sel: sel}
	rounds := 0
	write := func() {
		for range r.IntN(40) { // often more than the history holds
			randomly(t, s, r)
			if r.IntN(50) == 0 {
				s.Forget(s.Revision() - r.Int64N(5))
			}
		}
	}
	err := s.Follow(ctx, sel, func(entries []*store.Entry, rev int64) {
		m.list(entries, rev)
		for s.Newest(sel.Resource) <= rev {
			randomly(t, s, r)
		}
	}, func(ev *store.Event) {
		if m.each(ev); !ev.Progress() {
			return
		}
		if rounds++; rounds < 100 {
			write()
		}
		if m.reached == s.Newest(sel.Resource) {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, _, err := s.List(t.Context(), sel)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*store.Entry{}
	for _, e := range entries {
		want[e.Key.Name] = e
	}
	if !maps.Equal(m.known, want) {
		t.Errorf("%+v, history of %d events: known are %v, want %v", sel, m.events, slices.Sorted(maps.Keys(m.known)), slices.Sorted(maps.Keys(want)))
	}
}

// What a follower misses is one event for each object: not the states in between, and nothing of an object that came and
// went.
func TestFollowSumsUp(t *testing.T) {
	t.Parallel()
	cfg := storetest.Config()
	cfg.History = 2
	s := store.NewMemory(cfg, nil, nil, 0)
	defer s.Close()
	put := func(name, value string) {
		storetest.Put(t, s, store.Key{Resource: "configmaps", Namespace: "ns", Name: name}, value)
	}
	remove := func(name string) {
		_, err := s.Update(t.Context(), store.Key{Resource: "configmaps", Namespace: "ns", Name: name}, func(store.Object) (store.Object, error) { return nil, nil })
		if err != nil {
			t.Error(err)
		}
	}
	put("changed", "1")
	put("removed", "1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	value := func(e *store.Entry) string {
		if e == nil {
			return "-"
		}
		return e.Object.(*corev1.ConfigMap).Data["v"]
	}
	err := s.Follow(ctx, store.Selector{Resource: "configmaps"}, func([]*store.Entry, int64) {
		put("changed", "2")
		put("brief", "1")
		put("new", "1")
		remove("brief")
		remove("removed")
		put("new", "2")
		put("changed", "3")
	}, func(ev *store.Event) {
		if ev.Progress() {
			cancel()
			return
		}
		got = append(got, ev.Key.Name+" "+value(ev.Old)+"→"+value(ev.New))
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"removed 1→-", "new -→2", "changed 1→3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Follow ends with the store.
func TestFollowEnds(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(storetest.Config(), nil, nil, 0)
	none := func(*store.Event) { t.Error("an event") }
	err := s.Follow(t.Context(), store.Selector{Resource: "configmaps"}, func([]*store.Entry, int64) { s.Close() }, none)
	if err != nil {
		t.Error(err)
	}
	if err := s.Follow(t.Context(), store.Selector{Resource: "configmaps"}, nil, none); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
