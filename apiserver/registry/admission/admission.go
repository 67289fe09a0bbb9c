// Package admission defines the chain of plugins that every write passes. Each Plugin may change or reject the object.
//
// Package plugins builds the chain. A write runs the kind's defaults, every Plugin's Mutate, the kind's validation and
// every Plugin's Validate, in this order. Writes to subresources pass the chain, too; most plugins ignore them.
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
	// Generated reports whether the server generated Name. Mutating webhooks and policies do not see a generated name.
	Generated bool
	// Mutate may modify Object, which is nil for deletions and connections. Old is shared, and nil for a creation. For
	// the creation of a subresource (a binding, an eviction) Old is the parent object.
	Object, Old kind.Object
	// Options are the options of a deletion or a connection; nil for other requests.
	Options runtime.Object
	User    auth.User
	DryRun  bool
	// Warning sends the client a warning; nil: no warnings.
	Warning func(text string)

	// Requested is the version of the resource that the client uses; nil: Resource.
	Requested *kind.Resource
	// PartOf is the subresource on whose behalf the registry writes the parent object; empty: none. The webhooks of the
	// subresource have already been called.
	PartOf string
	// A Mutate sets Reinvoke to request a second run of all plugins. Reinvocation is true in that run.
	Reinvoke, Reinvocation bool
	// PluginState contains the state that plugins keep between their calls for this request, by the plugins' names.
	PluginState map[string]any
}

// ChangesContainers reports whether the request writes the object itself, or a subresource that can change containers.
func (r *Request) ChangesContainers() bool {
	sub := r.Resource.Subresource(r.Subresource)
	return r.Subresource == "" || sub != nil && sub.Containers
}

// ChangesAmounts reports whether the request writes the object itself, or a subresource that can change requests and
// limits.
func (r *Request) ChangesAmounts() bool {
	sub := r.Resource.Subresource(r.Subresource)
	return r.Subresource == "" || sub != nil && sub.Amounts
}

// Forbid returns the 403 error of a plugin. It replaces a generated name by the prefix that the client sent.
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

// Plugin is one admission plugin. Either function may be nil. To reject a request it returns an API error, see
// Request.Forbid. A write that loses a race runs the chain again with the newer stored object.
type Plugin struct {
	Name     string
	Mutate   func(ctx context.Context, r *Request) error
	Validate func(ctx context.Context, r *Request) error
}

// Chain runs its plugins in order.
type Chain []Plugin

// Without returns the chain without the named plugins.
func (c Chain) Without(names []string) Chain {
	return slices.DeleteFunc(c, func(p Plugin) bool { return slices.Contains(names, p.Name) })
}

// Mutate runs every plugin's Mutate until the first error. It runs them a second time if a plugin sets Reinvoke.
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
