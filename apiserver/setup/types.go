package setup

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// Types are the built-in kinds, for a process without an API server.
type Types struct{ registry *registry.Registry }

// NewTypes returns the built-in kinds.
func NewTypes() Types {
	resources := registry.Resources()
	none := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	return Types{registry.New(none, resources, registry.Config{})}
}

// New returns an empty object of a resource, or nil if it is unknown.
func (t Types) New(resource schema.GroupVersionResource, _ string) client.Object {
	res, err := t.registry.Resource(resource)
	if err != nil {
		return nil
	}
	return res.New()
}

// Complete sets the defaults of an object that does not come from an API server, and validates it.
func (t Types) Complete(obj client.Object) error { return t.registry.Complete(obj) }
