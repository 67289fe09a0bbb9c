package evictor

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"monopod/apiserver/process/guard"
)

// Watch looks at once when the kernel says that memory is short: because somebody
// waits for some, or because a threshold is passed. It may be able to tell one, both
// or neither.
func (e *Evictor) Watch(ctx context.Context) {
	nobody := func() error { return errors.New("not watched") }
	pressure, usage := nobody, nobody
	if watch := e.WatchMemory; watch != nil {
		pressure = func() error { return watch(ctx, e.Poke) }
	}
	if watch := e.WatchUsage; watch != nil {
		usage = func() error { return watch(ctx, e.left, e.Poke) }
	}
	var first, err error
	guard.Together(ctx, func(context.Context) { first = pressure() }, func(context.Context) { err = usage() })
	if first != nil && err != nil && ctx.Err() == nil {
		e.Log.Info("the kernel does not tell when memory is short: it is looked at every 10 s only", zap.Errors("why", []error{first, err}))
	}
}

// expect tells the kernel how far the next threshold of memory is.
func (e *Evictor) expect(left int64) {
	select {
	case <-e.left: // nobody has taken the last one
	default:
	}
	select {
	case e.left <- left:
	default:
	}
}
