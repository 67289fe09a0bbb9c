package registry

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"monopod/apiserver/client"
	openapi "monopod/apiserver/discovery/openapi/definitions"
	"monopod/apiserver/registry/admissionpolicy/typecheck"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/managed"
	"monopod/store"
)

// catalogue contains the served resources. Those of custom kinds come and go with their definitions.
type catalogue struct {
	fixed []Resource

	mu     sync.Mutex             // guards custom, and changes of now
	custom map[string][]*Resource // by the name of the definition

	now atomic.Pointer[contents]
}

// contents is a state of the catalogue. It is immutable.
type contents struct {
	resources []Resource
	byGVR     map[schema.GroupVersionResource]*Resource
	byType    map[reflect.Type]*Resource
	byKind    map[schema.GroupVersionKind]*Resource // of custom kinds, whose objects share one type
	changed   chan struct{}                         // closed when another state replaces this one
}

func newCatalogue(resources []Resource) *catalogue {
	c := &catalogue{fixed: slices.Clone(resources), custom: map[string][]*Resource{}}
	c.now.Store(c.contents())
	if p := c.get(client.ValidatingAdmissionPolicies); p != nil {
		p.Prepare = typecheck.Prepare(p.Prepare, typecheck.Config{Served: c.Resources, Definitions: openapi.Read})
	}
	return c
}

// contents returns the state of the catalogue. The caller holds mu, or has not shared c yet.
func (c *catalogue) contents() *contents {
	n := &contents{
		resources: slices.Clone(c.fixed),
		byGVR:     make(map[schema.GroupVersionResource]*Resource, len(c.fixed)),
		byType:    make(map[reflect.Type]*Resource, len(c.fixed)),
		byKind:    map[schema.GroupVersionKind]*Resource{},
		changed:   make(chan struct{}),
	}
	for i := range c.fixed {
		res := &c.fixed[i]
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

// install sets the resources that a definition makes; none removes them.
func (c *catalogue) install(definition string, resources []*Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(resources) == 0 && len(c.custom[definition]) == 0 {
		return
	}
	c.custom[definition] = resources
	if len(resources) == 0 {
		delete(c.custom, definition)
	}
	old := c.now.Load()
	c.now.Store(c.contents())
	close(old.changed)
}

// defined returns the names of the definitions that make resources.
func (c *catalogue) defined() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.custom))
}

// get returns a served resource, or nil.
func (c *catalogue) get(gvr schema.GroupVersionResource) *Resource { return c.now.Load().byGVR[gvr] }

// of returns the resource of an object, or nil.
func (c *catalogue) of(obj Object) *Resource {
	n := c.now.Load()
	if res := n.byType[reflect.TypeOf(obj)]; res != nil {
		return res
	}
	if _, ok := obj.(kind.Untyped); !ok {
		return nil
	}
	return n.byKind[obj.GetObjectKind().GroupVersionKind()]
}

// ofKind returns the resource of a kind, or nil.
func (c *catalogue) ofKind(gvk schema.GroupVersionKind) *Resource {
	n := c.now.Load()
	if res := n.byKind[gvk]; res != nil {
		return res
	}
	for i := range c.fixed {
		if res := &c.fixed[i]; res.GVK() == gvk && !res.Virtual {
			return res
		}
	}
	return nil
}

// Resources returns the served resources, for discovery.
func (c *catalogue) Resources() []Resource { return c.now.Load().resources }

// Changed returns a channel that is closed when Resources returns something else.
func (c *catalogue) Changed() <-chan struct{} { return c.now.Load().changed }

// Stored returns the names of the resources whose objects are stored.
func (c *catalogue) Stored() []schema.GroupResource {
	var out []schema.GroupResource
	for i := range c.fixed {
		if res := &c.fixed[i]; res.Stored() {
			out = append(out, res.GVR.GroupResource())
		}
	}
	return out
}

// Resource returns a served resource, or 404.
func (c *catalogue) Resource(gvr schema.GroupVersionResource) (*Resource, error) {
	if res := c.get(gvr); res != nil {
		return res, nil
	}
	return nil, errNoResource(gvr)
}

// stored returns a resource that is stored or a view of a stored one, or an error.
func (c *catalogue) stored(gvr schema.GroupVersionResource) (*Resource, error) {
	res, err := c.Resource(gvr)
	if err == nil && (res.Virtual || c.base(res) == nil) {
		err = errNoResource(gvr)
	}
	return res, err
}

// base returns the resource under which the objects are stored: that of its View for a view.
func (c *catalogue) base(res *Resource) *Resource {
	switch {
	case res.View == nil:
		return res
	case res.View.Base != nil:
		return res.View.Base
	}
	return c.get(res.View.Of)
}

// versions returns the served versions of a resource, in no order.
func (c *catalogue) versions(res *Resource) (out []*Resource) {
	of := c.base(res)
	for _, other := range c.now.Load().byGVR {
		if c.base(other) == of {
			out = append(out, other)
		}
	}
	return out
}

// target returns the resource or subresource of a write, for managedFields.
func (c *catalogue) target(res *Resource, sub string) managed.Target {
	views := slices.DeleteFunc(c.versions(res), func(other *Resource) bool { return other == res })
	return managed.Target{Resource: res, Subresource: sub, Views: views}
}

// selectorOf translates a client's selector for the store; the objects of res are stored as base. It returns an
// error for unknown fields.
func selectorOf(res, base *Resource, sel client.Selector) (store.Selector, error) {
	s := store.Selector{Resource: base.StoreName(), Namespace: sel.Namespace, Progress: sel.Bookmarks}
	var wanted fields.Requirements
	if sel.Fields != nil {
		wanted = sel.Fields.Requirements()
	}
	if err := knows(res, wanted); err != nil {
		return s, err
	}
	var rest fields.Requirements
	for _, q := range wanted {
		equals := q.Operator == selection.Equals || q.Operator == selection.DoubleEquals
		if q.Field == "metadata.name" && equals && s.Name == "" {
			s.Name = q.Value
			continue
		}
		rest = append(rest, q)
	}
	s.Match = matcher(res, sel.Labels, rest)
	return s, nil
}
