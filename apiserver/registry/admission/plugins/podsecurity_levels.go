package plugins

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// maxPodsChecked is the maximum number of pods that are checked against a new enforce level (upstream:
// defaultNamespaceMaxPodsToCheck).
const maxPodsChecked = 3000

// namespace rejects invalid labels, and warns about existing pods that violate a stricter enforce level.
func (s *podSecurity) namespace(ctx context.Context, r *admission.Request, ns *corev1.Namespace) error {
	if r.Subresource != "" {
		return nil
	}
	levels, errs := api.PolicyToEvaluate(ns.Labels, privileged())
	if r.Operation == admission.Create {
		return invalidLabels(r, errs)
	}
	was, oldErrs := api.PolicyToEvaluate(r.Old.GetLabels(), privileged())
	if len(errs) > 0 && !reflect.DeepEqual(errs, oldErrs) {
		return invalidLabels(r, errs)
	}
	if !stricter(levels.Enforce, was.Enforce) {
		return nil
	}
	return s.warnExisting(ctx, r, ns.Name, levels.Enforce)
}

func invalidLabels(r *admission.Request, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(r.Resource.GVK().GroupKind(), r.Name, errs)
}

// stricter reports whether pods that passed the old level may fail the new one.
func stricter(next, old api.LevelVersion) bool {
	if next == old || next.Level == api.LevelPrivileged {
		return false
	}
	return next.Version != old.Version || api.CompareLevels(next.Level, old.Level) > 0
}

// warnExisting warns about the namespace's pods that violate its new level. Pods with the same violations share a
// warning.
func (s *podSecurity) warnExisting(ctx context.Context, r *admission.Request, namespace string,
	level api.LevelVersion) error {
	pods, err := client.List[*corev1.Pod](ctx, s.api, client.Selector{Namespace: namespace})
	if err != nil {
		return err
	}
	all := len(pods)
	pods = onePerController(pods)[:min(all, maxPodsChecked)]
	if len(pods) < all {
		r.Warn(fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", len(pods),
			all))
	}
	names := map[string][]string{} // names of pods by violations
	for _, pod := range pods {
		found, err := s.evaluate(level, checkedPod{&pod.ObjectMeta, &pod.Spec})
		if err != nil {
			return err
		}
		if !found.Allowed {
			names[found.ForbiddenReason()] = append(names[found.ForbiddenReason()], pod.Name)
		}
	}
	if len(names) > 0 {
		r.Warn(fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace,
			level.String()))
	}
	for _, line := range violationLines(names) {
		r.Warn(line)
	}
	return nil
}

// onePerController moves one pod of each controller to the front, because a controller's pods usually have the same
// template.
func onePerController(pods []*corev1.Pod) []*corev1.Pod {
	seen := map[types.UID]bool{}
	var first, alike []*corev1.Pod
	for _, pod := range pods {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && seen[owner.UID] {
			alike = append(alike, pod)
			continue
		}
		if owner != nil {
			seen[owner.UID] = true
		}
		first = append(first, pod)
	}
	return append(first, alike...)
}

// violationLines returns one line for each violation, in upstream's words.
func violationLines(names map[string][]string) []string {
	var lines []string
	for fault, pods := range names {
		name := slices.Min(pods)
		switch more := len(pods) - 1; more {
		case 0:
			lines = append(lines, fmt.Sprintf("%s: %s", name, fault))
		case 1:
			lines = append(lines, fmt.Sprintf("%s (and 1 other pod): %s", name, fault))
		default:
			lines = append(lines, fmt.Sprintf("%s (and %d other pods): %s", name, more, fault))
		}
	}
	slices.Sort(lines)
	return lines
}

// images iterates over the names and images of all containers of a pod.
func images(spec *corev1.PodSpec) iter.Seq2[string, string] {
	return func(yield func(name, image string) bool) {
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(list[i].Name, list[i].Image) {
					return
				}
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(spec.EphemeralContainers[i].Name, spec.EphemeralContainers[i].Image) {
				return
			}
		}
	}
}
