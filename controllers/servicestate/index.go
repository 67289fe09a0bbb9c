package servicestate

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Index contains Services and pods as seen by the watches. It indexes a Service by one label of its selector, and a pod
// by each of its labels: the cost of a lookup depends only on the number of objects with that label. Its objects are
// shared.
type Index struct {
	mu         sync.RWMutex // guards namespaces
	namespaces map[string]*namespace
}

// label is a key and a value.
type label struct{ key, value string }

type namespace struct {
	services   map[string]*corev1.Service // Services with selectors, by name
	bySelector map[label]map[string]*corev1.Service
	indexedBy  map[string]label // label under which a Service is indexed, by its name
	pods       map[label]map[string]*corev1.Pod
}

// NewIndex returns an empty Index.
func NewIndex() *Index { return &Index{namespaces: map[string]*namespace{}} }

// OnService records a change of a Service, and wakes the Service unless its endpoints stay the same.
func (x *Index) OnService(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Service)
	is, _ := new.(*corev1.Service)
	x.mu.Lock()
	defer x.mu.Unlock()
	if was != nil {
		x.in(was.Namespace).unfile(was.Name)
		x.tidy(was.Namespace)
	}
	if Selects(is) {
		x.in(is.Namespace).file(is)
	}
	if was != nil && is != nil && sameService(was, is) {
		return nil
	}
	return follow.OnAny(old, new)
}

// OnPod records a change of a pod, and wakes the Services whose endpoints the change may affect.
func (x *Index) OnPod(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	x.mu.Lock()
	defer x.mu.Unlock()
	same := sameEndpoint(was, is)
	before, after := x.move(was, is)
	var keys []follow.Key
	for key := range before {
		if _, both := after[key]; !both || !same {
			keys = append(keys, key)
		}
	}
	for key := range after {
		if _, both := before[key]; !both {
			keys = append(keys, key)
		}
	}
	return keys
}

// move replaces a pod and returns the Services that select, or selected, it. The caller holds mu.
func (x *Index) move(was, is *corev1.Pod) (before, after map[follow.Key]struct{}) {
	if was != nil {
		n := x.in(was.Namespace)
		for k, v := range was.Labels {
			l := label{k, v}
			if delete(n.pods[l], was.Name); len(n.pods[l]) == 0 {
				delete(n.pods, l)
			}
		}
		before = n.of(was)
		x.tidy(was.Namespace)
	}
	if is != nil {
		n := x.in(is.Namespace)
		for k, v := range is.Labels {
			put(n.pods, label{k, v}, is.Name, is)
		}
		after = n.of(is)
		x.tidy(is.Namespace)
	}
	return before, after
}

// Pods returns the pods that the Service selects, in no order.
func (x *Index) Pods(s *corev1.Service) []*corev1.Pod {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.namespaces[s.Namespace]
	if n == nil || !Selects(s) {
		return nil
	}
	_, fewest := rarest(n.pods, s.Spec.Selector)
	var out []*corev1.Pod
	for _, p := range fewest {
		if selects(s.Spec.Selector, p.Labels) {
			out = append(out, p)
		}
	}
	return out
}

// Services returns the keys of all Services whose endpoints are maintained.
func (x *Index) Services() []follow.Key {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var out []follow.Key
	for ns, n := range x.namespaces {
		for name := range n.services {
			out = append(out, follow.Key{Namespace: ns, Name: name})
		}
	}
	return out
}

// in returns the objects of a namespace; it adds an empty set if there is none. The caller holds mu.
func (x *Index) in(name string) *namespace {
	n := x.namespaces[name]
	if n == nil {
		n = &namespace{
			services: map[string]*corev1.Service{}, bySelector: map[label]map[string]*corev1.Service{},
			indexedBy: map[string]label{}, pods: map[label]map[string]*corev1.Pod{},
		}
		x.namespaces[name] = n
	}
	return n
}

// tidy removes a namespace without objects. The caller holds mu.
func (x *Index) tidy(name string) {
	if n := x.namespaces[name]; n != nil && len(n.services) == 0 && len(n.pods) == 0 {
		delete(x.namespaces, name)
	}
}

// file indexes a Service under the label of its selector with the fewest Services.
func (n *namespace) file(s *corev1.Service) {
	l, _ := rarest(n.bySelector, s.Spec.Selector)
	n.services[s.Name], n.indexedBy[s.Name] = s, l
	put(n.bySelector, l, s.Name, s)
}

func (n *namespace) unfile(name string) {
	l := n.indexedBy[name]
	delete(n.services, name)
	delete(n.indexedBy, name)
	if delete(n.bySelector[l], name); len(n.bySelector[l]) == 0 {
		delete(n.bySelector, l)
	}
}

// of returns the Services that select the pod, if the pod can be an endpoint.
func (n *namespace) of(p *corev1.Pod) map[follow.Key]struct{} {
	if !Member(p) {
		return nil
	}
	out := map[follow.Key]struct{}{}
	for k, v := range p.Labels {
		for _, s := range n.bySelector[label{k, v}] {
			if selects(s.Spec.Selector, p.Labels) {
				out[follow.KeyOf(s)] = struct{}{}
			}
		}
	}
	return out
}

// rarest returns the label of a selector with the smallest set; among equals the first by name.
func rarest[T any](sets map[label]map[string]T, selector map[string]string) (label, map[string]T) {
	var best label
	var fewest map[string]T
	first := true
	for k, v := range selector {
		l := label{k, v}
		set := sets[l]
		if first || len(set) < len(fewest) || len(set) == len(fewest) && k < best.key {
			best, fewest, first = l, set, false
		}
	}
	return best, fewest
}

// selects reports whether the labels include the selector.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

func put[T any](sets map[label]map[string]T, l label, name string, obj T) {
	if sets[l] == nil {
		sets[l] = map[string]T{}
	}
	sets[l][name] = obj
}
