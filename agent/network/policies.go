package network

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/network/policy"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// feed holds what changed for NetworkPolicies since the last reconcile. Its methods are safe for concurrent use.
type feed struct {
	mu        sync.Mutex               // guards what follows
	connected map[follow.Key]connected // until the pod is deleted
	changes
}

// changes are of objects (nil: gone), and of what the network plugin did.
type changes struct {
	pods     map[follow.Key]*corev1.Pod
	spaces   map[string]*corev1.Namespace
	policies map[follow.Key]*networkingv1.NetworkPolicy
	again    []follow.Key // pods that were connected
	waiting  []waiter
}

// newFeed returns a feed that knows the pods that were connected before.
func newFeed(before []Connected) *feed {
	f := &feed{connected: map[follow.Key]connected{}, changes: newChanges()}
	for _, s := range before {
		f.connected[s.Pod] = connected{s.UID, s.Addrs}
	}
	return f
}

// Connected is a pod with the addresses that the network plugin gave it.
type Connected struct {
	Pod   follow.Key
	UID   types.UID
	Addrs []netip.Addr
}

func newChanges() changes {
	return changes{pods: map[follow.Key]*corev1.Pod{}, spaces: map[string]*corev1.Namespace{},
		policies: map[follow.Key]*networkingv1.NetworkPolicy{}}
}

// connected contains the addresses that the network plugin gave a pod. They are known before the pod's status, and
// newer if there is a new sandbox.
type connected struct {
	uid   types.UID
	addrs []netip.Addr
}

// waiter waits until the policies of a pod apply, or its context ends.
type waiter struct {
	pod  follow.Key
	ctx  context.Context
	done chan error
}

// take returns the changes and clears them.
func (f *feed) take() changes {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.changes
	f.changes = newChanges()
	return c
}

// all is the key that wakes the reconcile of NetworkPolicies.
var all = []follow.Key{{}}

// sources fill the feed, with the pods of a node.
func (f *feed) sources(node string) []follow.Source[follow.Key] {
	return []follow.Source[follow.Key]{
		{Selector: client.Selector{Resource: client.Pods, Fields: fields.OneTermEqualSelector("spec.nodeName", node)},
			Keys: follow.Plain(f.pod)},
		{Selector: client.Selector{Resource: client.Namespaces}, Keys: follow.Plain(f.space)},
		{Selector: client.Selector{Resource: client.NetworkPolicies}, Keys: follow.Plain(f.policy)},
	}
}

func (f *feed) pod(old, next client.Object) []follow.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next == nil {
		key := follow.KeyOf(old)
		f.pods[key] = nil
		if f.connected[key].uid == uidOf(old) {
			delete(f.connected, key)
		}
		return all
	}
	if old != nil && reflect.DeepEqual(policy.Of(old.(*corev1.Pod)), policy.Of(next.(*corev1.Pod))) {
		return nil
	}
	f.pods[follow.KeyOf(next)] = next.(*corev1.Pod)
	return all
}

// uidOf returns the UID by which the network plugin knows a pod: a static pod's object in the API has another one.
func uidOf(pod client.Object) types.UID {
	if uid, ok := pod.GetAnnotations()[corev1.MirrorPodAnnotationKey]; ok {
		return types.UID(uid)
	}
	return pod.GetUID()
}

func (f *feed) space(old, next client.Object) []follow.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next == nil {
		f.spaces[old.GetName()] = nil
		return all
	}
	if old != nil && maps.Equal(old.GetLabels(), next.GetLabels()) {
		return nil
	}
	f.spaces[next.GetName()] = next.(*corev1.Namespace)
	return all
}

func (f *feed) policy(old, next client.Object) []follow.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next == nil {
		f.policies[follow.KeyOf(old)] = nil
		return all
	}
	if old != nil && reflect.DeepEqual(old.(*networkingv1.NetworkPolicy).Spec, next.(*networkingv1.NetworkPolicy).Spec) {
		return nil
	}
	f.policies[follow.KeyOf(next)] = next.(*networkingv1.NetworkPolicy)
	return all
}

// connect records the addresses of a pod that the network plugin is about to connect.
func (f *feed) connect(key follow.Key, s connected) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.connected[key] = s
	f.again = append(f.again, key)
}

// wait returns a channel that receives the result of the next reconcile that includes the pod.
func (f *feed) wait(ctx context.Context, key follow.Key) <-chan error {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := waiter{key, ctx, make(chan error, 1)}
	f.waiting = append(f.waiting, w)
	return w.done
}

// addresses returns those that a pod was connected with; false: they are not known.
func (f *feed) addresses(pod *corev1.Pod) ([]netip.Addr, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.connected[follow.KeyOf(pod)]
	return s.addrs, ok && s.uid == uidOf(pod)
}

// enforcing applies NetworkPolicies while a Network runs.
type enforcing struct {
	*policy.Enforcer
	feed *feed
	pods map[follow.Key]*corev1.Pod
}

func newEnforcing(f *feed, cfg policy.Config) *enforcing {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := f.waiting
	f.changes = newChanges() // the sources repeat those of an earlier run
	f.waiting = waiting
	return &enforcing{policy.New(cfg), f, map[follow.Key]*corev1.Pod{}}
}

// reconcile writes all changes to the kernel, and then notifies those that wait for them.
func (e *enforcing) reconcile() error {
	c := e.feed.take()
	for name, ns := range c.spaces {
		e.SetNamespace(name, ns)
	}
	for key, p := range c.policies {
		e.SetPolicy(key, p)
	}
	for key, pod := range c.pods {
		if pod == nil {
			delete(e.pods, key)
		} else {
			e.pods[key] = pod
		}
		e.set(key)
	}
	for _, key := range c.again {
		e.set(key)
	}
	var early []waiter // whose pods no source has seen
	for _, w := range c.waiting {
		if e.pods[w.pod] == nil && w.ctx.Err() == nil {
			early = append(early, w)
		}
	}
	err := e.Sync()
	e.feed.mu.Lock()
	defer e.feed.mu.Unlock()
	e.feed.waiting = append(e.feed.waiting, early...)
	for _, w := range c.waiting {
		if e.pods[w.pod] != nil {
			w.done <- err
		}
	}
	return err
}

func (e *enforcing) set(key follow.Key) {
	pod := e.pods[key]
	of := policy.Of(pod)
	if of != nil {
		if addrs, ok := e.feed.addresses(pod); ok {
			of.Addrs = addrs
		}
	}
	e.SetPod(key, of)
}

// Admit returns when the NetworkPolicies of a pod apply to its addresses, which the network plugin is about to give it.
// It does not wait if its namespace has no policies. It fails if they cannot be applied, or ctx ends before.
func (n *Network) Admit(ctx context.Context, key follow.Key, uid types.UID, addrs []netip.Addr) error {
	policies, _, err := n.deps.Client.List(ctx,
		client.Selector{Resource: client.NetworkPolicies, Namespace: key.Namespace})
	if err != nil {
		return fmt.Errorf("list the NetworkPolicies of %s: %w", key.Namespace, err)
	}
	n.feed.connect(key, connected{uid, addrs})
	var done <-chan error
	if len(policies) > 0 {
		done = n.feed.wait(ctx, key)
	}
	if loop := n.loop.Load(); loop != nil { // otherwise it begins with everything
		loop.Add(all...)
	}
	if done == nil {
		return nil
	}
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("apply the NetworkPolicies of %s to pod %s: %w", key.Namespace, key.Name, err)
	}
	return nil
}
