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

// policySource holds the changes for NetworkPolicies since the last reconcile. Its methods are safe for concurrent use.
type policySource struct {
	mu        sync.Mutex               // guards what follows
	connected map[follow.Key]connected // until the pod is deleted
	changes
}

// changes contains changed objects (nil: deleted), and pods of the network plugin.
type changes struct {
	pods       map[follow.Key]podChange
	namespaces map[string]*corev1.Namespace
	policies   map[follow.Key]*networkingv1.NetworkPolicy
	connecting []follow.Key // pods that the network plugin connects
	waiting    []waiter
}

// podChange is a pod that has changed, or was deleted.
type podChange struct {
	*corev1.Pod
	deleted bool
}

// newPolicySource returns a policySource with the pods that were connected earlier.
func newPolicySource(earlier []Connected) *policySource {
	f := &policySource{connected: map[follow.Key]connected{}, changes: newChanges()}
	for _, s := range earlier {
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
	return changes{
		pods: map[follow.Key]podChange{}, namespaces: map[string]*corev1.Namespace{},
		policies: map[follow.Key]*networkingv1.NetworkPolicy{},
	}
}

// connected contains the addresses that the network plugin gave a pod. They are known before the pod's status,
// and newer after the sandbox was replaced.
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

// policyKeys is the key that wakes the reconcile of NetworkPolicies.
var policyKeys = []follow.Key{{}}

// sources fill the policySource, with the pods of a node, and if there are others with theirs, which may be peers.
func (f *policySource) sources(node string) []follow.Source[follow.Key] {
	const field = "spec.nodeName"
	onNode := fields.OneTermEqualSelector(field, node)
	onOthers := fields.AndSelectors(fields.OneTermNotEqualSelector(field, node), fields.OneTermNotEqualSelector(field, ""))
	return []follow.Source[follow.Key]{
		{Selector: client.Selector{Resource: client.Pods, Fields: onNode}, Keys: follow.Plain(f.onPod)},
		{Selector: client.Selector{Resource: client.Pods, Fields: onOthers}, Keys: follow.Plain(f.onPod), Optional: true},
		{Selector: client.Selector{Resource: client.Namespaces}, Keys: follow.Plain(f.onNamespace)},
		{Selector: client.Selector{Resource: client.NetworkPolicies}, Keys: follow.Plain(f.onPolicy)},
	}
}

func (f *policySource) onPod(old, next client.Object) []follow.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next == nil {
		key := follow.KeyOf(old)
		// Of a pod that was replaced on another node, the two sources may report the end of the old one last.
		if c, ok := f.pods[key]; ok && c.UID != old.GetUID() {
			return nil
		}
		f.pods[key] = podChange{old.(*corev1.Pod), true}
		if f.connected[key].uid == uidOf(old) {
			delete(f.connected, key)
		}
		return policyKeys
	}
	if old != nil && reflect.DeepEqual(policy.Of(old.(*corev1.Pod)), policy.Of(next.(*corev1.Pod))) {
		return nil
	}
	f.pods[follow.KeyOf(next)] = podChange{Pod: next.(*corev1.Pod)}
	return policyKeys
}

// uidOf returns the UID by which the network plugin knows a pod: a static pod's object in the API has another one.
func uidOf(pod client.Object) types.UID {
	if uid, ok := pod.GetAnnotations()[corev1.MirrorPodAnnotationKey]; ok {
		return types.UID(uid)
	}
	return pod.GetUID()
}

func (f *policySource) onNamespace(old, next client.Object) []follow.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next == nil {
		f.namespaces[old.GetName()] = nil
		return policyKeys
	}
	if old != nil && maps.Equal(old.GetLabels(), next.GetLabels()) {
		return nil
	}
	f.namespaces[next.GetName()] = next.(*corev1.Namespace)
	return policyKeys
}

func (f *policySource) onPolicy(old, next client.Object) []follow.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	if next == nil {
		f.policies[follow.KeyOf(old)] = nil
		return policyKeys
	}
	if old != nil && reflect.DeepEqual(old.(*networkingv1.NetworkPolicy).Spec, next.(*networkingv1.NetworkPolicy).Spec) {
		return nil
	}
	f.policies[follow.KeyOf(next)] = next.(*networkingv1.NetworkPolicy)
	return policyKeys
}

// addresses returns the addresses that the network plugin gave a pod; false: they are not known.
func (f *policySource) addresses(pod *corev1.Pod) ([]netip.Addr, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.connected[follow.KeyOf(pod)]
	return s.addrs, ok && s.uid == uidOf(pod)
}

// policyEnforcer applies NetworkPolicies while a Network runs.
type policyEnforcer struct {
	*policy.Enforcer
	source *policySource
	node   string
	pods   map[follow.Key]*corev1.Pod
}

func newPolicyEnforcer(f *policySource, node string, cfg policy.Config) *policyEnforcer {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting := f.waiting
	f.changes = newChanges() // the sources repeat the changes of an earlier run
	f.waiting = waiting
	return &policyEnforcer{policy.New(cfg), f, node, map[follow.Key]*corev1.Pod{}}
}

// reconcile writes all changes to the kernel, and then notifies those that wait for them.
func (e *policyEnforcer) reconcile() error {
	e.source.mu.Lock()
	c := e.source.changes
	e.source.changes = newChanges()
	e.source.mu.Unlock()
	for name, ns := range c.namespaces {
		e.SetNamespace(name, ns)
	}
	for key, p := range c.policies {
		e.SetPolicy(key, p)
	}
	for key, change := range c.pods {
		switch has := e.pods[key]; {
		case !change.deleted:
			e.pods[key] = change.Pod
		case has != nil && has.UID != change.UID:
			continue
		default:
			delete(e.pods, key)
		}
		e.set(key)
	}
	for _, key := range c.connecting {
		e.set(key)
	}
	var unknown []waiter // the API has not delivered their pods yet
	for _, w := range c.waiting {
		if !e.here(w.pod) && w.ctx.Err() == nil {
			unknown = append(unknown, w)
		}
	}
	err := e.Sync()
	e.source.mu.Lock()
	defer e.source.mu.Unlock()
	e.source.waiting = append(e.source.waiting, unknown...)
	for _, w := range c.waiting {
		if e.here(w.pod) {
			w.done <- err
		}
	}
	return err
}

// here reports whether a pod of this node is known.
func (e *policyEnforcer) here(key follow.Key) bool {
	pod := e.pods[key]
	return pod != nil && pod.Spec.NodeName == e.node
}

func (e *policyEnforcer) set(key follow.Key) {
	pod := e.pods[key]
	facts := policy.Of(pod)
	if facts != nil {
		facts.Remote = !e.here(key)
		if addrs, ok := e.source.addresses(pod); ok {
			facts.Addrs = addrs
		}
	}
	e.SetPod(key, facts)
}

// Admit waits until the NetworkPolicies of a pod apply to the addresses that the network plugin is about to give it. It
// does not wait if its namespace has no policies. It fails if they cannot be applied, or if ctx ends first.
func (n *Network) Admit(ctx context.Context, key follow.Key, uid types.UID, addrs []netip.Addr) error {
	policies, _, err := n.deps.Client.List(ctx,
		client.Selector{Resource: client.NetworkPolicies, Namespace: key.Namespace})
	if err != nil {
		return fmt.Errorf("list the NetworkPolicies of %s: %w", key.Namespace, err)
	}
	var done chan error
	n.policies.mu.Lock()
	n.policies.connected[key] = connected{uid, addrs}
	n.policies.connecting = append(n.policies.connecting, key)
	if len(policies) > 0 {
		done = make(chan error, 1) // receives the result of the next reconcile that includes the pod
		n.policies.waiting = append(n.policies.waiting, waiter{key, ctx, done})
	}
	n.policies.mu.Unlock()
	if loop := n.loop.Load(); loop != nil { // otherwise its start includes the pod
		loop.Add(policyKeys...)
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
