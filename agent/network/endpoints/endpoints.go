// Package endpoints holds the Services and EndpointSlices of the cluster, by Service, and the zone of the node, for the
// parts of the network that serve them.
package endpoints

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Cache holds the Services and EndpointSlices that a follower has received. Its methods are safe for concurrent use.
type Cache struct {
	mu       sync.RWMutex // guards what follows
	services map[follow.Key]*corev1.Service
	slices   map[follow.Key][]*discoveryv1.EndpointSlice // by Service, sorted by name
	changed  map[follow.Key]struct{}
	zone     string
	node     string // constant
}

// New returns an empty Cache on a node.
func New(node string) *Cache {
	return &Cache{
		node: node, services: map[follow.Key]*corev1.Service{},
		slices: map[follow.Key][]*discoveryv1.EndpointSlice{}, changed: map[follow.Key]struct{}{},
	}
}

// Sources fill the Cache. A change wakes the keys of the Services that it concerns.
func (c *Cache) Sources() []follow.Source[follow.Key] {
	own := fields.OneTermEqualSelector("metadata.name", c.node)
	return []follow.Source[follow.Key]{
		{Selector: client.Selector{Resource: client.Services}, Keys: follow.Plain(c.onService)},
		{Selector: client.Selector{Resource: client.EndpointSlices}, Keys: follow.Plain(c.onSlice)},
		{Selector: client.Selector{Resource: client.Nodes, Fields: own}, Keys: follow.Plain(c.onNode)},
	}
}

// Wake returns the Sources of a Cache, which wake one key for all Services.
func Wake[K comparable](c *Cache, key K) (sources []follow.Source[K]) {
	for _, src := range c.Sources() {
		sources = append(sources, follow.Source[K]{Selector: src.Selector,
			Keys: func(ctx context.Context, old, next client.Object) ([]K, error) {
				changed, err := src.Keys(ctx, old, next)
				if err != nil || len(changed) == 0 {
					return nil, err
				}
				return []K{key}, nil
			}})
	}
	return sources
}

func (c *Cache) onService(old, next client.Object) []follow.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next == nil {
		key := follow.KeyOf(old)
		delete(c.services, key)
		return c.markChanged(key)
	}
	key := follow.KeyOf(next)
	c.services[key] = next.(*corev1.Service)
	return c.markChanged(key)
}

func (c *Cache) onSlice(old, next client.Object) []follow.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []follow.Key
	if old != nil {
		if key, ok := serviceOf(old); ok {
			c.remove(key, old.GetName())
			keys = append(keys, key)
		}
	}
	if next != nil {
		if key, ok := serviceOf(next); ok {
			c.insert(key, next.(*discoveryv1.EndpointSlice))
			keys = append(keys, key)
		}
	}
	return c.markChanged(slices.Compact(keys)...)
}

// onNode records the zone of the node, which concerns all Services: hints select endpoints by zone.
func (c *Cache) onNode(_, next client.Object) []follow.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	zone := c.zone
	if next != nil { // a deleted node keeps its zone until it is registered again
		zone = next.GetLabels()[corev1.LabelTopologyZone]
	}
	if zone == c.zone {
		return nil
	}
	c.zone = zone
	return c.markChanged(slices.Collect(maps.Keys(c.slices))...)
}

// Zone returns the node's zone; empty: it has none.
func (c *Cache) Zone() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.zone
}

// serviceOf returns the Service of an EndpointSlice.
func serviceOf(slice client.Object) (follow.Key, bool) {
	name := slice.GetLabels()[discoveryv1.LabelServiceName]
	return follow.Key{Namespace: slice.GetNamespace(), Name: name}, name != ""
}

func byName(s *discoveryv1.EndpointSlice, name string) int { return cmp.Compare(s.Name, name) }

// insert and remove copy the list, because readers may hold it.
func (c *Cache) insert(key follow.Key, s *discoveryv1.EndpointSlice) {
	i, _ := slices.BinarySearchFunc(c.slices[key], s.Name, byName)
	c.slices[key] = slices.Insert(slices.Clone(c.slices[key]), i, s)
}

func (c *Cache) remove(key follow.Key, name string) {
	i, ok := slices.BinarySearchFunc(c.slices[key], name, byName)
	if !ok {
		return
	}
	if len(c.slices[key]) == 1 {
		delete(c.slices, key)
		return
	}
	c.slices[key] = slices.Delete(slices.Clone(c.slices[key]), i, i+1)
}

// markChanged returns its keys.
func (c *Cache) markChanged(keys ...follow.Key) []follow.Key {
	for _, key := range keys {
		c.changed[key] = struct{}{}
	}
	return keys
}

// Take returns the Services that have changed since the last Take.
func (c *Cache) Take() map[follow.Key]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.changed
	c.changed = map[follow.Key]struct{}{}
	return changed
}

// Get returns a Service, nil if there is none, and its EndpointSlices. All are shared.
func (c *Cache) Get(key follow.Key) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.services[key], c.slices[key]
}
