package pod

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/resize"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
)

// desired is what is asked of a pod.
type desired struct {
	pod      *corev1.Pod    // with the resources that its containers are given
	asked    *corev1.Pod    // with those that it asks for
	deferred *status.Resize // why it is not given those; nil: it is
	gone     bool           // there is no such object any more
	failure  *status.Failure
	grace    *time.Duration // bounds the grace of its end; nil: nothing does
}

func newDesired(asked, allocated *corev1.Pod) *desired { return &desired{pod: allocated, asked: asked} }

// relabels says whether a newer version has other labels or annotations.
func (d *desired) relabels(next *corev1.Pod) bool { return relabeled(d.pod, next) }

func relabeled(old, next *corev1.Pod) bool {
	return !maps.Equal(next.Labels, old.Labels) || !maps.Equal(next.Annotations, old.Annotations)
}

// waitsForResources says whether the pod asks for resources that it is not given.
func (d *desired) waitsForResources() bool { return resize.Asked(&d.asked.Spec, &d.pod.Spec) }

// ask takes over next as the pod to run, but with the resources that its containers had
// where the node has no more, as fits says. asks: it asks for others than they have.
func (d *desired) ask(next *corev1.Pod, fits func(had, pod *corev1.Pod) *status.Resize) (asks, granted bool) {
	d.asked, d.deferred = next, nil
	if asks = resize.Asked(&next.Spec, &d.pod.Spec); asks {
		if d.deferred = fits(d.pod, next); d.deferred != nil {
			next = resize.Keep(next, d.pod)
		}
	}
	d.pod = next
	return asks, asks && d.deferred == nil
}

// remove notes that there is no such object any more.
func (d *desired) remove() { d.gone = true }

// fail has the pod end for a reason, within grace or, where that is nil, its own.
func (d *desired) fail(why *status.Failure, grace *time.Duration) { d.failure, d.grace = why, grace }

// ends says whether the pod is to end.
func (d *desired) ends() bool {
	return d.gone || d.pod.DeletionTimestamp != nil || d.failure != nil || status.Finished(d.pod.Status.Phase)
}

// minGone is the grace of a pod whose object is already gone, as upstream has it.
const minGone = time.Second

// graceLeft is what is left for the containers of a pod that has been ending for some
// time. A pod already gone from the API has what it had left, at least a second.
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
		return minGone
	case d.gone:
		return max(left, minGone)
	}
	return left
}
