package pod

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/resize"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// desired is the desired state of a pod.
type desired struct {
	pod       *corev1.Pod    // with the allocated resources of its containers
	requested *corev1.Pod    // with the requested resources
	deferred  *status.Resize // why the requested resources are not allocated; nil: they are
	gone      bool           // the object no longer exists
	failure   *status.Failure
	grace     *time.Duration // limits the grace period; nil: no limit
}

func newDesired(asked, allocated *corev1.Pod) *desired {
	return &desired{pod: allocated, requested: asked}
}

// labelsDiffer reports whether the two versions of a pod have other labels or annotations.
func labelsDiffer(old, next *corev1.Pod) bool {
	return !maps.Equal(next.Labels, old.Labels) || !maps.Equal(next.Annotations, old.Annotations)
}

// waitsForResources reports whether the requested resources are not allocated.
func (d *desired) waitsForResources() bool { return resize.Requested(&d.requested.Spec, &d.pod.Spec) }

// setPod makes next the desired pod. If check returns why the node cannot give the requested resources, the containers
// keep the allocated ones. resized means that next requests other resources than the allocated ones.
func (d *desired) setPod(next *corev1.Pod,
	check func(allocated, next *corev1.Pod) *status.Resize) (resized, granted bool) {
	d.requested, d.deferred = next, nil
	if resized = resize.Requested(&next.Spec, &d.pod.Spec); resized {
		if d.deferred = check(d.pod, next); d.deferred != nil {
			next = resize.KeepResources(next, d.pod)
		}
	}
	d.pod = next
	return resized, resized && d.deferred == nil
}

// fail makes the pod end for a reason, within grace; nil: within its own grace period.
func (d *desired) fail(why *status.Failure, grace *time.Duration) { d.failure, d.grace = why, grace }

// ends reports whether the pod must end.
func (d *desired) ends() bool {
	return d.gone || d.pod.DeletionTimestamp != nil || d.failure != nil || status.Finished(d.pod.Status.Phase)
}

// minGraceGone is the minimum grace period of a pod whose object is gone (upstream's).
const minGraceGone = time.Second

// graceLeft returns the remaining grace period of a pod that has been ending for some time. A pod whose object is gone
// has at least minGraceGone.
func (d *desired) graceLeft(ending time.Duration) time.Duration {
	grace := spec.OwnGrace(d.pod)
	if d.pod.DeletionTimestamp != nil {
		grace = spec.Grace(d.pod)
	}
	if d.grace != nil {
		grace = min(grace, *d.grace)
	}
	left := max(0, grace-ending)
	switch {
	case d.gone && d.pod.DeletionTimestamp == nil:
		return minGraceGone
	case d.gone:
		return max(left, minGraceGone)
	}
	return left
}
