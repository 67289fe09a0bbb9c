package admission

import "context"

// writeKey holds the write that a context is about.
type writeKey struct{}

// write is one write from its first check to its end.
type write struct{ ended []func() }

// During returns the context of one write. done lets go of what plugins hold
// until it has ended, well or not; a write that runs again holds on.
func During(ctx context.Context) (_ context.Context, done func()) {
	w := &write{}
	return context.WithValue(ctx, writeKey{}, w), func() {
		for _, f := range w.ended {
			f()
		}
	}
}

// OnEnd calls f when the write that ctx is about has ended, well or not. It reports
// false, and never calls f, if ctx is about none.
func OnEnd(ctx context.Context, f func()) bool {
	w, _ := ctx.Value(writeKey{}).(*write)
	if w != nil {
		w.ended = append(w.ended, f)
	}
	return w != nil
}
