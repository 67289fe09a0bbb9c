package flow

import (
	"context"
	"fmt"
	goruntime "runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/flow/fair"
	"monopod/apiserver/kit/bounded"
)

// A body uses memory three times: as it arrives (received), while it is converted or decoded, and as the object
// that the registry copies, validates and encodes. The total is estimated before decoding, and bodies wait until
// that much is available.
const (
	// lightBody is the maximum decoding cost of a light body, in bytes. Light bodies have their own memory
	// budget, so they never wait for heavy ones.
	lightBody = 256 << 10
	// heavyAtOnce is the maximum number of heavy bodies that are decoded concurrently. It is at most the number
	// of CPUs: more would only delay other requests.
	heavyAtOnce = 4
)

// budget limits the memory for request bodies.
type budget struct {
	weigher  *bounded.Weigher
	most     int         // maximum for one body, in bytes; 0 or less: no limit
	received *fair.Seats // bytes of received bodies that are not small
	light    *fair.Seats // bytes that decoding takes
	heavy    *fair.Seats
}

func newBudget(l Limits, c clock.Clock) budget {
	limit := func(bytes, perUser int) *fair.Seats {
		return fair.New(
			fair.Config{Seats: bytes, PerUser: perUser, Queue: queueLength, Wait: min(queueWait, l.RequestTimeout), Clock: c})
	}
	return budget{
		weigher:  &bounded.Weigher{},
		most:     l.MaxBodyMemory,
		received: limit(l.MaxBodyMemory/2, l.MaxBodyMemory/4),
		light:    limit(l.MaxBodyMemory/4, l.MaxBodyMemory/8),
		heavy:    limit(l.MaxBodyMemory, 0),
	}
}

// account is the share of the budget that one request uses. Only the request's goroutine may use it.
type account struct {
	codec.Account // of the request
	budget
	user     string
	received int
	decoding int
	seats    *fair.Seats // of decoding
}

func (b budget) open(ctx context.Context) (context.Context, *account) {
	a := &account{budget: b, user: auth.UserOf(ctx).Name}
	a.Account = codec.Account{Memory: a, Weigher: b.weigher}
	return codec.WithAccount(ctx, &a.Account), a
}

// Receive implements codec.Memory. Small bodies do not wait.
func (a *account) Receive(ctx context.Context, length int) error {
	if length <= codec.SmallBody || a.received > 0 {
		return nil
	}
	if !a.budget.received.Enter(ctx, a.user, length) {
		return errBusy(ctx)
	}
	a.received = length
	return nil
}

// Decode implements codec.Memory. It first returns the request's earlier amount, so that requests that wait for each
// other's memory cannot deadlock.
func (a *account) Decode(ctx context.Context, bytes int) error {
	if err := a.Check(bytes); err != nil {
		return err
	}
	a.decoded()
	seats := a.light
	if bytes > lightBody {
		seats, bytes = a.heavy, max(bytes, a.most/min(heavyAtOnce, goruntime.GOMAXPROCS(0)))
	}
	if !seats.Enter(ctx, a.user, bytes) {
		return errBusy(ctx)
	}
	a.seats, a.decoding = seats, bytes
	return nil
}

// Check implements codec.Memory.
func (a *account) Check(bytes int) error {
	if a.most <= 0 || bytes <= a.most {
		return nil
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"decoding the body would take %d MiB of memory, limit is %d MiB: send fewer or smaller values", bytes>>20,
		a.most>>20))
}

// decoded returns the memory that Decode took.
func (a *account) decoded() {
	if a.decoding > 0 {
		a.seats.Leave(a.user, a.decoding)
		a.decoding = 0
	}
}

// Close implements codec.Memory.
func (a *account) Close() {
	a.decoded()
	if a.received > 0 {
		a.budget.received.Leave(a.user, a.received)
		a.received = 0
	}
}

func errBusy(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return apierrors.NewTooManyRequests("Too many large request bodies are under way, please try again later.", 1)
}
