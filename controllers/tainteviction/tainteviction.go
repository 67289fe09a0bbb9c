// Package tainteviction deletes pods that do not tolerate a NoExecute taint of their node, or no longer tolerate it
// after tolerationSeconds.
//
// As in upstream, the seconds count from when the controller sees the taint; a restart of the process starts them
// again.
package tainteviction

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// Name of the controller.
const Name = "tainteviction"

// Component is the source of its events.
const Component = "taint-eviction-controller"

// workers is upstream's number of workers.
const workers = 8

// Controller evicts pods from tainted nodes.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, events record.Eventer) *Controller {
	return &Controller{deps: deps, events: events}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, tainted: map[string]bool{}, since: map[types.UID]time.Time{}}
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Nodes}, Keys: r.onNode},
			{Selector: client.Selector{Resource: client.Pods}, Keys: follow.Plain(r.onPod)},
		},
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller

	mu      sync.Mutex              // guards the fields below
	tainted map[string]bool         // nodes with NoExecute taints
	since   map[types.UID]time.Time // when tolerationSeconds of a pod on such a node began
}

// noExecute returns the NoExecute taints of a node, which may be nil.
func noExecute(node *corev1.Node) []corev1.Taint {
	if node == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints),
		func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectNoExecute })
}

// onNode wakes the pods of a node whose NoExecute taints have changed.
func (r *run) onNode(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
	was, _ := old.(*corev1.Node)
	is, _ := new.(*corev1.Node)
	before, after := noExecute(was), noExecute(is)
	if equality.Semantic.DeepEqual(before, after) {
		return nil, nil
	}
	name := client.Object(is)
	if is == nil {
		name = was
	}
	r.mu.Lock()
	if len(after) > 0 {
		r.tainted[name.GetName()] = true
	} else {
		delete(r.tainted, name.GetName())
	}
	r.mu.Unlock()
	pods, err := client.List[*corev1.Pod](ctx, r.deps.Client,
		client.Selector{Fields: fields.OneTermEqualSelector("spec.nodeName", name.GetName())})
	var keys []follow.Key
	for _, pod := range pods {
		keys = append(keys, follow.KeyOf(pod))
	}
	return keys, err
}

// onPod wakes a pod that is bound to a tainted node, or whose tolerations change there.
func (r *run) onPod(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case is == nil:
		delete(r.since, was.UID)
		return nil
	case !r.tainted[is.Spec.NodeName]:
		return nil
	case was != nil && was.Spec.NodeName == is.Spec.NodeName &&
		equality.Semantic.DeepEqual(was.Spec.Tolerations, is.Spec.Tolerations):
		return nil
	}
	return []follow.Key{follow.KeyOf(is)}
}

// reconcile deletes the pod, with its own grace period, if its node's taints require that, or returns the remaining
// time of its tolerations.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	pod, err := client.Get[*corev1.Pod](ctx, r.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) || err == nil && (pod.DeletionTimestamp != nil || pod.Spec.NodeName == "") {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	node, err := client.Get[*corev1.Node](ctx, r.deps.Client, "", pod.Spec.NodeName)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	stay, forever := tolerated(noExecute(node), pod.Spec.Tolerations)
	if forever {
		if r.forget(pod) {
			r.events.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s", key)
		}
		return 0, nil
	}
	if left := stay - r.waited(pod); left > 0 {
		return left, nil
	}
	const reason, message = "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"
	if err := podstate.Disrupt(ctx, r.deps.Client, pod, reason, message, r.deps.Clock.Now()); err != nil {
		return 0, owned.IgnoreGone(err)
	}
	r.events.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", pod.Namespace,
		pod.Name)
	_, err = r.deps.Client.Delete(ctx, client.RefOf(pod),
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	return 0, owned.IgnoreGone(err)
}

// waited returns how long the pod has been on a tainted node.
func (r *run) waited(pod *corev1.Pod) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	if _, ok := r.since[pod.UID]; !ok {
		r.since[pod.UID] = now
	}
	return now.Sub(r.since[pod.UID])
}

// forget removes the start time of a pod; it returns false if there was none.
func (r *run) forget(pod *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.since[pod.UID]
	delete(r.since, pod.UID)
	return ok
}

// tolerated returns how long a pod with these tolerations may stay on a node with these NoExecute taints: 0 if a taint
// is not tolerated, otherwise the shortest tolerationSeconds of the matching tolerations.
func tolerated(taints []corev1.Taint, tolerations []corev1.Toleration) (stay time.Duration, forever bool) {
	forever = true
	for i := range taints {
		matched := false
		for j := range tolerations {
			if !scheduling.TolerationsTolerateTaint(klog.Logger{}, tolerations[j:j+1], &taints[i], false) {
				continue
			}
			matched = true
			if n := tolerations[j].TolerationSeconds; n != nil {
				if d := max(0, owned.Seconds(*n)); forever || d < stay {
					stay, forever = d, false
				}
			}
			break // as in upstream, the first matching toleration counts
		}
		if !matched {
			return 0, false
		}
	}
	return stay, forever
}
