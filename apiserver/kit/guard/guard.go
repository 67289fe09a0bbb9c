// Package guard limits a panic to the part of the process in which it happens: other parts keep running.
//
//   - Call runs a function and returns its panic as an error.
//   - Group and Together run functions concurrently; the caller that waits gets their panics.
//   - Guard runs goroutines and handlers; it logs, counts and reports their panics in health checks.
//
// All goroutines of the process are started here, except those that the test lists. Servers of libraries start
// goroutines, too: net/http recovers panics of handlers without counting them, gRPC's and DNS' servers end the process.
// Their handlers go through a Guard.
package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Panic is a panic that was recovered.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Call calls f; a panic becomes an error of type *Panic.
func Call(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Panic: // raised again by Raise from another goroutine
			err = r
		default:
			err = &Panic{Value: r, Stack: debug.Stack()}
		}
	}()
	return f()
}

// Raise panics again if err is a Panic, so that it reaches the goroutine that can handle it.
func Raise(err error) {
	if p := (*Panic)(nil); errors.As(err, &p) {
		panic(p)
	}
}

// Group is an errgroup in which a panic is an error. The zero value is ready to use.
type Group struct {
	group  errgroup.Group
	cancel context.CancelFunc // nil: an error does not cancel the others
	panic  atomic.Pointer[Panic]
}

// With returns a Group whose first error cancels the context.
func With(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	return &Group{cancel: cancel}, ctx
}

// SetLimit limits how many functions run concurrently.
func (g *Group) SetLimit(n int) { g.group.SetLimit(n) }

// Do calls f on a new goroutine.
func (g *Group) Do(f func() error) {
	g.group.Go(func() error {
		err := Call(f)
		if p := (*Panic)(nil); errors.As(err, &p) {
			g.panic.CompareAndSwap(nil, p)
		}
		if err != nil && g.cancel != nil {
			g.cancel()
		}
		return err
	})
}

// Wait waits for all functions and returns the first error, or a panic if there was one: others may have failed because
// of it, and before it was recovered.
func (g *Group) Wait() error {
	err := g.group.Wait()
	if g.cancel != nil {
		g.cancel()
	}
	if p := g.panic.Load(); p != nil {
		return p
	}
	return err
}

// Together runs parts concurrently and waits for all of them. If one panics, the others are canceled, and
// Together panics.
func Together(ctx context.Context, parts ...func(context.Context)) {
	g, ctx := With(ctx)
	for _, part := range parts {
		g.Do(func() error { part(ctx); return nil })
	}
	Raise(g.Wait())
}

// Spawn calls f on a new goroutine; the channel then contains its error, or nil. The caller must read it: otherwise a
// panic is lost, and Guard.Spawn is the one to use.
func Spawn(f func() error) <-chan error {
	over := make(chan error, 1)
	var g sync.WaitGroup
	g.Go(func() { over <- Call(f) })
	return over
}
