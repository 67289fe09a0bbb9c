package apiserver

import (
	"context"
	"fmt"
	"net/http"
	goruntime "runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/codec/bounded"
	"monopod/apiserver/codec/quantity"
	"monopod/apiserver/flow/fair"
)

// A body takes memory three times: as it arrives (received), while it is
// converted or decoded, and as the object that the registry copies, validates
// and encodes. What that comes to is known before it is decoded, so bodies wait
// until there is room for them.
const (
	// smallBody is the length up to which bodies do not wait for room before they are
	// read, in bytes.
	smallBody = 64 << 10
	// lightBody is what decoding a body may take to count as light, in bytes. Light
	// ones have room of their own: they never wait for heavy ones.
	lightBody = 256 << 10
	// copies is how many times an object exists until its write is answered: decoded,
	// copied, encoded.
	copies = 3
	// applyCopies is copies for server-side apply, which compares several versions.
	applyCopies = 6
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
	budget
	user     string
	received int
	decoding int
	room     *fair.Room // of decoding
}

type accountKey struct{}

func withAccount(ctx context.Context, b budget) (context.Context, *account) {
	a := &account{budget: b, user: auth.UserOf(ctx).Name}
	return context.WithValue(ctx, accountKey{}, a), a
}

// accountOf is the account in the context; nil for none, which bounds nothing.
func accountOf(ctx context.Context) *account {
	a, _ := ctx.Value(accountKey{}).(*account)
	return a
}

// receive waits until there is room for a body of that length.
func (a *account) receive(ctx context.Context, length int) error {
	if a == nil || length <= smallBody || a.received > 0 {
		return nil
	}
	if !a.budget.received.Enter(ctx, a.user, length) {
		return errBusy(ctx)
	}
	a.received = length
	return nil
}

// decode waits until there is room for decoding what takes so many bytes; what
// the request had before for that is given back first, so that nobody waits for
// more while others wait for what it has.
func (a *account) decode(ctx context.Context, bytes int) error {
	if a == nil {
		return nil
	}
	if err := a.checkSize(bytes); err != nil {
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

func (a *account) checkSize(bytes int) error {
	if a.most <= 0 || bytes <= a.most {
		return nil
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"decoding the body would take %d MiB of memory, limit is %d MiB: send fewer or smaller values", bytes>>20, a.most>>20))
}

// decoded gives back what decode took.
func (a *account) decoded() {
	if a != nil && a.decoding > 0 {
		a.room.Leave(a.user, a.decoding)
		a.decoding = 0
	}
}

// close gives everything back. It may be called again.
func (a *account) close() {
	if a == nil {
		return
	}
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

// admitJSON waits until there is room for decoding data into into, and whatever is
// made of it; 422 for what is nested too deep or has too long a list.
func (a *account) admitJSON(r *http.Request, data []byte, into any) error {
	if a == nil {
		return nil
	}
	bytes, err := a.weigher.JSON(data, into)
	if err == nil && quantity.Suspicious(data) { // which is looked at without a type
		var more int
		more, err = a.weigher.JSON(data, new(any))
		bytes += more
	}
	if err != nil {
		return errShape(err)
	}
	return a.decode(r.Context(), copies*bytes)
}

func (a *account) admitProtobuf(r *http.Request, data []byte, into any) error {
	if a == nil {
		return nil
	}
	bytes, err := a.weigher.Protobuf(data, into)
	if err != nil {
		return errShape(err)
	}
	return a.decode(r.Context(), copies*bytes)
}

// errShape is 422 for a body that no object looks like.
func errShape(err *field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{err})
}

// admitPatch waits until there is room for applying data, a patch, to current.
func (a *account) admitPatch(r *http.Request, typ types.PatchType, data, current []byte) error {
	if a == nil {
		return nil
	}
	bytes, err := a.weigher.JSON(data, new(any))
	if err != nil {
		return errShape(err)
	}
	stored, _ := a.weigher.JSON(current, new(any))
	cost := copies * (bytes + stored)
	switch typ {
	case types.JSONPatchType:
		cost += pathLength(data) * (len(data) + len(current))
	case types.ApplyYAMLPatchType:
		cost = applyCopies * (bytes + stored)
	}
	return a.decode(r.Context(), cost)
}

// pathLength is how many levels of an object a JSON patch opens at most, each of
// which keeps a text of its own.
func pathLength(patch []byte) int {
	most, n := 0, 0
	for _, c := range patch {
		switch c {
		case '"':
			n = 0
		case '/':
			n++
			most = max(most, n)
		}
	}
	return min(most, bounded.MaxDepth)
}

// check refuses what a patch made where the same would be refused as a body.
func (a *account) check(data []byte, into any) error {
	if a == nil {
		return nil
	}
	bytes, err := a.weigher.JSON(data, into)
	if err != nil {
		return errShape(err)
	}
	return a.checkSize(copies * bytes)
}
