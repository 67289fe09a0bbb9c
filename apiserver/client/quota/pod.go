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

// alive: the pod has not finished, and was not due to be gone by now.
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

func addPod(used corev1.ResourceList, pod *corev1.Pod) {
	used[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	opts := helpers.PodResourcesOptions{UseStatusResources: true}
	maps.Copy(used, compute(helpers.PodRequests(pod, opts), helpers.PodLimits(pod, opts)))
}

// compute names requests and limits as quotas do. Only cpu, memory and
// ephemeral-storage can be limited by their limits.
func compute(requests, limits corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{}
	for name, amount := range requests {
		switch {
		case basic(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			used[name] = amount
			used[corev1.DefaultResourceRequestsPrefix+name] = amount
		case extended(name):
			used[corev1.DefaultResourceRequestsPrefix+name] = amount
		}
	}
	for name, amount := range limits {
		if basic(name) {
			used["limits."+name] = amount
		}
	}
	return used
}

func basic(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// extended: a device of somebody else's domain.
func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// podName says whether pods can use what a quota calls name, their number aside.
func podName(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || basic(name) {
		return true
	}
	if limit, ok := strings.CutPrefix(string(name), "limits."); ok {
		return basic(corev1.ResourceName(limit))
	}
	request, ok := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return ok && request != string(corev1.ResourceStorage)
}

// Must returns why a quota over hard cannot tell what the pod will use: a limit
// on cpu or memory wants every container to speak of it. Nil: it can.
func Must(hard corev1.ResourceList, pod *corev1.Pod) error {
	required := map[corev1.ResourceName]bool{}
	for name := range hard {
		if mustName(name) {
			required[name] = true
		}
	}
	if r := pod.Spec.Resources; r != nil {
		for name := range compute(r.Requests, r.Limits) {
			delete(required, name) // the pod itself says it
		}
	}
	missing := map[corev1.ResourceName][]string{}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			said := compute(list[i].Resources.Requests, list[i].Resources.Limits)
			for name := range required {
				if _, ok := said[name]; !ok {
					missing[name] = append(missing[name], list[i].Name)
				}
			}
		}
	}
	return mustSpecify(missing)
}

func mustName(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
		return true
	}
	return false
}

func mustSpecify(missing map[corev1.ResourceName][]string) error {
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
