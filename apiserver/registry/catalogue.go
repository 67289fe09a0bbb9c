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

// Catalogue contains the served resources. Those of custom kinds come and go with their definitions.
type Catalogue struct {
	builtIn []kind.Resource

	mu     sync.Mutex                  // guards custom, and changes of now
	custom map[string][]*kind.Resource // by the name of the definition

	current atomic.Pointer[snapshot]
}

// snapshot is a state of the catalogue. It is immutable.
type snapshot struct {
	resources []kind.Resource
	byGVR     map[schema.GroupVersionResource]*kind.Resource
	byType    map[reflect.Type]*kind.Resource
	byKind    map[schema.GroupVersionKind]*kind.Resource // of custom kinds, whose objects share one type
	changed   chan struct{}                              // closed when another state replaces this one
}

// newCatalogue returns a Catalogue of the built-in kinds.
func newCatalogue(resources []kind.Resource) *Catalogue {
	c := &Catalogue{builtIn: slices.Clone(resources), custom: map[string][]*kind.Resource{}}
	c.current.Store(c.snapshot())
	if p := c.Find(client.ValidatingAdmissionPolicies); p != nil {
		p.Prepare = admissionregistration.Prepare(p.Prepare,
			admissionregistration.Config{Served: c.Resources, Definitions: openapi.Read})
	}
	return c
}

// snapshot returns the state of the catalogue. The caller holds mu, or has not shared c yet.
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
				continue // built-in kinds win
			}
			n.resources = append(n.resources, *res)
			n.byGVR[res.GVR], n.byKind[res.GVK()] = res, res
		}
	}
	return n
}

// Install sets the resources that a definition makes; none removes them.
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

// Announce makes those who wait for Changed look again: something else that they depend on has changed.
func (c *Catalogue) Announce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.current.Load()
	next := *old
	next.changed = make(chan struct{})
	c.current.Store(&next)
	close(old.changed)
}

// Defined returns the names of the definitions that make resources.
func (c *Catalogue) Defined() []string {
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

// Changed returns a channel that is closed when Resources returns something else, and by Announce.
func (c *Catalogue) Changed() <-chan struct{} { return c.current.Load().changed }

// Stored returns the names of the resources whose objects are stored.
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

// FindStored returns a resource that is stored or a view of a stored one, or an error.
func (c *Catalogue) FindStored(gvr schema.GroupVersionResource) (*kind.Resource, error) {
	res, err := c.Resource(gvr)
	if err == nil && (res.Virtual || c.Base(res) == nil) {
		err = apierror.NoResource(gvr)
	}
	return res, err
}

// Base returns the resource under which the objects are stored: that of its View for a view.
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
