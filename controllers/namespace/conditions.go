package namespace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

// leftover describes the remaining objects of one kind in a namespace.
type leftover struct {
	kind       client.Kind
	count      int
	finalizers map[string]int // number of objects by finalizer
}

func leftoverOf(kind client.Kind, objs []client.Object) leftover {
	l := leftover{kind: kind, count: len(objs), finalizers: map[string]int{}}
	for _, obj := range objs {
		for _, f := range obj.GetFinalizers() {
			l.finalizers[f]++
		}
	}
	return l
}

// report sets the namespace's conditions, which explain what its deletion waits for, and returns the updated namespace.
// It writes only changes.
func (c *Controller) report(ctx context.Context, ns *corev1.Namespace, left []leftover,
	deleteErr error) (*corev1.Namespace, error) {
	now := metav1.NewTime(c.deps.Clock.Now())
	updated, err := client.Update(ctx, c.deps.Client, ns, "status", func(n *corev1.Namespace) error {
		n.UID = ns.UID
		n.Status.Phase = corev1.NamespaceTerminating
		for _, cond := range conditions(c.silent(), left, deleteErr) {
			cond.LastTransitionTime = now
			n.Status.Conditions = setCondition(n.Status.Conditions, cond)
		}
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return ns, nil
	}
	return updated, err
}

func conditions(silent []string, left []leftover, deleteErr error) []corev1.NamespaceCondition {
	discovery := condition(corev1.NamespaceDeletionDiscoveryFailure, len(silent) > 0, "DiscoveryFailed",
		"ResourcesDiscovered", "All resources successfully discovered")
	if len(silent) > 0 {
		discovery.Message = fmt.Sprintf("Discovery failed for some groups, %d failing: their API servers do not answer: %s",
			len(silent), strings.Join(silent, ", "))
	}
	parsing := condition(corev1.NamespaceDeletionGVParsingFailure, false, "", "ParsedGroupVersions",
		"All legacy kube types successfully parsed")
	failure := condition(corev1.NamespaceDeletionContentFailure, deleteErr != nil,
		"ContentDeletionFailed", "ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	if deleteErr != nil {
		failure.Message = deleteErr.Error()
	}
	content, finalizers := describe(left)
	remaining := condition(corev1.NamespaceContentRemaining, content != "",
		"SomeResourcesRemain", "ContentRemoved", "All content successfully removed")
	if content != "" {
		remaining.Message = "Some resources are remaining: " + content
	}
	held := condition(corev1.NamespaceFinalizersRemaining, finalizers != "",
		"SomeFinalizersRemain", "ContentHasNoFinalizers", "All content-preserving finalizers finished")
	if finalizers != "" {
		held.Message = "Some content in the namespace has finalizers remaining: " + finalizers
	}
	return []corev1.NamespaceCondition{discovery, parsing, failure, remaining, held}
}

// condition returns a condition: True with reason yes, or False with reason no and the message.
func condition(t corev1.NamespaceConditionType, is bool, yes, no, message string) corev1.NamespaceCondition {
	if is {
		return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionTrue, Reason: yes}
	}
	return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: no, Message: message}
}

// describe formats resources and finalizers with their counts.
func describe(left []leftover) (content, finalizers string) {
	var resources, held []string
	total := map[string]int{}
	for _, l := range left {
		name := l.kind.Resource.GroupResource().String()
		if l.kind.Resource.Group == "" {
			name += "."
		}
		resources = append(resources, fmt.Sprintf("%s has %d resource instances", name, l.count))
		for f, n := range l.finalizers {
			total[f] += n
		}
	}
	for _, f := range slices.Sorted(maps.Keys(total)) {
		held = append(held, fmt.Sprintf("%s in %d resource instances", f, total[f]))
	}
	return strings.Join(resources, ", "), strings.Join(held, ", ")
}

// setCondition adds or replaces a condition by type; the transition time changes only with the status.
func setCondition(all []corev1.NamespaceCondition, c corev1.NamespaceCondition) []corev1.NamespaceCondition {
	for i := range all {
		if all[i].Type == c.Type {
			if all[i].Status == c.Status {
				c.LastTransitionTime = all[i].LastTransitionTime
			}
			all[i] = c
			return all
		}
	}
	return append(all, c)
}
