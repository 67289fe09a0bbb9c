package source

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/volume"
)

// mounted are the Secrets and ConfigMaps that the node's pods refer to. Each one is followed while a pod does.
type mounted struct {
	source *Source

	mu     sync.Mutex // guards the fields below
	pods   map[types.UID]map[client.Ref]bool
	listed bool          // pods contains all of the node
	wake   chan struct{} // contains one value when pods has changed
}

func newMounted(s *Source) *mounted {
	return &mounted{source: s, pods: map[types.UID]map[client.Ref]bool{}, wake: make(chan struct{}, 1)}
}

// list replaces the pods.
func (m *mounted) list(pods []*corev1.Pod) {
	if !m.source.Named {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods, m.listed = map[types.UID]map[client.Ref]bool{}, true
	for _, pod := range pods {
		m.pods[pod.UID] = mounts(pod)
	}
	m.notify()
}

// pod applies a change of a pod.
func (m *mounted) pod(pod *corev1.Pod, gone bool) {
	if !m.source.Named {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.pods[pod.UID]
	if gone {
		delete(m.pods, pod.UID)
	} else {
		m.pods[pod.UID] = mounts(pod) // an ephemeral container may refer to more
	}
	if !maps.Equal(before, m.pods[pod.UID]) {
		m.notify()
	}
}

func (m *mounted) notify() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func followedByName() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{client.Secrets, client.ConfigMaps}
}

func mounts(pod *corev1.Pod) map[client.Ref]bool {
	refs := map[client.Ref]bool{}
	volume.All().References(pod, func(resource, name string) {
		for _, gvr := range followedByName() {
			if gvr.Resource == resource {
				refs[client.Ref{Resource: gvr, Namespace: pod.Namespace, Name: name}] = true
			}
		}
	})
	return refs
}

// Retainer is a client that keeps lists. Retain removes those of a resource that are not wanted any more.
type Retainer interface {
	Retain(resource schema.GroupVersionResource, wanted []client.Selector)
}

// run follows the objects until ctx ends.
func (m *mounted) run(ctx context.Context) {
	type follower struct {
		stop  context.CancelFunc
		ended <-chan error
	}
	active := map[client.Ref]follower{}
	end := func(ref client.Ref) {
		f := active[ref]
		delete(active, ref) // also if it panicked
		f.stop()
		guard.Raise(<-f.ended)
	}
	defer func() {
		for ref := range active {
			end(ref)
		}
	}()
	for {
		wanted, listed, changed := m.wanted()
		for ref := range active {
			if !wanted[ref] {
				end(ref)
			}
		}
		if c, ok := m.source.Client.(Retainer); ok && listed {
			for _, gvr := range followedByName() {
				var all []client.Selector
				for ref := range wanted {
					if ref.Resource == gvr {
						all = append(all, ref.Selector())
					}
				}
				c.Retain(gvr, all)
			}
		}
		for ref := range wanted {
			if _, ok := active[ref]; ok {
				continue
			}
			of, stop := context.WithCancel(ctx)
			active[ref] = follower{stop: stop, ended: guard.Spawn(func() error {
				m.source.Follow(of, ref.Selector(), m.source.usedNamed(ref))
				return nil
			})}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// wanted returns the objects to follow, whether all pods are known, and a channel that says when that may have changed.
func (m *mounted) wanted() (all map[client.Ref]bool, listed bool, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all = map[client.Ref]bool{}
	for _, refs := range m.pods {
		for ref := range refs {
			all[ref] = true
		}
	}
	return all, m.listed, m.wake
}
