package outlive_test

import (
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
			rest := func() { events = append(events, "rest") }
			if !outlive.Later(r, rest) {
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
			outlive.Later(r, func() { panic(first) })
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
