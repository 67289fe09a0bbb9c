package registry

import (
	"reflect"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/managed"
	"monopod/store"
)

// catalogue contains the served resources.
type catalogue struct {
	resources []Resource
	byGVR     map[schema.GroupVersionResource]*Resource
	byType    map[reflect.Type]*Resource
}

func newCatalogue(resources []Resource) *catalogue {
	c := &catalogue{
		resources: resources,
		byGVR:     make(map[schema.GroupVersionResource]*Resource, len(resources)),
		byType:    make(map[reflect.Type]*Resource, len(resources)),
	}
	for i := range resources {
		res := &resources[i]
		c.byGVR[res.GVR] = res
		c.byType[reflect.TypeOf(res.New())] = res
	}
	return c
}

// Resources returns the served resources, for discovery.
func (c *catalogue) Resources() []Resource { return c.resources }

// Stored returns the names of the resources whose objects are stored.
func (c *catalogue) Stored() []schema.GroupResource {
	var out []schema.GroupResource
	for i := range c.resources {
		if res := &c.resources[i]; res.Stored() {
			out = append(out, res.GVR.GroupResource())
		}
	}
	return out
}

// Resource returns a served resource, or 404.
func (c *catalogue) Resource(gvr schema.GroupVersionResource) (*Resource, error) {
	if res := c.byGVR[gvr]; res != nil {
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

// base returns the resource under which the objects are stored: View.Of for a view.
func (c *catalogue) base(res *Resource) *Resource {
	if res.View == nil {
		return res
	}
	return c.byGVR[res.View.Of]
}

// at returns ref with the resource under which the object is stored.
func (c *catalogue) at(res *Resource, ref client.Ref) client.Ref {
	ref.Resource = c.base(res).GVR
	return ref
}

// target returns the resource or subresource of a write, for managedFields.
func (c *catalogue) target(res *Resource, sub string) managed.Target {
	t := managed.Target{Resource: res, Subresource: sub}
	of := c.base(res)
	for i := range c.resources {
		if other := &c.resources[i]; c.base(other) == of && other != res {
			t.Views = append(t.Views, other)
		}
	}
	return t
}

// selector translates a client's selector for the store. It returns an error for unknown fields.
func (c *catalogue) selector(sel client.Selector) (store.Selector, error) {
	res, err := c.stored(sel.Resource)
	if err != nil {
		return store.Selector{}, err
	}
	s := store.Selector{Resource: c.base(res).Key("", "").Resource, Namespace: sel.Namespace, Progress: sel.Bookmarks}
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
	s.Match = match(res, sel.Labels, rest)
	return s, nil
}
