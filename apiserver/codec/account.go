package codec

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/codec/bounded"
	"monopod/apiserver/codec/quantity"
)

const (
	// copies is how many times an object exists until its write is answered: decoded,
	// copied, encoded.
	copies = 3
	// applyCopies is copies for server-side apply, which compares several versions.
	applyCopies = 6
)

// Memory is where the bodies of requests get room.
type Memory interface {
	// Receive waits until there is room for a body of that length, in bytes.
	Receive(ctx context.Context, length int) error
	// Decode waits until there is room for decoding what takes so many bytes; it
	// replaces what the request had for that before.
	Decode(ctx context.Context, bytes int) error
	// Check is 413 for what there will never be room for.
	Check(bytes int) error
	// Close gives everything back. It may be called again.
	Close()
}

// Account is what one request may take for its body. A nil one bounds nothing.
type Account struct {
	Memory  Memory
	Weigher *bounded.Weigher
}

// WithAccount returns a context whose request's body is decoded on a.
func WithAccount(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// receive waits until there is room for a body of that length.
func (a *Account) receive(ctx context.Context, length int) error {
	if a == nil {
		return nil
	}
	return a.Memory.Receive(ctx, length)
}

// decode waits until there is room for decoding what takes so many bytes.
func (a *Account) decode(ctx context.Context, bytes int) error {
	if a == nil {
		return nil
	}
	return a.Memory.Decode(ctx, bytes)
}

// close gives back what the request took.
func (a *Account) close() {
	if a != nil {
		a.Memory.Close()
	}
}

type accountKey struct{}

// AccountOf is the account in the context; nil for none, which bounds nothing.
func AccountOf(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}

// admitJSON waits until there is room for decoding data into into, and whatever is
// made of it; 422 for what is nested too deep or has too long a list.
func (a *Account) admitJSON(r *http.Request, data []byte, into any) error {
	if a == nil {
		return nil
	}
	bytes, err := a.Weigher.JSON(data, into)
	if err == nil && quantity.Suspicious(data) { // which is looked at without a type
		var more int
		more, err = a.Weigher.JSON(data, new(any))
		bytes += more
	}
	if err != nil {
		return errShape(err)
	}
	return a.Memory.Decode(r.Context(), copies*bytes)
}

func (a *Account) admitProtobuf(r *http.Request, data []byte, into any) error {
	if a == nil {
		return nil
	}
	bytes, err := a.Weigher.Protobuf(data, into)
	if err != nil {
		return errShape(err)
	}
	return a.Memory.Decode(r.Context(), copies*bytes)
}

// errShape is 422 for a body that no object looks like.
func errShape(err *field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{err})
}

// AdmitPatch waits until there is room for applying data, a patch, to current.
func (a *Account) AdmitPatch(r *http.Request, typ types.PatchType, data, current []byte) error {
	if a == nil {
		return nil
	}
	bytes, err := a.Weigher.JSON(data, new(any))
	if err != nil {
		return errShape(err)
	}
	stored, _ := a.Weigher.JSON(current, new(any))
	cost := copies * (bytes + stored)
	switch typ {
	case types.JSONPatchType:
		cost += pathLength(data) * (len(data) + len(current))
	case types.ApplyYAMLPatchType:
		cost = applyCopies * (bytes + stored)
	}
	return a.Memory.Decode(r.Context(), cost)
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
func (a *Account) check(data []byte, into any) error {
	if a == nil {
		return nil
	}
	bytes, err := a.Weigher.JSON(data, into)
	if err != nil {
		return errShape(err)
	}
	return a.Memory.Check(copies * bytes)
}
