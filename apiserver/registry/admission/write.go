package admission

import "context"

// writeKey is the context key of writeContext.
type writeKey struct{}

// writeContext collects the functions that run at the end of one write.
type writeContext struct{ ended []func() }

// During returns the context of one write. The caller must call done when the write has succeeded or failed
// permanently. done runs the functions that were passed to OnEnd.
func During(ctx context.Context) (_ context.Context, done func()) {
	w := &writeContext{}
	return context.WithValue(ctx, writeKey{}, w), func() {
		for _, f := range w.ended {
			f()
		}
	}
}

// OnEnd calls f when the write of ctx has succeeded or failed. If ctx does not come from During, it returns false and
// never calls f.
func OnEnd(ctx context.Context, f func()) bool {
	w, _ := ctx.Value(writeKey{}).(*writeContext)
	if w != nil {
		w.ended = append(w.ended, f)
	}
	return w != nil
}
