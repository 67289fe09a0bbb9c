package devicetaint

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// statusPeriod is the minimum time between two updates of a rule's condition (upstream: 10 s).
const statusPeriod = 10 * time.Second

// rule sets the condition EvictionInProgress of a rule: at once for a new spec, otherwise at most once in a
// statusPeriod.
func (r *run) rule(ctx context.Context, name string) (time.Duration, error) {
	r.mu.Lock()
	rule := r.rules[name]
	r.mu.Unlock()
	if rule == nil {
		return 0, nil
	}
	now := r.deps.Clock.Now()
	is := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
	if is != nil && is.ObservedGeneration == rule.Generation {
		if left := statusPeriod - now.Sub(is.LastTransitionTime.Time); left > 0 {
			return left, nil
		}
	}
	next, pending, err := r.condition(ctx, rule)
	if err != nil {
		return 0, err
	}
	if is != nil && is.Status == next.Status && is.Reason == next.Reason && is.Message == next.Message &&
		is.ObservedGeneration == next.ObservedGeneration {
		return again(pending), nil
	}
	next.LastTransitionTime = metav1.NewTime(now) // of every change, because it limits the rate of updates
	_, err = client.Update(ctx, r.deps.Client, rule, "status", func(cur *resourcev1.DeviceTaintRule) error {
		if cur.UID == rule.UID {
			meta.RemoveStatusCondition(&cur.Status.Conditions, next.Type)
			cur.Status.Conditions = append(cur.Status.Conditions, next)
		}
		return nil
	})
	return again(pending), owned.IgnoreGone(err)
}

// again returns the time until the condition of a rule that evicts pods must be checked again.
func again(pending bool) time.Duration {
	if pending {
		return statusPeriod
	}
	return 0
}

// condition returns the condition EvictionInProgress of a rule; pending: pods wait for their eviction.
func (r *run) condition(ctx context.Context,
	rule *resourcev1.DeviceTaintRule) (c metav1.Condition, pending bool, err error) {
	c = metav1.Condition{Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse,
		ObservedGeneration: rule.Generation}
	r.mu.Lock()
	evicted := r.evicted[rule.UID]
	r.mu.Unlock()
	var parts []string
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNoExecute:
		pods, namespaces, err := r.pending(ctx, rule)
		switch {
		case err != nil:
			return c, false, err
		case pods > 0:
			c.Status, c.Reason, pending = metav1.ConditionTrue, "PodsPendingEviction", true
			parts = append(parts,
				fmt.Sprintf("%s in %s must be evicted.", counted(pods, "pod"), counted(namespaces, "namespace")))
		case evicted > 0:
			c.Reason = "Completed"
		default:
			c.Reason = "NotStarted"
		}
	case resourcev1.DeviceTaintEffectNone:
		c.Reason = "NoEffect"
		pods, namespaces, err := r.pending(ctx, rule)
		if err != nil {
			return c, false, err
		}
		published, allocated, err := r.devices(ctx, rule)
		if err != nil {
			return c, false, err
		}
		parts = append(parts,
			fmt.Sprintf("%s and %s match. With the effect NoExecute, %s in %s would be evicted. "+
				"Only a new spec updates this message.",
				counted(published, "published device"), counted(allocated, "allocated device"), counted(pods, "pod"),
				counted(namespaces, "namespace")))
	default:
		c.Reason = "OtherEffect"
		parts = append(parts, "Only the effect NoExecute evicts pods.")
	}
	if evicted > 0 {
		parts = append(parts, counted(evicted, "pod")+" evicted since the controller started.")
	}
	c.Message = strings.Join(parts, " ")
	return c, pending, nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// pending counts the pods that a rule evicts, or would evict with the effect NoExecute, and their namespaces.
func (r *run) pending(ctx context.Context, rule *resourcev1.DeviceTaintRule) (pods, namespaces int, err error) {
	keys, err := r.usersOf(ctx, func(d *resourcev1.DeviceRequestAllocationResult) bool {
		return podstate.Taints(rule, d.Driver, d.Pool, d.Device)
	})
	if err != nil {
		return 0, 0, err
	}
	seen, in := sets.New[types.UID](), sets.New[string]()
	for _, k := range keys {
		pod, err := client.Get[*corev1.Pod](ctx, r.deps.Client, k.Namespace, k.Name)
		if owned.IgnoreGone(err) != nil {
			return 0, 0, err
		}
		if err != nil || pod.DeletionTimestamp != nil || seen.Has(pod.UID) {
			continue
		}
		e, err := r.eviction(ctx, pod, rule)
		if err != nil {
			return 0, 0, err
		}
		if e != nil && e.rules[rule] {
			seen.Insert(pod.UID)
			in.Insert(pod.Namespace)
		}
	}
	return seen.Len(), in.Len(), nil
}

// devices counts the published and the allocated devices that a rule taints.
func (r *run) devices(ctx context.Context, rule *resourcev1.DeviceTaintRule) (published, allocated int, err error) {
	r.mu.Lock()
	for id := range r.pools {
		r.eachDevice(id, func(d *resourcev1.Device) bool {
			if podstate.Taints(rule, id.driver, id.name, d.Name) {
				published++
			}
			return true
		})
	}
	r.mu.Unlock()
	_, err = r.usersOf(ctx, func(d *resourcev1.DeviceRequestAllocationResult) bool {
		if podstate.Taints(rule, d.Driver, d.Pool, d.Device) {
			allocated++
		}
		return false
	})
	return published, allocated, err
}
