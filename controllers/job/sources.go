package job

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/owned"
)

// onJob wakes the Job and, if it is deleted, its pods that have not been counted.
func (r *run) onJob(old, new client.Object) []key {
	if job, _ := new.(*batchv1.Job); old == nil && foreign(job) {
		r.counts.external.WithLabelValues(*job.Spec.ManagedBy).Inc()
	}
	if new != nil {
		return []key{{Key: follow.KeyOf(new)}}
	}
	r.failures.forget(old.GetUID())
	var keys []key
	for _, pod := range r.pods.Of(old) { // pods that the index lacks wake themselves when they arrive
		if tracked(pod) {
			keys = append(keys, key{follow.KeyOf(pod), true})
		}
	}
	return keys
}

// onPod updates the index. It wakes the Jobs that own the pod, owned it, or may adopt it, and the pod if no Job will
// count it. It may be called again after an error.
func (r *run) onPod(ctx context.Context, old, new client.Object) ([]key, error) {
	r.pods.Change(old, new)
	jobs, err := owned.Changed(ctx, r.deps.Client, kind,
		func(job *batchv1.Job) *metav1.LabelSelector { return job.Spec.Selector }, old, new)
	if err != nil {
		return nil, err
	}
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	r.counts.pod(was, is)
	keys := make([]key, 0, len(jobs)+1)
	for _, k := range jobs {
		keys = append(keys, key{Key: k})
	}
	if new == nil {
		return keys, nil
	}
	lost, err := r.uncountable(ctx, is)
	if lost {
		keys = append(keys, key{follow.KeyOf(new), true})
	}
	return keys, err
}

// uncountable reports whether the pod still has the finalizer of a Job that no longer exists or has finished.
func (r *run) uncountable(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if !tracked(pod) {
		return false, nil
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != kind {
		return true, nil
	}
	job, err := client.Get[*batchv1.Job](ctx, r.deps.Client, pod.Namespace, owner.Name)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return job.UID != owner.UID || finished(job) && !foreign(job), nil
}
