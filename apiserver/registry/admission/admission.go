// Package admission is the chain that every write passes between a client's
// request and validation: each Plugin may fill the object in, or refuse it.
//
// New returns the whole chain, in the order in which it is asked. First every
// Plugin's Mutate runs, then the kind's own defaults and validation, then every
// Plugin's Validate.
package admission

import (
	"context"

	"monopod/apiserver/auth"
	"monopod/apiserver/client"
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
	// Object may be modified by Mutate; nil for a deletion. Old is shared, and nil
	// for a creation.
	Object, Old kind.Object
	User        auth.User
	DryRun      bool
	// Warn tells the client something about a write that is let through.
	Warn func(text string)
}

// Plugin is one admission. Either function may be nil. An error that is no API
// error becomes 403 Forbidden with its text.
type Plugin struct {
	Name     string
	Mutate   func(ctx context.Context, r *Request) error
	Validate func(ctx context.Context, r *Request) error
}

// Chain asks its plugins in their order.
type Chain []Plugin

// New is the chain of this server; plugins read what is stored through c.
func New(c client.Client) Chain {
	return Chain{
		namespaceLifecycle(c),
		priority(c),
	}
}

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
