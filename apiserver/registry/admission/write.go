package admission

import "context"

// writeKey is the context key of the write.
type writeKey struct{}

// writeContext is one write, from admission to its end.
type writeContext struct{ ended []func() }

// During returns the context of one write. done must be called when the write has succeeded
// or failed permanently; it runs the functions of OnEnd.
func During(ctx context.Context) (_ context.Context, done func()) {
	w := &writeContext{}
	return context.WithValue(ctx, writeKey{}, w), func() {
		for _, f := range w.ended {
			f()
		}
	}
}

// OnEnd calls f when the write of ctx has succeeded or failed. It returns false, and never
// calls f, if ctx is not the context of a write.
func OnEnd(ctx context.Context, f func()) bool {
	w, _ := ctx.Value(writeKey{}).(*writeContext)
	if w != nil {
		w.ended = append(w.ended, f)
	}
	return w != nil
}
