package daemonset

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/owned"
)

// apply creates and deletes at most burst pods each. It returns the time until the next failed pod may be deleted.
func (r *run) apply(ctx context.Context, st *syncState, p plan) (time.Duration, error) {
	var again time.Duration
	for _, pod := range p.failed {
		if wait := r.Failures.Backoff(
			owned.Place{Owner: st.ds.UID, Generation: st.ds.Status.ObservedGeneration, Name: nodeOf(pod)}); wait > 0 {
			again = earliest(again, wait)
			continue
		}
		r.events.Eventf(st.ds, corev1.EventTypeWarning, "FailedDaemonPod",
			"Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, nodeOf(pod))
		p.delete = append(p.delete, pod)
	}
	creates := p.create[:min(len(p.create), burst)]
	_, err := owned.SlowStart(1, len(creates), func(i int) error {
		_, err := r.control.Create(ctx, st.ds, r.podFor(st, creates[i]))
		if owned.NamespaceTerminating(err) {
			return nil // the namespace is terminating
		}
		return err
	})
	errs := follow.Each(parallel, p.delete[:min(len(p.delete), burst)], func(pod *corev1.Pod) error {
		if pod.Status.Phase == corev1.PodSucceeded {
			r.events.Eventf(st.ds, corev1.EventTypeNormal, "SucceededDaemonPod",
				"Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, nodeOf(pod))
		}
		return r.control.Delete(ctx, st.ds, pod)
	})
	return again, errors.Join(append(errs, err)...)
}

// podFor returns a new pod for a node.
func (r *run) podFor(st *syncState, node string) *corev1.Pod {
	pod := owned.NewPod(st.ds, r.Adopter.Ref(st.ds), &st.ds.Spec.Template)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] = st.hash()
	if generation := st.ds.Annotations[generationAnnotation]; generation != "" {
		pod.Labels[podGenerationLabel] = generation
	}
	pod.Spec.Tolerations = tolerations(&pod.Spec)
	pod.Spec.Affinity = pinTo(pod.Spec.Affinity, node)
	return pod
}
