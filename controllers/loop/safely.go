package loop

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// PanicError is a recovered panic.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Safely calls f and turns a panic into a *PanicError.
func Safely(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *PanicError: // carried over from another goroutine by Each
			err = r
		default:
			err = &PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	return f()
}

// Each calls f for every item, at most limit at a time, waits for all and
// returns the errors that were not nil. A panic in f is raised in the caller.
func Each[T any](limit int, items []T, f func(T) error) []error {
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex // guards errs and panicked
		errs     []error
		panicked *PanicError
		slots    = make(chan struct{}, max(limit, 1))
	)
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := Safely(func() error { return f(item) })
			mu.Lock()
			defer mu.Unlock()
			if p := (*PanicError)(nil); errors.As(err, &p) {
				panicked = p
			} else if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	if panicked != nil {
		panic(panicked)
	}
	return errs
}
