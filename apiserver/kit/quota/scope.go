package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
)

// Matches reports whether all of the quota's scopes match obj. A quota without scopes matches everything, one
// with scopes only pods or claims.
func Matches(spec *corev1.ResourceQuotaSpec, obj client.Object) bool {
	for _, scope := range spec.Scopes {
		if !inScope(&corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists},
			obj) {
			return false
		}
	}
	if spec.ScopeSelector == nil {
		return true
	}
	for i := range spec.ScopeSelector.MatchExpressions {
		if !inScope(&spec.ScopeSelector.MatchExpressions[i], obj) {
			return false
		}
	}
	return true
}

func inScope(r *corev1.ScopedResourceSelectorRequirement, obj client.Object) bool {
	switch o := obj.(type) {
	case *corev1.Pod:
		return podInScope(r, o)
	case *corev1.PersistentVolumeClaim:
		return r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass && claimInScope(r, o)
	}
	return false
}

func podInScope(r *corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	deadline := pod.Spec.ActiveDeadlineSeconds
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return deadline != nil && *deadline >= 0
	case corev1.ResourceQuotaScopeNotTerminating:
		return deadline == nil || *deadline < 0
	case corev1.ResourceQuotaScopeBestEffort:
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return pod.Status.QOSClass != corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		return selects(r, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return looksAbroad(pod.Spec.Affinity)
	}
	return false
}

// selects compares a value, "" if there is none, as label selectors do.
func selects(r *corev1.ScopedResourceSelectorRequirement, values ...string) bool {
	values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
	in := slices.ContainsFunc(values, func(v string) bool { return slices.Contains(r.Values, v) })
	switch r.Operator {
	case corev1.ScopeSelectorOpIn:
		return in
	case corev1.ScopeSelectorOpNotIn:
		return !in
	case corev1.ScopeSelectorOpExists:
		return len(values) > 0
	case corev1.ScopeSelectorOpDoesNotExist:
		return len(values) == 0
	}
	return false
}

// claimInScope checks every class that the claim has or may get.
func claimInScope(r *corev1.ScopedResourceSelectorRequirement, c *corev1.PersistentVolumeClaim) bool {
	var names []string
	for _, name := range []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName} {
		if name != nil {
			names = append(names, *name)
		}
	}
	if s := c.Status.ModifyVolumeStatus; s != nil {
		names = append(names, s.TargetVolumeAttributesClassName)
	}
	return selects(r, names...)
}

// looksAbroad reports whether a term of the affinity selects pods of other namespaces.
func looksAbroad(a *corev1.Affinity) bool {
	var terms []corev1.PodAffinityTerm
	if a != nil && a.PodAffinity != nil {
		terms = append(terms,
			affinityTerms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
				a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)...)
	}
	if a != nil && a.PodAntiAffinity != nil {
		terms = append(terms,
			affinityTerms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
				a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)...)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
	})
}

func affinityTerms(required []corev1.PodAffinityTerm,
	preferred []corev1.WeightedPodAffinityTerm) []corev1.PodAffinityTerm {
	terms := slices.Clone(required)
	for i := range preferred {
		terms = append(terms, preferred[i].PodAffinityTerm)
	}
	return terms
}
