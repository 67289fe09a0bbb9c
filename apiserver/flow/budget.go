package flow

import (
	"context"
	"fmt"
	goruntime "runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/codec/bounded"
	"monopod/apiserver/flow/fair"
)

// A body takes memory three times: as it arrives (received), while it is
// converted or decoded, and as the object that the registry copies, validates
// and encodes. What that comes to is known before it is decoded, so bodies wait
// until there is room for them.
const (
	// lightBody is what decoding a body may take to count as light, in bytes. Light
	// ones have room of their own: they never wait for heavy ones.
	lightBody = 256 << 10
	// heavyAtOnce is how many heavy bodies are decoded at once, at most, and no more
	// than there are processors: they would only keep other requests from one.
	heavyAtOnce = 4
)

// budget is the memory for the bodies under way.
type budget struct {
	weigher  *bounded.Weigher
	most     int        // of one body, in bytes; 0 or less: any
	received *fair.Room // bytes of bodies that are not small
	light    *fair.Room // bytes that decoding takes
	heavy    *fair.Room
}

func newBudget(l Limits, c clock.Clock) budget {
	room := func(bytes, perUser int) *fair.Room {
		return fair.New(fair.Config{Seats: bytes, PerUser: perUser, Queue: queueLength, Wait: min(queueWait, l.RequestTimeout), Clock: c})
	}
	return budget{
		weigher:  &bounded.Weigher{},
		most:     l.MaxBodyMemory,
		received: room(l.MaxBodyMemory/2, l.MaxBodyMemory/4),
		light:    room(l.MaxBodyMemory/4, l.MaxBodyMemory/8),
		heavy:    room(l.MaxBodyMemory, 0),
	}
}

// account is what one request has of the budget. It belongs to the request's
// goroutine.
type account struct {
	codec.Account // whose memory it is
	budget
	user     string
	received int
	decoding int
	room     *fair.Room // of decoding
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

// Decode implements codec.Memory. What the request had before is given back first,
// so that nobody waits for more while others wait for what it has.
func (a *account) Decode(ctx context.Context, bytes int) error {
	if err := a.Check(bytes); err != nil {
		return err
	}
	a.decoded()
	room := a.light
	if bytes > lightBody {
		room, bytes = a.heavy, max(bytes, a.most/min(heavyAtOnce, goruntime.GOMAXPROCS(0)))
	}
	if !room.Enter(ctx, a.user, bytes) {
		return errBusy(ctx)
	}
	a.room, a.decoding = room, bytes
	return nil
}

// Check implements codec.Memory.
func (a *account) Check(bytes int) error {
	if a.most <= 0 || bytes <= a.most {
		return nil
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"decoding the body would take %d MiB of memory, limit is %d MiB: send fewer or smaller values", bytes>>20, a.most>>20))
}

// decoded gives back what Decode took.
func (a *account) decoded() {
	if a.decoding > 0 {
		a.room.Leave(a.user, a.decoding)
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
