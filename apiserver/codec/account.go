package codec

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/bounded"
	"monopod/apiserver/registry/kind"
)

const (
	// copies is how many copies of an object exist during its write: decoded, copied, encoded.
	copies = 3
	// applyCopies is the same number for server-side apply, which compares several versions.
	applyCopies = 6
)

// Memory limits the memory for request bodies.
type Memory interface {
	// Receive waits until memory for a body of that length, in bytes, is available.
	Receive(ctx context.Context, length int) error
	// Decode waits until memory for decoding, in bytes, is available; it replaces the request's earlier amount.
	Decode(ctx context.Context, bytes int) error
	// Check returns a 413 error for an amount that exceeds the limit.
	Check(bytes int) error
	// Close returns everything. It may be called again.
	Close()
}

// Account counts the memory that one request uses for its body. A nil Account has no limit.
type Account struct {
	Memory  Memory
	Weigher *bounded.Weigher

	admitted int // bytes for decoding the body
}

// WithAccount returns a context with the account that decoding the request's body uses.
func WithAccount(ctx context.Context, a *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, a)
}

// receive waits until memory for a body of that length is available.
func (a *Account) receive(ctx context.Context, length int) error {
	if a == nil {
		return nil
	}
	return a.Memory.Receive(ctx, length)
}

// decode waits until memory for decoding, in bytes, is available.
func (a *Account) decode(ctx context.Context, bytes int) error {
	if a == nil {
		return nil
	}
	return a.Memory.Decode(ctx, bytes)
}

// admitMore waits until memory is available for values that decoding adds to the body, in bytes.
func (a *Account) admitMore(ctx context.Context, bytes int) error {
	if a == nil {
		return nil
	}
	return a.Memory.Decode(ctx, a.admitted+copies*bytes)
}

// close returns the request's memory.
func (a *Account) close() {
	if a != nil {
		a.Memory.Close()
	}
}

type accountKey struct{}

// AccountOf returns the account in the context, or nil, which has no limit.
func AccountOf(ctx context.Context) *Account {
	a, _ := ctx.Value(accountKey{}).(*Account)
	return a
}

// admitJSON waits until memory is available to decode data into into, and for the copies of the object. It returns a
// 422 error if data is nested too deep or has too long a list.
func (a *Account) admitJSON(r *http.Request, data []byte, into any) error {
	if a == nil {
		return nil
	}
	bytes, err := a.Weigher.JSON(data, shape(into))
	if err == nil && bounded.SuspiciousQuantity(data) { // it will also be decoded without a type
		var more int
		more, err = a.Weigher.JSON(data, new(any))
		bytes += more
	}
	if err != nil {
		return errShape(err)
	}
	a.admitted = copies * bytes
	return a.Memory.Decode(r.Context(), a.admitted)
}

// shape returns an object of the Go type that a body is decoded into, which may differ from into.
func shape(into any) any {
	switch o := into.(type) {
	case kind.Packed:
		if typed, err := o.Typed(); err == nil {
			return typed
		}
		return new(any)
	case strict:
		return new(any)
	}
	return into
}

func (a *Account) admitProtobuf(r *http.Request, data []byte, into any) error {
	if a == nil {
		return nil
	}
	bytes, err := a.Weigher.Protobuf(data, shape(into))
	if err != nil {
		return errShape(err)
	}
	return a.Memory.Decode(r.Context(), copies*bytes)
}

// errShape returns the 422 error for a body that is nested too deep or has too long a list.
func errShape(err *field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{err})
}

// AdmitPatch waits until memory is available for applying data, a patch, to current.
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
	a.admitted = cost
	return a.Memory.Decode(r.Context(), cost)
}

// pathLength returns the maximum number of levels of an object that a JSON patch decodes. Each level keeps a copy of
// its text.
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

// check refuses the result of a patch if it would be refused as a body.
func (a *Account) check(data []byte, into any) error {
	if a == nil {
		return nil
	}
	bytes, err := a.Weigher.JSON(data, shape(into))
	if err != nil {
		return errShape(err)
	}
	return a.Memory.Check(copies * bytes)
}
