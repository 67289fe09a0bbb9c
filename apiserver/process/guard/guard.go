// Package guard keeps a panic to the part of the process that it happens in: the others
// go on.
//
//   - Call: a function whose panic is an error.
//   - Group, Together: functions side by side, whose panics come to who waits for them.
//   - Guard: goroutines whose panics are logged, counted and shown in health.
//
// No goroutine of the agent is started elsewhere; a test holds that.
package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Panic is a panic that was recovered.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Call calls f; a panic in it is an error of type *Panic.
func Call(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Panic: // carried over from another goroutine by Raise
			err = r
		default:
			err = &Panic{Value: r, Stack: debug.Stack()}
		}
	}()
	return f()
}

// Raise panics with the panic that err is, if it is one: in the goroutine that is
// recovered by those who can do something about it.
func Raise(err error) {
	if p := (*Panic)(nil); errors.As(err, &p) {
		panic(p)
	}
}

// Group is an errgroup in which a panic is an error. The zero value works.
type Group struct {
	group  errgroup.Group
	cancel context.CancelFunc // nil: an error does not end the others
}

// With is a Group whose first error ends the context, and with it the others.
func With(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	return &Group{cancel: cancel}, ctx
}

// SetLimit bounds how many functions run at a time.
func (g *Group) SetLimit(n int) { g.group.SetLimit(n) }

// Do calls f on a goroutine of its own.
func (g *Group) Do(f func() error) {
	g.group.Go(func() error {
		err := Call(f)
		if err != nil && g.cancel != nil {
			g.cancel()
		}
		return err
	})
}

// Wait waits for all and returns the first error.
func (g *Group) Wait() error {
	err := g.group.Wait()
	if g.cancel != nil {
		g.cancel()
	}
	return err
}

// Together runs the parts of something side by side and waits for all of them. When
// one panics, the others are canceled, and the panic goes on here.
func Together(ctx context.Context, parts ...func(context.Context)) {
	g, ctx := With(ctx)
	for _, part := range parts {
		g.Do(func() error { part(ctx); return nil })
	}
	Raise(g.Wait())
}

// Spawn calls f on a goroutine of its own; its error, or nil, is what the channel
// then holds.
func Spawn(f func() error) <-chan error {
	over := make(chan error, 1)
	var g sync.WaitGroup
	g.Go(func() { over <- Call(f) })
	return over
}
