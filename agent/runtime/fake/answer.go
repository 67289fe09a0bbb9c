package fake

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors that Config.Fail returns for a runtime that is killed and comes back.
var (
	// ErrLost lets the call take effect, and its answer be lost: the caller sees the
	// connection break. Calls that only look have no effect.
	ErrLost = errors.New("fake: lost answer")
	// ErrTaskExists has StartContainer find that the container's process was started
	// by a runtime that died before it wrote that down. As in containerd the container
	// is then one that could not start, though its process runs until it is removed.
	ErrTaskExists = errors.New("fake: task exists")
)

// errBroken is what a caller sees of a runtime that dies.
var errBroken = status.Error(codes.Unavailable, "error reading from server: EOF")

// answer is a call that changes something.
func answer[T any](ctx context.Context, r *Runtime, op, id string, call func() (T, error)) (T, error) {
	var none T
	err := r.enter(ctx, op, id)
	lost := errors.Is(err, ErrLost)
	if err != nil && !lost {
		return none, err
	}
	out, err := call()
	if lost {
		return none, errBroken
	}
	return out, err
}

func answerErr(ctx context.Context, r *Runtime, op, id string, call func() error) error {
	_, err := answer(ctx, r, op, id, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// taskExists is StartContainer for a container whose process runs behind the
// runtime's back.
func (r *Runtime) taskExists(id string) error {
	if err := r.startContainer(id); err != nil {
		return err
	}
	c, err := r.lookup(id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.stray = true
	c.exited(128, "StartError", r.clock.Now())
	c.startedAt = time.Time{}
	c.message = "failed to create containerd task: task " + c.id + ": already exists: unknown"
	return status.Error(codes.Unknown, c.message)
}
