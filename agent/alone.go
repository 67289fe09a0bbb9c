package agent

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
)

// errNotAlone is upstream's text.
var errNotAlone = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// takeAlone gives the pod a claim that is for one pod at a time, if no other has it:
// the scheduler sees to that, but not of pods that say where they run themselves.
func (w *worker) takeAlone(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if !slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod) {
		return nil
	}
	if !w.hasRun() {
		had, err := w.a.hadBefore(ctx, c, w.uid)
		if err != nil {
			return err
		}
		if had {
			return errNotAlone
		}
	}
	if !w.a.alone.Take(types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, w.uid) {
		return errNotAlone
	}
	return nil
}

// hasRun: a container of the pod was made, as the runtime or the API knows.
func (w *worker) hasRun() bool { return len(w.seen.Containers) > 0 || ranBefore(w.pod) }

// hadBefore: a pod other than uid, that has not ended, was given the claim, perhaps
// by an agent before this one.
func (a *Agent) hadBefore(ctx context.Context, c *corev1.PersistentVolumeClaim, uid types.UID) (bool, error) {
	pods, err := client.List[*corev1.Pod](ctx, a.Client, client.Selector{
		Namespace: c.Namespace, Fields: fields.OneTermEqualSelector("spec.nodeName", a.cfg.NodeName)})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		own := pod.UID == uid || pod.Annotations[corev1.MirrorPodAnnotationKey] == string(uid)
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		return !own && !ended && slices.Contains(claim.AllOf(pod), c.Name) && (ranBefore(pod) || a.madeFor(pod.UID))
	}), nil
}

// madeFor: the runtime has containers of the pod.
func (a *Agent) madeFor(uid types.UID) bool {
	w := a.all()[uid]
	if w == nil {
		return false
	}
	seen := w.snapshot.Load()
	return seen != nil && len(seen.Containers) > 0
}

// dropAlone lets others have the pod's claims, now that its volumes are gone.
func (w *worker) dropAlone() {
	for _, c := range w.a.alone.Drop(w.uid) {
		w.a.wakeForClaim(c.Namespace, c.Name)
	}
}
