// Package admission is the chain that every write passes between a client's
// request and validation: each Plugin may fill the object in, or refuse it.
//
// Package plugins has the whole chain, in its order. The kind's
// defaults come first, then every Plugin's Mutate, then the kind's validation,
// then every Plugin's Validate. What a request is about a subresource says, and
// plugins look at it: most want none.
package admission

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/registry/kind"
)

// Operation is what a request does to an object.
type Operation string

// The operations.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Request is one write on its way in.
type Request struct {
	Operation   Operation
	Resource    *kind.Resource
	Subresource string
	Namespace   string
	Name        string // empty for a creation whose name is still to be generated
	// Object may be modified by Mutate; nil for a deletion and for a connection. Old
	// is shared, and nil for a creation. What is created below an object (a binding,
	// an eviction) has that object as Old.
	Object, Old kind.Object
	// Options are those of a deletion or a connection; else nil.
	Options runtime.Object
	User    auth.User
	DryRun  bool
	// Warning sends the client a warning; nil: nobody reads it.
	Warning func(text string)
}

// Forbid is the 403 of a plugin that has a reason. A name that the server made up
// is told as the client gave it.
func (r *Request) Forbid(why error) error {
	name := r.Name
	if r.Object != nil && r.Operation == Create {
		name = nameOr(r.Object)
	}
	return apierrors.NewForbidden(r.Resource.GVR.GroupResource(), name, why)
}

// Warn sends the client a warning about a write that is let through.
func (r *Request) Warn(text string) {
	if r.Warning != nil {
		r.Warning(text)
	}
}

// nameOr is the object's name for a message, or the beginning that the rest was
// made up for.
func nameOr(obj metav1.Object) string {
	if base := obj.GetGenerateName(); base != "" && strings.HasPrefix(obj.GetName(), base) || obj.GetName() == "" {
		return base
	}
	return obj.GetName()
}

// Plugin is one admission. Either function may be nil. A refusal is an API error,
// see Request.Forbid. A write that loses a race is asked about again, with what
// is stored then.
type Plugin struct {
	Name     string
	Mutate   func(ctx context.Context, r *Request) error
	Validate func(ctx context.Context, r *Request) error
}

// Chain asks its plugins in their order.
type Chain []Plugin

// Mutate lets every plugin fill in the object; the first error ends it.
func (c Chain) Mutate(ctx context.Context, r *Request) error {
	for _, p := range c {
		if p.Mutate == nil {
			continue
		}
		if err := p.Mutate(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// Validate lets every plugin refuse the object as it would be stored.
func (c Chain) Validate(ctx context.Context, r *Request) error {
	for _, p := range c {
		if p.Validate == nil {
			continue
		}
		if err := p.Validate(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
