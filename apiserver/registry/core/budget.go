package core

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/pod"
)

const (
	// maxDisrupted is the maximum number of evicted pods that the disruption controller has not seen yet (upstream:
	// MaxDisruptedPodSize).
	maxDisrupted = 2000
	// budgetRetry is the Retry-After in seconds for a budget that the disruption controller has not seen yet.
	budgetRetry = 10
)

// takeDisruption takes one disruption from the pod's budget. unguarded reports that the budget allows the eviction
// without one, because the pod is not ready.
func (e *evictor) takeDisruption(ctx context.Context, victim *corev1.Pod) (unguarded bool, err error) {
	budgets, err := e.budgetsOf(ctx, victim)
	switch {
	case err != nil || len(budgets) == 0:
		return false, err
	case len(budgets) > 1:
		return false, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	case allowsUnhealthy(budgets[0], victim):
		return true, nil
	}
	_, err = e.Update(ctx, budgetRef(budgets[0]).Status(), func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*policyv1.PodDisruptionBudget)
		return next, e.recordDisruption(next, victim.Name)
	})
	return false, err
}

func budgetRef(b *policyv1.PodDisruptionBudget) client.Ref {
	return client.Ref{Resource: policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), Namespace: b.Namespace,
		Name: b.Name}
}

// budgetsOf returns the budgets whose selectors match the pod.
func (e *evictor) budgetsOf(ctx context.Context, victim *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	resource := budgetRef(&policyv1.PodDisruptionBudget{}).Resource
	if !e.Serves(resource) || len(victim.Labels) == 0 {
		return nil, nil
	}
	all, _, err := e.List(ctx, client.Selector{Resource: resource, Namespace: victim.Namespace})
	if err != nil {
		return nil, err
	}
	var out []*policyv1.PodDisruptionBudget
	for _, obj := range all {
		b := obj.(*policyv1.PodDisruptionBudget)
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(victim.Labels)) { // an invalid selector matches nothing
			out = append(out, b)
		}
	}
	return out, nil
}

// allowsUnhealthy reports whether the budget allows the eviction of a pod that is not ready without a disruption.
func allowsUnhealthy(b *policyv1.PodDisruptionBudget, victim *corev1.Pod) bool {
	if pod.Ready(victim) {
		return false
	}
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// recordDisruption records one disruption in the budget. It returns an error if the budget allows none.
func (e *evictor) recordDisruption(b *policyv1.PodDisruptionBudget, victim string) error {
	s := &b.Status
	switch {
	case s.ObservedGeneration < b.Generation:
		return tooManyRequests(budgetRetry,
			fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name))
	case s.DisruptionsAllowed < 0:
		return budgetForbids(b, "pdb disruptions allowed is negative")
	case len(s.DisruptedPods) > maxDisrupted:
		return budgetForbids(b, "DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed == 0:
		return tooManyRequests(0, noDisruptionReason(b))
	}
	s.DisruptionsAllowed--
	if s.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
			ObservedGeneration: s.ObservedGeneration, LastTransitionTime: e.Now(),
		})
	}
	if s.DisruptedPods == nil {
		s.DisruptedPods = map[string]metav1.Time{}
	}
	s.DisruptedPods[victim] = e.Now()
	return nil
}

// noDisruptionReason returns the reason why a budget allows no disruption.
func noDisruptionReason(b *policyv1.PodDisruptionBudget) string {
	failed := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if failed != nil && failed.Status == metav1.ConditionFalse && failed.Reason == policyv1.SyncFailedReason {
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %v",
			b.Name, failed.Message)
	}
	return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name,
		b.Status.DesiredHealthy, b.Status.CurrentHealthy)
}

// tooManyRequests returns 429, after which kubectl drain retries.
func tooManyRequests(seconds int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", seconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

func budgetForbids(b *policyv1.PodDisruptionBudget, why string) error {
	return apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), b.Name, fmt.Errorf("%s", why))
}
