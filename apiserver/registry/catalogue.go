package registry

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admissionregistration"
	"monopod/apiserver/registry/apierror"
	openapi "monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/managed"
)

// Catalogue contains the served resources: the built-in ones, and those of CustomResourceDefinitions.
type Catalogue struct {
	builtIn []kind.Resource

	mu     sync.Mutex                  // guards custom, and serializes changes of current
	custom map[string][]*kind.Resource // by the name of the CustomResourceDefinition

	current atomic.Pointer[snapshot]
}

// snapshot is an immutable state of the catalogue.
type snapshot struct {
	resources []kind.Resource
	byGVR     map[schema.GroupVersionResource]*kind.Resource
	byType    map[reflect.Type]*kind.Resource
	byKind    map[schema.GroupVersionKind]*kind.Resource // custom kinds only: their objects share one Go type
	changed   chan struct{}                              // closed when another snapshot replaces this one
}

// newCatalogue returns a Catalogue of the built-in resources.
func newCatalogue(resources []kind.Resource) *Catalogue {
	c := &Catalogue{builtIn: slices.Clone(resources), custom: map[string][]*kind.Resource{}}
	c.current.Store(c.snapshot())
	if p := c.Find(client.ValidatingAdmissionPolicies); p != nil {
		p.Prepare = admissionregistration.Prepare(p.Prepare,
			admissionregistration.Config{Served: c.Resources, Definitions: openapi.Read})
	}
	return c
}

// snapshot returns the current state. The caller must hold mu, unless c is not shared yet.
func (c *Catalogue) snapshot() *snapshot {
	n := &snapshot{
		resources: slices.Clone(c.builtIn),
		byGVR:     make(map[schema.GroupVersionResource]*kind.Resource, len(c.builtIn)),
		byType:    make(map[reflect.Type]*kind.Resource, len(c.builtIn)),
		byKind:    map[schema.GroupVersionKind]*kind.Resource{},
		changed:   make(chan struct{}),
	}
	for i := range c.builtIn {
		res := &c.builtIn[i]
		n.byGVR[res.GVR] = res
		n.byType[reflect.TypeOf(res.New())] = res
	}
	for _, name := range slices.Sorted(maps.Keys(c.custom)) {
		for _, res := range c.custom[name] {
			if n.byGVR[res.GVR] != nil {
				continue // built-in kinds take precedence
			}
			n.resources = append(n.resources, *res)
			n.byGVR[res.GVR], n.byKind[res.GVK()] = res, res
		}
	}
	return n
}

// Install sets the resources of a CustomResourceDefinition; an empty list removes them.
func (c *Catalogue) Install(definition string, resources []*kind.Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(resources) == 0 && len(c.custom[definition]) == 0 {
		return
	}
	c.custom[definition] = resources
	if len(resources) == 0 {
		delete(c.custom, definition)
	}
	old := c.current.Load()
	c.current.Store(c.snapshot())
	close(old.changed)
}

// Announce closes the channel of Changed. Callers use it when a condition changes that waiters check besides the
// resources.
func (c *Catalogue) Announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.current.Load()
	next := *old
	next.changed = make(chan struct{})
	c.current.Store(&next)
	close(old.changed)
}

// DefinitionNames returns the names of the CustomResourceDefinitions whose resources are served.
func (c *Catalogue) DefinitionNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.custom))
}

// Find returns a served resource, or nil.
func (c *Catalogue) Find(gvr schema.GroupVersionResource) *kind.Resource {
	return c.current.Load().byGVR[gvr]
}

// FindFor returns the resource of an object, or nil.
func (c *Catalogue) FindFor(obj kind.Object) *kind.Resource {
	n := c.current.Load()
	if res := n.byType[reflect.TypeOf(obj)]; res != nil {
		return res
	}
	if _, ok := obj.(kind.Untyped); !ok {
		return nil
	}
	return n.byKind[obj.GetObjectKind().GroupVersionKind()]
}

// FindKind returns the resource of a kind, or nil.
func (c *Catalogue) FindKind(gvk schema.GroupVersionKind) *kind.Resource {
	n := c.current.Load()
	if res := n.byKind[gvk]; res != nil {
		return res
	}
	for i := range c.builtIn {
		if res := &c.builtIn[i]; res.GVK() == gvk && !res.Virtual {
			return res
		}
	}
	return nil
}

// Resources returns the served resources, for discovery.
func (c *Catalogue) Resources() []kind.Resource { return c.current.Load().resources }

// Changed returns a channel that closes when Resources changes, and on Announce.
func (c *Catalogue) Changed() <-chan struct{} { return c.current.Load().changed }

// Stored returns the names of the built-in resources whose objects are stored.
func (c *Catalogue) Stored() []schema.GroupResource {
	var out []schema.GroupResource
	for i := range c.builtIn {
		if res := &c.builtIn[i]; res.Stored() {
			out = append(out, res.GVR.GroupResource())
		}
	}
	return out
}

// Resource returns a served resource, or 404.
func (c *Catalogue) Resource(gvr schema.GroupVersionResource) (*kind.Resource, error) {
	if res := c.Find(gvr); res != nil {
		return res, nil
	}
	return nil, apierror.NoResource(gvr)
}

// FindStored returns a resource that is stored, or a view of one; otherwise 404.
func (c *Catalogue) FindStored(gvr schema.GroupVersionResource) (*kind.Resource, error) {
	res, err := c.Resource(gvr)
	if err == nil && (res.Virtual || c.Base(res) == nil) {
		err = apierror.NoResource(gvr)
	}
	return res, err
}

// Base returns the resource as which the objects of res are stored: res itself unless it is a view.
func (c *Catalogue) Base(res *kind.Resource) *kind.Resource {
	switch {
	case res.View == nil:
		return res
	case res.View.Base != nil:
		return res.View.Base
	}
	return c.Find(res.View.Of)
}

// Versions returns the served versions of a resource, in no order.
func (c *Catalogue) Versions(res *kind.Resource) (out []*kind.Resource) {
	of := c.Base(res)
	for _, other := range c.current.Load().byGVR {
		if c.Base(other) == of {
			out = append(out, other)
		}
	}
	return out
}

// Target returns the resource or subresource of a write, for managedFields.
func (c *Catalogue) Target(res *kind.Resource, sub string) managed.Target {
	views := slices.DeleteFunc(c.Versions(res), func(other *kind.Resource) bool { return other == res })
	return managed.Target{Resource: res, Subresource: sub, Views: views}
}
