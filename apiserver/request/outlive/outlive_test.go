package outlive_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"monopod/apiserver/request/outlive"
)

// layer calls next, and notes its end.
func layer(name string, events *[]string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer outlive.Finally(r, func() { *events = append(*events, name) })
		next.ServeHTTP(w, r)
	})
}

// What a watch leaves to be done runs when its handlers have returned, then their ends, the inner one first; those of other requests run as
// the handlers return.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, url string
		want        []string
	}{
		{http.MethodGet, "/pods?watch=1", []string{"handled", "rest", "inner", "outer"}},
		{http.MethodGet, "/pods?limit=1", []string{"rest", "inner", "outer", "handled"}},
		{http.MethodPost, "/pods?watch=1", []string{"rest", "inner", "outer", "handled"}},
	} {
		var events []string
		watch := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rest := func() (over bool) { events = append(events, "rest"); return true }
			if outlive.Later(r, rest, nil) == nil {
				rest()
			}
		})
		inner := outlive.Handler(layer("outer", &events, layer("inner", &events, watch))) // within another one
		h := outlive.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner.ServeHTTP(w, r)
			events = append(events, "handled")
		}))
		if h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(c.method, c.url, nil)); !slices.Equal(events, c.want) {
			t.Errorf("%s %s: %v, want %v", c.method, c.url, events, c.want)
		}
	}
}

// A panic of what is left runs through the ends like that of a handler, and one of a handler runs the ends that there are.
func TestPanics(t *testing.T) {
	t.Parallel()
	const first, second = "first", "second"
	for _, early := range []bool{false, true} {
		var seen []any
		h := outlive.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outlive.Later(r, func() bool { panic(first) }, nil)
			q := outlive.Of(r)
			q.End(func(failure any) any { seen = append(seen, failure); return second })
			q.End(func(failure any) any { seen = append(seen, failure); return failure })
			if early {
				panic(first)
			}
		}))
		got := func() (p any) {
			defer func() { p = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/pods?watch=1", nil))
			return nil
		}()
		if got != second || !slices.Equal(seen, []any{first, second}) {
			t.Errorf("early %v: the ends got %v, and it panicked with %v", early, seen, got)
		}
	}
}

// kept is a response that a server keeps open.
type kept struct {
	http.ResponseWriter
	step func() bool
	gone func()
}

func (k *kept) Outlive(step func() bool, gone func()) func() {
	k.step, k.gone = step, gone
	return func() { step() }
}

func (*kept) Reserve(n int) bool { return n < 10 }

// Where the server can keep a response, each step runs where the request is resumed, and the ends follow the last one, or one that panics.
func TestSteps(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		var q *outlive.Request
		steps, ended := 0, 0
		w := &kept{ResponseWriter: httptest.NewRecorder()}
		outlive.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			q = outlive.Later(r, func() bool {
				if steps++; steps == 3 && panics {
					panic("third")
				}
				return steps == 3
			}, func() {})
			q.End(func(any) any { ended++; return nil })
		})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/pods?watch=1", nil))
		if ended != 0 || steps != 0 || w.gone == nil {
			t.Errorf("ended %d times after %d steps", ended, steps)
		}
		if w.step() || ended != 0 {
			t.Error("over after the first step")
		}
		q.Resume()
		if q.Resume(); ended != 1 || steps != 3 || !q.Reserve(9) || q.Reserve(10) {
			t.Errorf("ended %d times after %d steps", ended, steps)
		}
	}
}

// Otherwise the request keeps its goroutine, which makes all steps, also the last one after the client has left.
func TestStepsAlone(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	steps := 0
	var q *outlive.Request
	q = outlive.Alone(func() bool {
		switch steps++; steps {
		case 1:
			q.Resume()
		case 2:
			leave()
		}
		return steps == 3
	}, func() { q.Resume() })
	if q.Run(ctx.Done()); steps != 3 || !q.Reserve(1<<30) {
		t.Errorf("%d steps", steps)
	}
}

// A handler may notice that the client has left: what is left to be done learns that.
func TestHandlerEndsRequest(t *testing.T) {
	t.Parallel()
	left := false
	outlive.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		var q *outlive.Request
		q = outlive.Later(r.WithContext(ctx), func() bool { cancel(); return left }, func() { left = true; q.Resume() })
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/pods?watch=1", nil).WithContext(t.Context()))
	if !left {
		t.Error("it is not told")
	}
}
