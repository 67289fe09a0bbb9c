// Package disruption computes the status of PodDisruptionBudgets: the healthy pods, the required ones, and the allowed
// disruptions, which the eviction subresource consumes. It also resets the condition DisruptionTarget of pods that were
// not deleted.
package disruption

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
)

// Name of the controller.
const Name = "disruption"

// Component is the source of its events.
const Component = "controllermanager"

// Controller maintains the status of PodDisruptionBudgets.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	kinds  client.Kinds
}

// key identifies a budget, or a pod whose condition may be stale.
type key struct {
	follow.Key
	pod bool
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller. kinds are those whose objects may have a scale.
func New(deps follow.Deps, events record.Eventer, kinds client.Kinds) *Controller {
	return &Controller{deps, events, kinds}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[key]{
		Name: Name,
		Sources: []follow.Source[key]{
			{Selector: client.Selector{Resource: client.PodDisruptionBudgets}, Keys: follow.Plain(onBudget)},
			{Selector: client.Selector{Resource: client.Pods}, Keys: c.onPod},
		},
		Reconcile: func(ctx context.Context, k key) (time.Duration, error) {
			if k.pod {
				return c.recheck(ctx, k.Key)
			}
			return c.reconcile(ctx, k.Key)
		},
	}).Run(ctx)
}

// onBudget wakes a budget. A change of only its status, which evictions write too, wakes it only if disruptions were
// consumed.
func onBudget(old, new client.Object) []key {
	was, _ := old.(*policyv1.PodDisruptionBudget)
	is, _ := new.(*policyv1.PodDisruptionBudget)
	if is == nil || was != nil && was.Generation == is.Generation &&
		len(is.Status.DisruptedPods) <= len(was.Status.DisruptedPods) {
		return nil
	}
	return []key{{Key: follow.KeyOf(is)}}
}

// onPod wakes a pod with the condition DisruptionTarget, and the budgets that match, or matched, the pod.
func (c *Controller) onPod(ctx context.Context, old, new client.Object) ([]key, error) {
	out := onCondition(new)
	pods := make([]*corev1.Pod, 0, 2)
	for _, obj := range []client.Object{old, new} {
		if obj != nil {
			pods = append(pods, obj.(*corev1.Pod))
		}
	}
	budgets, err := client.List[*policyv1.PodDisruptionBudget](ctx, c.deps.Client,
		client.Selector{Namespace: pods[0].Namespace})
	if err != nil {
		return nil, err
	}
	var guarding []*policyv1.PodDisruptionBudget
	for _, b := range budgets {
		if matchesAny(b, pods...) {
			out, guarding = append(out, key{Key: follow.KeyOf(b)}), append(guarding, b)
		}
	}
	if len(guarding) > 1 && binds(old, new) {
		p := new.(*corev1.Pod)
		c.events.Eventf(p, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets",
			"Pod %q/%q matches %d PodDisruptionBudgets (%s and others): it cannot be evicted",
			p.Namespace, p.Name, len(guarding), guarding[0].Name)
	}
	return out, nil
}

// binds reports whether a change binds the pod to its node. The warning about several budgets is recorded then, once.
func binds(old, new client.Object) bool {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	return was != nil && is != nil && was.Spec.NodeName == "" && is.Spec.NodeName != ""
}

// onCondition wakes a pod with the condition DisruptionTarget.
func onCondition(new client.Object) []key {
	if p, _ := new.(*corev1.Pod); p != nil {
		if _, waits := staleIn(p, time.Time{}); waits {
			return []key{{Key: follow.KeyOf(p), pod: true}}
		}
	}
	return nil
}

// matchesAny reports whether the budget matches one of the pods. A budget with an invalid or missing selector matches
// none.
func matchesAny(b *policyv1.PodDisruptionBudget, pods ...*corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return false
	}
	for _, p := range pods {
		if selector.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}

// reconcile updates one budget. It returns the time until the deletion of an evicted pod is overdue.
func (c *Controller) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	b, err := client.Get[*policyv1.PodDisruptionBudget](ctx, c.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	all, err := client.List[*corev1.Pod](ctx, c.deps.Client, client.Selector{Namespace: b.Namespace})
	if err != nil {
		return 0, err
	}
	var pods []*corev1.Pod
	for _, p := range all {
		if matchesAny(b, p) {
			pods = append(pods, p)
		}
	}
	want, err := c.demand(ctx, b, pods)
	if err != nil { // no disruptions are allowed while the count is unknown
		c.events.Eventf(b, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed",
			"Failed to calculate the number of expected pods: %v", err)
		return 0, errors.Join(err, c.write(ctx, b, func(cur *policyv1.PodDisruptionBudget) {
			cur.Status.DisruptionsAllowed = 0
			meta.SetStatusCondition(&cur.Status.Conditions, metav1.Condition{
				Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason,
				Message: err.Error(), ObservedGeneration: cur.Status.ObservedGeneration,
				LastTransitionTime: metav1.NewTime(c.deps.Clock.Now()),
			})
		}))
	}
	c.recordEvents(b, pods, want)
	var again time.Duration
	err = c.write(ctx, b, func(cur *policyv1.PodDisruptionBudget) {
		now := c.deps.Clock.Now()
		again = setStatus(cur, pods, want, now)
	})
	return again, err
}

// recordEvents records Events about the budget's pods.
func (c *Controller) recordEvents(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, want demand) {
	if len(pods) == 0 {
		c.events.Eventf(b, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	if want.unmanaged > 0 {
		const unmanaged = "Pods selected by this PodDisruptionBudget (selector: %v) were found to be unmanaged. " +
			"As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. " +
			"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
		c.events.Eventf(b, corev1.EventTypeWarning, "UnmanagedPods", unmanaged, metav1.FormatLabelSelector(b.Spec.Selector))
	}
	for _, p := range overdue(b, pods, c.deps.Clock.Now()) {
		c.events.Eventf(p, corev1.EventTypeWarning, "NotDeleted",
			"Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace, b.Name)
	}
}

// write updates the status if it has changed.
func (c *Controller) write(
	ctx context.Context, b *policyv1.PodDisruptionBudget, change func(*policyv1.PodDisruptionBudget),
) error {
	errUnchanged := errors.New("status is up to date")
	_, err := client.Update(ctx, c.deps.Client, b, "status", func(cur *policyv1.PodDisruptionBudget) error {
		before := cur.Status.DeepCopy()
		if change(cur); equality.Semantic.DeepEqual(before, &cur.Status) {
			return errUnchanged
		}
		return nil
	})
	if errors.Is(err, errUnchanged) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
