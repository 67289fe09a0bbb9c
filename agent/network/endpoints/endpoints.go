// Package endpoints holds the Services and EndpointSlices of the cluster, by Service, and the zone of the node, for the
// parts of the network that serve them.
package endpoints

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// View holds the Services and EndpointSlices that a follower has received. Its methods are safe for concurrent use.
type View struct {
	mu       sync.RWMutex // guards what follows
	services map[follow.Key]*corev1.Service
	slices   map[follow.Key][]*discoveryv1.EndpointSlice // by Service, sorted by name
	changed  map[follow.Key]struct{}
	zone     string
	node     string // constant
}

// New returns an empty View on a node.
func New(node string) *View {
	return &View{
		node: node, services: map[follow.Key]*corev1.Service{}, slices: map[follow.Key][]*discoveryv1.EndpointSlice{}, changed: map[follow.Key]struct{}{},
	}
}

// Sources fill the View and wake the key of the Service that a change concerns.
func (v *View) Sources() []follow.Source[follow.Key] {
	return []follow.Source[follow.Key]{
		{Selector: client.Selector{Resource: client.Services}, Keys: follow.Plain(v.service)},
		{Selector: client.Selector{Resource: client.EndpointSlices}, Keys: follow.Plain(v.slice)},
		{Selector: client.Selector{Resource: client.Nodes, Fields: fields.OneTermEqualSelector("metadata.name", v.node)}, Keys: follow.Plain(v.self)},
	}
}

func (v *View) service(old, next client.Object) []follow.Key {
	v.mu.Lock()
	defer v.mu.Unlock()
	if next == nil {
		key := follow.KeyOf(old)
		delete(v.services, key)
		return v.note(key)
	}
	key := follow.KeyOf(next)
	v.services[key] = next.(*corev1.Service)
	return v.note(key)
}

func (v *View) slice(old, next client.Object) []follow.Key {
	v.mu.Lock()
	defer v.mu.Unlock()
	var keys []follow.Key
	if old != nil {
		if key, ok := serviceOf(old); ok {
			v.remove(key, old.GetName())
			keys = append(keys, key)
		}
	}
	if next != nil {
		if key, ok := serviceOf(next); ok {
			v.insert(key, next.(*discoveryv1.EndpointSlice))
			keys = append(keys, key)
		}
	}
	return v.note(slices.Compact(keys)...)
}

// self records the zone of the node. In another zone, hints select other endpoints for all Services.
func (v *View) self(_, next client.Object) []follow.Key {
	v.mu.Lock()
	defer v.mu.Unlock()
	zone := v.zone
	if next != nil { // it is the same until the node is registered again
		zone = next.GetLabels()[corev1.LabelTopologyZone]
	}
	if zone == v.zone {
		return nil
	}
	v.zone = zone
	return v.note(slices.Collect(maps.Keys(v.slices))...)
}

// Zone returns the node's zone; empty: it has none.
func (v *View) Zone() string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.zone
}

// serviceOf returns the Service of an EndpointSlice.
func serviceOf(slice client.Object) (follow.Key, bool) {
	name := slice.GetLabels()[discoveryv1.LabelServiceName]
	return follow.Key{Namespace: slice.GetNamespace(), Name: name}, name != ""
}

func byName(s *discoveryv1.EndpointSlice, name string) int { return cmp.Compare(s.Name, name) }

// insert and remove replace the list, because readers hold the old one.
func (v *View) insert(key follow.Key, s *discoveryv1.EndpointSlice) {
	i, _ := slices.BinarySearchFunc(v.slices[key], s.Name, byName)
	v.slices[key] = slices.Insert(slices.Clone(v.slices[key]), i, s)
}

func (v *View) remove(key follow.Key, name string) {
	i, ok := slices.BinarySearchFunc(v.slices[key], name, byName)
	if !ok {
		return
	}
	if len(v.slices[key]) == 1 {
		delete(v.slices, key)
		return
	}
	v.slices[key] = slices.Delete(slices.Clone(v.slices[key]), i, i+1)
}

func (v *View) note(keys ...follow.Key) []follow.Key {
	for _, key := range keys {
		v.changed[key] = struct{}{}
	}
	return keys
}

// Take returns the Services that have changed since the last Take.
func (v *View) Take() map[follow.Key]struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed := v.changed
	v.changed = map[follow.Key]struct{}{}
	return changed
}

// Get returns a Service, nil if there is none, and its EndpointSlices. All are shared.
func (v *View) Get(key follow.Key) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.services[key], v.slices[key]
}
