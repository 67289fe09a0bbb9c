// Package resize decides about pods whose resources change while they run: whether the node has enough for it,
// which containers must restart for it, and what they have until then.
package resize

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"monopod/agent/pod/plan"
	"monopod/agent/podapi/amount"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/predicates"
)

// Requested reports whether next, or a container of it, has other resources than in old.
func Requested(next, old *corev1.PodSpec) bool {
	return len(changed(own(next), own(old))) > 0 ||
		spec.AnyDiffers(next, old, func(a, b *corev1.ResourceRequirements) bool { return len(changed(a, b)) > 0 })
}

// own returns the resources of the pod itself.
func own(s *corev1.PodSpec) *corev1.ResourceRequirements {
	if s.Resources == nil {
		return &corev1.ResourceRequirements{}
	}
	return s.Resources
}

// changed returns those of cpu and memory that differ.
func changed(a, b *corev1.ResourceRequirements) []corev1.ResourceName {
	var out []corev1.ResourceName
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if !amount.Same(a.Requests, b.Requests, name) || !amount.Same(a.Limits, b.Limits, name) {
			out = append(out, name)
		}
	}
	return out
}

// KeepResources returns next with the resources of had and of its containers.
func KeepResources(next, had *corev1.Pod) *corev1.Pod {
	return with(next, had.Spec.Resources, func(name string) *corev1.ResourceRequirements {
		if c := spec.Find(had, name); c != nil {
			return &c.Resources
		}
		return nil
	})
}

// Allocated returns the pod as an earlier agent ran it, while it waited for resources.
func Allocated(pod *corev1.Pod) *corev1.Pod {
	if status.Condition(pod.Status.Conditions, corev1.PodResizePending) == nil {
		return pod
	}
	return with(pod, Level(pod), func(name string) *corev1.ResourceRequirements { return Stored(pod, name, "") })
}

// Level returns the resources of the pod itself that an earlier agent gave it; its quantities are shared, nil: it has
// none. The status also has the sums of resources that only containers have.
func Level(pod *corev1.Pod) *corev1.ResourceRequirements {
	want, had := pod.Spec.Resources, pod.Status.Resources
	if want == nil || had == nil {
		return want
	}
	return &corev1.ResourceRequirements{Requests: only(had.Requests, want.Requests), Limits: only(had.Limits, want.Limits)}
}

// only returns those of had that want has, too.
func only(had, want corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name := range want {
		if q, ok := had[name]; ok {
			out[name] = q
		}
	}
	return out
}

// with returns a copy of the pod that itself has the resources in level, and each container those that of returns.
func with(pod *corev1.Pod, level *corev1.ResourceRequirements,
	of func(name string) *corev1.ResourceRequirements) *corev1.Pod {
	kept := pod.DeepCopy()
	kept.Spec.Resources = level.DeepCopy()
	for _, c := range spec.Containers(&kept.Spec) {
		if had := of(c.Name); had != nil {
			c.Resources = *had.DeepCopy()
		}
	}
	return kept
}

// Stored returns the resources of a container in the status, or of the instance of it with the ID. It is shared;
// nil: none.
func Stored(pod *corev1.Pod, name, id string) *corev1.ResourceRequirements {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name && (id == "" || list[i].ContainerID == "containerd://"+id) {
				return list[i].Resources
			}
		}
	}
	return nil
}

// Pending returns why the node, which also runs others, cannot give a pod what it requests: never, or not now;
// nil if it can.
func Pending(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) *status.Resize {
	if f := predicates.Resources(pod, nil, node); f != nil {
		return pending(corev1.PodReasonInfeasible, f.Message)
	}
	if f := predicates.Resources(pod, others, node); f != nil {
		return pending(corev1.PodReasonDeferred, f.Message)
	}
	return nil
}

// Infeasible returns a permanent refusal, with the reason.
func Infeasible(why string) *status.Resize { return pending(corev1.PodReasonInfeasible, why) }

func pending(reason, message string) *status.Resize {
	return &status.Resize{Type: corev1.PodResizePending, Reason: reason,
		Message: strings.TrimPrefix(message, "Pod was rejected: ")}
}

// Plan returns which of the running containers have other resources than allocated: those that must restart for
// it, and those that must not. level is what the pod itself has: its limits are those of containers without one.
func Plan(pod *corev1.Pod, level *corev1.ResourceRequirements,
	seen *status.Observed) (restart []plan.Kill, change []*corev1.Container) {
	pods := changed(&corev1.ResourceRequirements{Limits: own(&pod.Spec).Limits},
		&corev1.ResourceRequirements{Limits: level.Limits})
	for _, c := range spec.Containers(&pod.Spec) {
		now := seen.Latest(c.Name)
		if now == nil || now.State != status.Running || now.Resources == nil {
			continue
		}
		names := changed(&c.Resources, now.Resources)
		for _, name := range pods {
			if q := c.Resources.Limits[name]; q.IsZero() {
				names = append(names, name)
			}
		}
		switch {
		case len(names) == 0:
		case restarts(c, names):
			restart = append(restart,
				plan.Kill{Container: now, Message: fmt.Sprintf("Container %s resize requires restart", c.Name)})
		default:
			change = append(change, c)
		}
	}
	return restart, change
}

// Lower is a memory limit that gets lower.
type Lower struct {
	of    string   // "pod", or the container's name
	ids   []string // of the containers whose usage it limits
	limit int64    // in bytes
}

// Lowered returns the memory limits of the pod itself and of the containers in list, which run and keep running, that
// get lower. level is what the pod itself has.
func Lowered(pod *corev1.Pod, level *corev1.ResourceRequirements, seen *status.Observed,
	list []*corev1.Container) (out []Lower) {
	podLimit, podHad := own(&pod.Spec).Limits.Memory().Value(), level.Limits.Memory().Value()
	add := func(l Lower, had int64) {
		if l.limit != 0 && (had == 0 || l.limit < had) {
			out = append(out, l)
		}
	}
	whole := Lower{of: "pod", limit: podLimit}
	for i := range seen.Containers {
		if seen.Containers[i].State == status.Running {
			whole.ids = append(whole.ids, seen.Containers[i].ID)
		}
	}
	add(whole, podHad)
	for _, c := range list { // the pod's limit is that of containers without one
		now := seen.Latest(c.Name)
		limit := cmp.Or(c.Resources.Limits.Memory().Value(), podLimit)
		had := cmp.Or(now.Resources.Limits.Memory().Value(), podHad)
		add(Lower{of: fmt.Sprintf("container %q", c.Name), ids: []string{now.ID}, limit: limit}, had)
	}
	return out
}

// BelowUsage returns an error if one of the limits is less than what is used: instead of refusing it, the kernel would
// kill processes. usage is the memory in bytes that containers use, by their IDs.
func BelowUsage(limits []Lower, usage map[string]uint64) error {
	var errs []error
	for _, l := range limits {
		used := uint64(0)
		for _, id := range l.ids {
			used += usage[id]
		}
		if used >= uint64(l.limit) {
			errs = append(errs, fmt.Errorf("attempting to set %s memory limit (%d) below current usage (%d)",
				l.of, l.limit, used))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("cannot decrease memory limits: %w", utilerrors.NewAggregate(errs))
}

// Differs reports whether the pod itself has other resources than allocated.
func Differs(pod *corev1.Pod, level *corev1.ResourceRequirements) bool {
	return len(changed(own(&pod.Spec), level)) > 0
}

// Actual returns the resources of the pod itself, or none.
func Actual(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	return own(&corev1.PodSpec{Resources: r}).DeepCopy()
}

// restarts reports whether a container must restart when these resources change.
func restarts(c *corev1.Container, names []corev1.ResourceName) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
		return p.RestartPolicy == corev1.RestartContainer && slices.Contains(names, p.ResourceName)
	})
}

// Widest returns the pod with the larger of its and its containers' current and allocated resources.
func Widest(pod *corev1.Pod, level *corev1.ResourceRequirements, seen *status.Observed) *corev1.Pod {
	wide := pod.DeepCopy()
	if r := wide.Spec.Resources; r != nil {
		r.Limits, r.Requests = amount.Larger(r.Limits, level.Limits), amount.Larger(r.Requests, level.Requests)
	}
	for _, c := range spec.Containers(&wide.Spec) {
		if now := seen.Latest(c.Name); now != nil && now.Resources != nil {
			c.Resources.Limits = amount.Larger(c.Resources.Limits, now.Resources.Limits)
			c.Resources.Requests = amount.Larger(c.Resources.Requests, now.Resources.Requests)
		}
	}
	return wide
}

// summary is what the Events of a resize show, as kubelet's.
type summary struct {
	InitContainers []container `json:"initContainers,omitempty"`
	Containers     []container `json:"containers,omitempty"`
	Generation     int64       `json:"generation"`
	Error          string      `json:"error,omitempty"`
}

type container struct {
	Name      string                      `json:"name"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

// Message returns the message of an Event: what happened, the resources, and what failed.
func Message(what string, pod *corev1.Pod, failed string) string {
	all := func(list []corev1.Container) (out []container) {
		for i := range list {
			out = append(out, container{list[i].Name, list[i].Resources})
		}
		return out
	}
	text, err := json.Marshal(summary{all(pod.Spec.InitContainers), all(pod.Spec.Containers), pod.Generation, failed})
	if err != nil { // never: all of it can be encoded
		return what
	}
	return what + ": " + string(text)
}
