package pull

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// Limits bounds how many images are pulled at a time. The zero value is upstream's
// default: one after another.
type Limits struct {
	Parallel    bool // more than one at a time
	MaxParallel int  // with Parallel; 0: any number
}

// Flags adds kubelet's flags.
func (l *Limits) Flags(f *pflag.FlagSet) {
	f.Var((*serial)(&l.Parallel), "serialize-image-pulls", "Pull images one at a time.")
	f.Lookup("serialize-image-pulls").NoOptDefVal = "true"
	f.IntVar(&l.MaxParallel, "max-parallel-image-pulls", 0,
		"Maximum number of images pulled in parallel; requires --serialize-image-pulls=false. 0: no limit.")
}

// Check validates the flags.
func (l *Limits) Check() error {
	switch {
	case l.MaxParallel < 0:
		return fmt.Errorf("--max-parallel-image-pulls must not be negative, got %d", l.MaxParallel)
	case l.MaxParallel > 1 && !l.Parallel:
		return errors.New("--max-parallel-image-pulls: more than 1 needs --serialize-image-pulls=false")
	}
	return nil
}

// slots returns a semaphore for pulls; nil: no limit.
func (l Limits) slots() chan struct{} {
	switch {
	case !l.Parallel:
		return make(chan struct{}, 1)
	case l.MaxParallel > 0:
		return make(chan struct{}, l.MaxParallel)
	}
	return nil
}

// take waits for a slot and returns the function that releases it.
func take(ctx context.Context, slots chan struct{}) (release func(), err error) {
	if slots == nil {
		return func() {}, nil
	}
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serial is a flag with the inverse of the stored value.
type serial bool

func (s *serial) String() string { return fmt.Sprint(!bool(*s)) }

func (s *serial) Type() string { return "bool" }

func (s *serial) Set(text string) error {
	switch text {
	case "true":
		*s = false
	case "false":
		*s = true
	default:
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return nil
}
