package fake

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/guard"
)

// Errors that Config.Fail returns to simulate a runtime that is killed and restarted.
var (
	// ErrLost lets the call take effect and loses its answer: the caller sees the
	// connection break. Read-only calls have no effect.
	ErrLost = errors.New("fake: lost answer")
	// ErrTaskExists simulates a runtime that died after it started the process and before it stored the start. As with
	// containerd, the container has failed to start, while its process runs until the container is removed.
	ErrTaskExists = errors.New("fake: task exists")
)

// errBroken is the error of a call during which the runtime died.
var errBroken = status.Error(codes.Unavailable, "error reading from server: EOF")

// errClosed is the answer to every call after Close.
var errClosed = status.Error(codes.Unavailable, "the runtime is closed")

// Gate begins every call: it simulates latency and faults, and fails calls after the end of the runtime. It also starts
// the goroutines of the runtime, and ends them.
type Gate struct {
	Clock   clock.Clock
	latency time.Duration
	block   func(ctx context.Context, op, id string)
	fail    func(op, id string) error

	Context context.Context // of every process and every reader of events; Close ends it
	cancel  context.CancelFunc

	mu    sync.Mutex // guards against adding tasks after Context has ended
	tasks sync.WaitGroup
}

// Close ends every process and every reader of events, and waits for them.
func (g *Gate) Close() {
	g.mu.Lock()
	g.cancel()
	g.mu.Unlock()
	g.tasks.Wait()
}

// Spawn starts a goroutine that Close waits for. It returns errClosed after Close.
func (g *Gate) Spawn(name string, f func()) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Context.Err() != nil {
		return errClosed
	}
	(*guard.Guard)(nil).Go(&g.tasks, name, f)
	return nil
}

// Begin begins a read-only call.
func (g *Gate) Begin(ctx context.Context, op, id string) error {
	err := g.enter(ctx, op, id)
	if errors.Is(err, ErrLost) {
		return errBroken
	}
	return err
}

// enter begins a call. It returns the error of Config.Fail, which may be ErrLost.
func (g *Gate) enter(ctx context.Context, op, id string) error {
	if g.block != nil {
		g.block(ctx, op, id)
	}
	if g.latency > 0 {
		select {
		case <-ctx.Done():
		case <-g.Clock.After(g.latency):
		}
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if g.Context.Err() != nil {
		return errClosed
	}
	if g.fail != nil {
		return g.fail(op, id)
	}
	return nil
}

// Answer makes a call that changes state. With ErrLost, the change takes effect and the answer is lost.
func Answer[T any](ctx context.Context, g *Gate, op, id string, call func() (T, error)) (T, error) {
	var none T
	err := g.enter(ctx, op, id)
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

// Answer makes a call without a result.
func (g *Gate) Answer(ctx context.Context, op, id string, call func() error) error {
	_, err := Answer(ctx, g, op, id, func() (struct{}, error) { return struct{}{}, call() })
	return err
}
