package storetest

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/store"
)

// Watch returns the events of s.Watch as a channel, which is closed when ctx or the watch ends.
func Watch(ctx context.Context, s store.Store, sel store.Selector, rev int64) (<-chan *store.Event, error) {
	changes, err := s.Watch(ctx, sel, rev)
	if err != nil {
		return nil, err
	}
	out := make(chan *store.Event)
	go func() {
		defer close(out)
		changes.Each(ctx, func(ev *store.Event) bool {
			select {
			case out <- ev:
				return true
			case <-ctx.Done():
			case <-changes.Closed():
			}
			return false
		})
	}()
	return out, nil
}

// watching is a watch whose events the test reads one by one.
type watching struct {
	t  *testing.T
	ch <-chan *store.Event
}

func watch(t *testing.T, s store.Store, sel store.Selector, rev int64) watching {
	t.Helper()
	sel.Resource = "configmaps"
	ch, err := Watch(t.Context(), s, sel, rev)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	return watching{t, ch}
}

// timeout limits the wait for an event.
const timeout = 10 * time.Minute

func (w watching) next() *store.Event {
	w.t.Helper()
	select {
	case ev, ok := <-w.ch:
		if !ok {
			w.t.Fatal("the watch ended")
		}
		return ev
	case <-time.After(timeout):
		w.t.Fatal("no event")
	}
	return nil
}

func (w watching) want(name, old, next string) {
	w.t.Helper()
	ev := w.next()
	if ev.Key.Name != name || value(ev.Old) != old || value(ev.New) != next {
		w.t.Errorf("got %v %s→%s, want %s %s→%s", ev.Key, value(ev.Old), value(ev.New), name, old, next)
	}
}

func testWatchOrder(t *testing.T, s store.Store) {
	w := watch(t, s, store.Selector{}, s.Revision())
	only := watch(t, s, store.Selector{Namespace: "b"}, s.Revision())
	Put(t, s, key("a", "x"), "1")
	Put(t, s, key("b", "y"), "2")
	Put(t, s, key("a", "x"), "3")
	gone, err := s.Update(t.Context(), key("a", "x"), remove)
	if err != nil {
		t.Fatal(err)
	}
	w.want("x", "-", "1")
	w.want("y", "-", "2")
	w.want("x", "1", "3")
	last := w.next()
	if last.New != nil || last.Rev != gone.Rev || value(last.Gone()) != "3" || last.Gone().Rev != gone.Rev {
		t.Errorf("removal: %+v", last)
	}
	only.want("y", "-", "2")
}

func testWatchResume(t *testing.T, s store.Store) {
	Put(t, s, key("a", "1"), "1")
	from := Put(t, s, key("a", "2"), "2")
	Put(t, s, key("a", "3"), "3")
	Put(t, s, key("a", "4"), "4")
	w := watch(t, s, store.Selector{}, from.Rev)
	w.want("3", "-", "3")
	w.want("4", "-", "4")
}

func testWatchSelection(t *testing.T, s store.Store) {
	w := watch(t, s, store.Selector{Match: func(o store.Object) bool {
		return o.(*corev1.ConfigMap).Data["v"] == "in"
	}}, s.Revision())
	for _, v := range []string{"out", "in", "in2", "out", "in"} {
		Put(t, s, key("a", "x"), v)
	}
	w.want("x", "out", "in")
	w.want("x", "in", "in2")
	w.want("x", "out", "in")
}

func testWatchProgress(t *testing.T, s store.Store) {
	w := watch(t, s, store.Selector{Name: "never"}, s.Revision())
	for i := range 50 {
		Put(t, s, key("a", "x"), strconv.Itoa(i))
	}
	// The store sends progress every few hundred events; the test writes until it arrives.
	for i := range 10000 {
		select {
		case ev := <-w.ch:
			if !ev.Progress() && !ev.Lagged() {
				t.Errorf("got %+v for an object that was not written", ev)
			}
			return
		default:
			Put(t, s, key("a", "x"), "again"+strconv.Itoa(i))
		}
	}
	t.Error("no progress was reported")
}

func testWatchProgressAtOnce(t *testing.T, s store.Store) {
	w := watch(t, s, store.Selector{Name: "never", Progress: true}, s.Revision())
	for _, value := range []string{"1", "2"} {
		rev := Put(t, s, key("a", "x"), value).Rev
		ev := w.next()
		for ev.Progress() && ev.Rev < rev {
			ev = w.next()
		}
		if !ev.Progress() || ev.Rev != rev {
			t.Errorf("got %+v, want progress up to %d", ev, rev)
		}
	}
}

func testWatchReach(t *testing.T, s store.Store) {
	sel := store.Selector{Resource: "configmaps"}
	if _, err := Watch(t.Context(), s, sel, s.Revision()+1000); !errors.Is(err, store.ErrFuture) {
		t.Errorf("a future revision: %v", err)
	}
	started := s.Revision()
	first := Put(t, s, key("a", "x"), "first")
	if _, err := Watch(t.Context(), s, store.Selector{Resource: "secrets"}, started); err != nil {
		t.Errorf("a resource without objects, at a revision before a write to another resource: %v", err)
	}
	for i := range 1000 {
		Put(t, s, key("a", "x"), strconv.Itoa(i))
	}
	if _, err := Watch(t.Context(), s, sel, first.Rev); !errors.Is(err, store.ErrExpired) {
		t.Errorf("an expired revision: %v", err)
	}
}

func testWatchLag(t *testing.T, s store.Store) {
	w := watch(t, s, store.Selector{}, s.Revision())
	for i := range 1000 {
		Put(t, s, key("a", "x"), strconv.Itoa(i))
	}
	for want := 0; ; want++ {
		ev := w.next()
		if ev.Lagged() {
			break
		}
		if value(ev.New) != strconv.Itoa(want) {
			t.Fatalf("got %s after %d: an event was skipped", value(ev.New), want-1)
		}
	}
	if _, open := <-w.ch; open {
		t.Error("the watch continued after it lagged")
	}
}

func testWatchContext(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := Watch(ctx, s, store.Selector{Resource: "configmaps"}, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for range ch {
	}
}
