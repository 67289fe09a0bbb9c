package pull

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// Limits limits how many images are pulled in parallel. The zero value is upstream's default: one at a time.
type Limits struct {
	Parallel    bool // pull more than one image at a time
	MaxParallel int  // with Parallel; 0: no limit
}

// Flags adds kubelet's flags.
func (l *Limits) Flags(f *pflag.FlagSet) {
	f.Var((*serializeFlag)(&l.Parallel), "serialize-image-pulls", "Pull images one at a time.")
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

// acquire waits for a slot and returns the function that releases it.
func acquire(ctx context.Context, slots chan struct{}) (release func(), err error) {
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

// serializeFlag is the value of --serialize-image-pulls: the inverse of the stored value.
type serializeFlag bool

func (s *serializeFlag) String() string { return fmt.Sprint(!bool(*s)) }

func (s *serializeFlag) Type() string { return "bool" }

func (s *serializeFlag) Set(text string) error {
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
