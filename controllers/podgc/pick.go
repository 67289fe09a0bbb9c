package podgc

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
	"monopod/controllers/podstate"
)

// excess returns the finished pods beyond threshold: evicted ones first, then the oldest, then by name.
func excess(pods []*corev1.Pod, threshold int) []*corev1.Pod {
	if threshold <= 0 {
		return nil
	}
	var done []*corev1.Pod
	for _, p := range pods {
		if terminated(p) && !gone(p) {
			done = append(done, p)
		}
	}
	slices.SortFunc(done, olderFirst)
	return done[:max(len(done)-threshold, 0)]
}

// terminated reports whether the phase is final. An empty phase, which the API server has not defaulted yet, is not.
func terminated(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case "", corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
		return false
	}
	return true
}

func olderFirst(a, b *corev1.Pod) int {
	if x, y := evicted(a), evicted(b); x != y {
		if x {
			return -1
		}
		return 1
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
}

func evicted(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted"
}

// gone reports whether the pod was deleted without grace period; only finalizers keep it.
func gone(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && len(p.Finalizers) > 0 &&
		p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
}

// outOfService returns the terminating pods of nodes with the out-of-service taint.
func outOfService(pods []*corev1.Pod, nodes map[string]*corev1.Node) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range pods {
		if n := nodes[p.Spec.NodeName]; n != nil && p.DeletionTimestamp != nil && !podstate.NodeReady(n) && tainted(n) {
			out = append(out, p)
		}
	}
	return out
}

func tainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService
	})
}

// unscheduled returns the terminating pods that have no node.
func unscheduled(pods []*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range pods {
		if p.DeletionTimestamp != nil && p.Spec.NodeName == "" {
			out = append(out, p)
		}
	}
	return out
}

// orphans returns the pods of nodes that have been missing for the quarantine and that another read does not find
// either.
func (c *Controller) orphans(ctx context.Context, s *state, pods []*corev1.Pod,
	nodes map[string]*corev1.Node) ([]*corev1.Pod, error) {
	now, missing := c.deps.Clock.Now(), map[string]time.Time{}
	for _, p := range pods {
		name := p.Spec.NodeName
		if name == "" || nodes[name] != nil {
			continue
		}
		since, known := s.missing[name]
		if !known {
			since = now
		}
		missing[name] = since
	}
	s.missing = missing
	lost := map[string]bool{}
	for name, since := range s.missing {
		if c.deps.Clock.Since(since) < quarantine {
			continue
		}
		_, err := client.Get[*corev1.Node](ctx, c.deps.Client, "", name)
		switch {
		case err == nil:
			delete(s.missing, name)
		case apierrors.IsNotFound(err):
			lost[name] = true
		default:
			return nil, err
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !lost[p.Spec.NodeName] }), nil
}
