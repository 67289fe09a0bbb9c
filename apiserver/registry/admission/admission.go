// Package admission defines the chain of plugins that every write passes: each Plugin may
// change the object or reject it.
//
// Package plugins contains the chain. The kind's defaults come first, then every Plugin's
// Mutate, the kind's validation, and every Plugin's Validate. Requests for subresources pass
// the chain, too; most plugins ignore them.
package admission

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/auth"
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

// Request is one write.
type Request struct {
	Operation   Operation
	Resource    *kind.Resource
	Subresource string
	Namespace   string
	Name        string
	// Generated: the server makes the name of the new object. Webhooks and policies see it only once the object is
	// complete.
	Generated bool
	// Object may be modified by Mutate; nil for deletions and connections. Old is shared,
	// and nil for a creation. A request to create a subresource (a binding, an eviction)
	// has the object above it as Old.
	Object, Old kind.Object
	// Options are the options of a deletion or a connection; nil for other requests.
	Options runtime.Object
	User    auth.User
	DryRun  bool
	// Warning sends the client a warning; nil: no warnings.
	Warning func(text string)

	// Requested is the version of the resource that the client uses; nil: Resource.
	Requested *kind.Resource
	// PartOf is the subresource whose write this is a part of, and whose webhooks were called; empty: none.
	PartOf string
	// Reinvoke is set by a Mutate that needs a second run of all, and Second is true in that run.
	Reinvoke, Reinvocation bool
	// PluginState is what plugins keep between their calls for the request, by their names.
	PluginState map[string]any
}

// ChangesContainers reports whether the request writes the object itself, or a subresource
// that can change containers.
func (r *Request) ChangesContainers() bool {
	sub := r.Resource.Subresource(r.Subresource)
	return r.Subresource == "" || sub != nil && sub.Containers
}

// ChangesAmounts reports whether the request writes the object itself, or a subresource that
// can change requests and limits.
func (r *Request) ChangesAmounts() bool {
	sub := r.Resource.Subresource(r.Subresource)
	return r.Subresource == "" || sub != nil && sub.Amounts
}

// Forbid returns the 403 error of a plugin. It shows a generated name as the prefix that
// the client sent.
func (r *Request) Forbid(why error) error {
	name := r.Name
	if r.Generated {
		name = r.Object.GetGenerateName()
	}
	return apierrors.NewForbidden(r.Resource.GVR.GroupResource(), name, why)
}

// Warn sends the client a warning about an admitted write.
func (r *Request) Warn(text string) {
	if r.Warning != nil {
		r.Warning(text)
	}
}

// Plugin is one admission plugin. Either function may be nil. To reject a request it returns
// an API error, see Request.Forbid. A write that loses a race passes the chain again with
// the newer stored object.
type Plugin struct {
	Name     string
	Mutate   func(ctx context.Context, r *Request) error
	Validate func(ctx context.Context, r *Request) error
}

// Chain runs its plugins in order.
type Chain []Plugin

// Without returns the chain without the plugins of these names.
func (c Chain) Without(names []string) Chain {
	return slices.DeleteFunc(c, func(p Plugin) bool { return slices.Contains(names, p.Name) })
}

// Mutate runs every plugin's Mutate until the first error, and all of them once more if a plugin asks for it.
func (c Chain) Mutate(ctx context.Context, r *Request) error {
	err := c.mutate(ctx, r)
	if err != nil || !r.Reinvoke {
		return err
	}
	r.Reinvocation = true
	return c.mutate(ctx, r)
}

func (c Chain) mutate(ctx context.Context, r *Request) error {
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

// Validate runs every plugin's Validate until the first error.
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
