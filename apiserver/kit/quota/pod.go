package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// alive: the pod has not finished, and its deletion is not overdue.
func alive(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	grace := pod.DeletionGracePeriodSeconds
	if pod.DeletionTimestamp == nil || grace == nil {
		return true
	}
	return !now.After(pod.DeletionTimestamp.Add(time.Duration(*grace) * time.Second))
}

// pod adds the usage of a pod's containers, if the quota limits it.
func (u use) pod(pod *corev1.Pod) {
	u.count(corev1.ResourcePods, 1)
	requests := u.wanted == nil ||
		u.anyOf(func(name corev1.ResourceName) bool { return !limitName(name) && podName(name) })
	limits := u.wanted == nil || u.anyOf(limitName)
	if !requests && !limits {
		return
	}
	opts := helpers.PodResourcesOptions{UseStatusResources: true}
	if requests {
		u.compute(helpers.PodRequests(pod, opts), nil)
	}
	if limits {
		u.compute(nil, helpers.PodLimits(pod, opts))
	}
}

func (u use) anyOf(is func(corev1.ResourceName) bool) bool {
	for name := range u.wanted {
		if is(name) {
			return true
		}
	}
	return false
}

func limitName(name corev1.ResourceName) bool { return strings.HasPrefix(string(name), limitsPrefix) }

const limitsPrefix = "limits."

// compute names requests and limits as quotas do. Limits exist only for cpu, memory and ephemeral-storage.
func (u use) compute(requests, limits corev1.ResourceList) {
	for name, amount := range requests {
		switch {
		case basic(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			u.amount(name, amount)
			u.amount(corev1.DefaultResourceRequestsPrefix+name, amount)
		case extended(name):
			u.amount(corev1.DefaultResourceRequestsPrefix+name, amount)
		}
	}
	for name, amount := range limits {
		if basic(name) {
			u.amount(limitsPrefix+name, amount)
		}
	}
}

func basic(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// extended reports whether the resource has the domain of a device vendor.
func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// podName reports whether pods can use the quota's resource name, apart from their number.
func podName(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || basic(name) {
		return true
	}
	if limit, ok := strings.CutPrefix(string(name), limitsPrefix); ok {
		return basic(corev1.ResourceName(limit))
	}
	request, ok := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return ok && request != string(corev1.ResourceStorage)
}

// Must returns an error if the pod does not specify a resource that hard limits: a limit on cpu or memory
// requires every container to specify it.
func Must(hard corev1.ResourceList, pod *corev1.Pod) error {
	required := corev1.ResourceList{}
	for name := range hard {
		if mustName(name) {
			required[name] = resource.Quantity{}
		}
	}
	if r := pod.Spec.Resources; r != nil {
		for name := range said(required, r) {
			delete(required, name) // the pod itself specifies it
		}
	}
	missing := map[corev1.ResourceName][]string{}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			amounts := said(required, &list[i].Resources)
			for name := range required {
				if _, ok := amounts[name]; !ok {
					missing[name] = append(missing[name], list[i].Name)
				}
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(missing[name], ",")))
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

// said returns the required resources that r specifies.
func said(required corev1.ResourceList, r *corev1.ResourceRequirements) corev1.ResourceList {
	u := use{wanted: required, used: corev1.ResourceList{}}
	u.compute(r.Requests, r.Limits)
	return u.used
}

func mustName(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
		return true
	}
	return false
}
