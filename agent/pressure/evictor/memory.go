package evictor

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"monopod/apiserver/kit/guard"
)

// Watch makes Run check at once when the kernel reports memory pressure: tasks that wait for memory, or a crossed
// threshold. A kernel supports one, both or neither.
func (e *Evictor) Watch(ctx context.Context) {
	none := func() error { return errors.New("not watched") }
	pressure, usage := none, none
	if watch := e.WatchMemory; watch != nil {
		pressure = func() error { return watch(ctx, e.Poke) }
	}
	if watch := e.WatchUsage; watch != nil {
		usage = func() error { return watch(ctx, e.left, e.Poke) }
	}
	var first, err error
	guard.Together(ctx, func(context.Context) { first = pressure() }, func(context.Context) { err = usage() })
	if first != nil && err != nil && ctx.Err() == nil {
		e.Log.Info("the kernel does not report memory pressure: memory is checked only every 10 s",
			zap.Errors("why", []error{first, err}))
	}
}
