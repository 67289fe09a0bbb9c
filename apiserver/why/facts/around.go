package facts

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// NewestOf returns the ReplicaSet of a Deployment's current template, the one with the highest revision.
func (f *Facts) NewestOf(d *appsv1.Deployment) (newest *appsv1.ReplicaSet) {
	for _, rs := range Every[*appsv1.ReplicaSet](f) {
		if metav1.IsControlledBy(rs, d) && (newest == nil || revision(rs) > revision(newest)) {
			newest = rs
		}
	}
	return newest
}

func revision(rs *appsv1.ReplicaSet) (n int) {
	fmt.Sscan(rs.Annotations["deployment.kubernetes.io/revision"], &n) //nolint:errcheck // 0 then
	return n
}

// OwnedBy returns the pods that a ReplicaSet controls.
func OwnedBy(pods []*corev1.Pod, rs *appsv1.ReplicaSet) (out []*corev1.Pod) {
	for _, p := range pods {
		if rs != nil && metav1.IsControlledBy(p, rs) {
			out = append(out, p)
		}
	}
	return out
}

// LastJob returns the newest Job of a CronJob.
func (f *Facts) LastJob(c *batchv1.CronJob) (last *batchv1.Job) {
	for _, j := range Every[*batchv1.Job](f) {
		if metav1.IsControlledBy(j, c) && (last == nil || j.CreationTimestamp.After(last.CreationTimestamp.Time)) {
			last = j
		}
	}
	return last
}

// Selected returns the pods that a Service selects.
func (f *Facts) Selected(s *corev1.Service) (pods []*corev1.Pod) {
	for _, p := range slices.Concat(f.Pods, Every[*corev1.Pod](f)) {
		if slices.ContainsFunc(pods, func(known *corev1.Pod) bool { return known.UID == p.UID }) {
			continue
		}
		if p.Namespace == s.Namespace && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	return pods
}

// Backends returns the Services of an Ingress.
func Backends(i *networkingv1.Ingress) (all []*networkingv1.IngressServiceBackend) {
	add := func(b *networkingv1.IngressBackend) {
		if b != nil && b.Service != nil {
			all = append(all, b.Service)
		}
	}
	add(i.Spec.DefaultBackend)
	for _, r := range i.Spec.Rules {
		if r.HTTP != nil {
			for p := range r.HTTP.Paths {
				add(&r.HTTP.Paths[p].Backend)
			}
		}
	}
	return all
}

// Worst returns the pod that explains best why an owner is not ready; nil if all are.
func Worst(pods []*corev1.Pod) *corev1.Pod {
	rank := func(p *corev1.Pod) int {
		ready := PodCondition(p, corev1.PodReady)
		switch {
		case p.DeletionTimestamp != nil:
			return 3
		case p.Status.Phase == corev1.PodSucceeded || ready != nil && ready.Status == corev1.ConditionTrue:
			return 4
		case p.Spec.NodeName == "":
			return 1
		case Trouble(p):
			return 0
		}
		return 2
	}
	if len(pods) == 0 {
		return nil
	}
	first := slices.MinFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
	if rank(first) == 4 {
		return nil
	}
	return first
}

// Trouble reports whether a container of a pod waits for something other than its creation, or has failed.
func Trouble(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed ||
		slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), ContainerTrouble)
}

// startReasons are the reasons of waiting containers that start normally.
var startReasons = []string{"", "ContainerCreating", "PodInitializing"}

// ContainerTrouble reports whether a container waits for something other than its creation, or has failed.
func ContainerTrouble(c corev1.ContainerStatus) bool {
	w, t := c.State.Waiting, c.State.Terminated
	return w != nil && !slices.Contains(startReasons, w.Reason) || t != nil && t.ExitCode != 0
}

// PodCondition returns the pod's condition of a type, or nil if it has none.
func PodCondition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}
