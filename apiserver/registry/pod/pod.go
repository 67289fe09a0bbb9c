package pod

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
)

// Resource returns the kind Pod. below are subresources that depend on this package.
func Resource(below ...kind.Subresource) kind.Resource {
	return kind.Resource{
		GVR:          client.Pods,
		Kind:         "Pod",
		Namespaced:   true,
		ShortNames:   []string{"po"},
		Categories:   []string{"all"},
		Subresources: append(subresources(), below...),
		New:          func() kind.Object { return new(corev1.Pod) },
		Default:      podDefault,
		Prepare:      podPrepare,
		Validate:     podValidate,
		Grace:        podGrace,

		ReturnDeleted: true,

		Warnings: podWarnings,
		Fields:   podFields,
		Field:    podField,
		Columns:  podColumns(),
	}
}

// podPrepare sets the status of a new pod. An update can change either spec or status. A change of the spec increments
// the generation.
func podPrepare(next, cur kind.Object, subresource string) {
	pod := next.(*corev1.Pod)
	if cur == nil {
		pod.Generation = 1
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
		if len(pod.Spec.SchedulingGates) > 0 {
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
				Message: "Scheduling is blocked due to non-empty scheduling gates", LastTransitionTime: pod.CreationTimestamp,
			}}
		}
		mergeLabelKeys(pod)
		return
	}
	old := cur.(*corev1.Pod)
	switch subresource {
	case "":
		pod.Status = *old.Status.DeepCopy()
		podDefault(pod) // first, so that an omitted default is not a change
		// Pods of an earlier release may have modes of emptyDirs. The defaults drop the modes, but volumes are immutable.
		for i := range min(len(pod.Spec.Volumes), len(old.Spec.Volumes)) {
			if is, was := pod.Spec.Volumes[i].EmptyDir, old.Spec.Volumes[i].EmptyDir; is != nil && was != nil {
				is.Mode = was.Mode
			}
		}
		if !equality.Semantic.DeepEqual(pod.Spec, old.Spec) {
			pod.Generation = old.Generation + 1
		}
	case "status": // keep the fields that a status update cannot change or remove
		pod.Spec = *old.Spec.DeepCopy()
		pod.OwnerReferences = slices.Clone(old.OwnerReferences)
		kind.SetIfZero(&pod.Status.QOSClass, old.Status.QOSClass)
		kind.SetIfZero(&pod.Status.ObservedGeneration, old.Status.ObservedGeneration)
	}
}

// Bind assigns the pod to the node target and clears its nomination. As upstream, it does not change the generation: no
// agent has seen the pod yet.
func Bind(pod *corev1.Pod, target string, now metav1.Time) {
	pod.Spec.NodeName = target
	pod.Status.NominatedNodeName = ""
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now}
	for i, c := range pod.Status.Conditions {
		if c.Type != corev1.PodScheduled {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			scheduled.LastTransitionTime = c.LastTransitionTime
		}
		pod.Status.Conditions[i] = scheduled
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, scheduled)
}

// podGrace returns the requested grace period, or by default the pod's. Pods without a node have none. A negative one
// becomes one second.
func podGrace(cur kind.Object, requested *int64) int64 {
	pod := cur.(*corev1.Pod)
	if pod.Spec.NodeName == "" || podDone(pod) {
		return 0
	}
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case requested != nil:
		grace = *requested
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if grace < 0 {
		return 1
	}
	return grace
}

// podDone reports whether all containers have ended permanently.
func podDone(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func podFields(obj kind.Object) fields.Set {
	set := fields.Set{}
	for _, name := range []string{
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
		"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
	} {
		set[name] = podField(obj, name)
	}
	return set
}

// podField returns one of podFields.
func podField(obj kind.Object, name string) string {
	pod := obj.(*corev1.Pod)
	switch name {
	case "spec.nodeName":
		return pod.Spec.NodeName
	case "spec.restartPolicy":
		return string(pod.Spec.RestartPolicy)
	case "spec.schedulerName":
		return pod.Spec.SchedulerName
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName
	case "spec.hostNetwork":
		return strconv.FormatBool(pod.Spec.HostNetwork)
	case "status.phase":
		return string(pod.Status.Phase)
	case "status.podIP", "status.podIPs":
		return podIP(pod)
	case "status.nominatedNodeName":
		return pod.Status.NominatedNodeName
	}
	return ""
}

// podIP returns the pod's first address; empty: none.
func podIP(pod *corev1.Pod) string {
	if len(pod.Status.PodIPs) > 0 {
		return pod.Status.PodIPs[0].IP
	}
	return pod.Status.PodIP
}

// podQOS returns the QoS class by cpu and memory: Guaranteed if every container has limits and equal requests,
// BestEffort if none has either. Requests and limits of the pod itself take precedence over those of its containers.
func podQOS(spec *corev1.PodSpec) corev1.PodQOSClass {
	if spec.Resources != nil && len(spec.Resources.Limits)+len(spec.Resources.Requests) > 0 {
		return resourcesQOS(spec.Resources)
	}
	var qos corev1.PodQOSClass
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			one := resourcesQOS(&list[i].Resources)
			if qos == "" {
				qos = one
			} else if qos != one {
				qos = corev1.PodQOSBurstable
			}
		}
	}
	return qos
}

func resourcesQOS(r *corev1.ResourceRequirements) corev1.PodQOSClass {
	guaranteed, said := true, false
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit := r.Limits[name]
		request, ok := r.Requests[name]
		said = said || !limit.IsZero() || !request.IsZero()
		guaranteed = guaranteed && !limit.IsZero() && (!ok || request.Cmp(limit) == 0)
	}
	switch {
	case !said:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
