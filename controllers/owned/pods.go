package owned

import (
	"context"
	"errors"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
)

// Pods creates and deletes the pods of owners, and records upstream's Events about the owner.
type Pods struct {
	Client client.Client
	Events record.Eventer
}

// NewPod returns a pod with the template, a generated name, and owner as its controller.
func NewPod(owner client.Object, ref metav1.OwnerReference, template *corev1.PodTemplateSpec) *corev1.Pod {
	t := template.DeepCopy()
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: owner.GetName() + "-", Namespace: owner.GetNamespace(),
			Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{ref},
		},
		Spec: t.Spec,
	}
}

// Create stores a pod and returns the stored object. It records no Event if the namespace is terminating.
func (p Pods) Create(ctx context.Context, owner client.Object, pod *corev1.Pod) (*corev1.Pod, error) {
	created, err := p.Client.Create(ctx, pod)
	switch {
	case err == nil:
		p.Events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", created.GetName())
		return created.(*corev1.Pod), nil
	case !NamespaceTerminating(err):
		p.Events.Eventf(owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
	}
	return nil, err
}

// Delete starts the deletion of a pod. It returns nil if the pod no longer exists.
func (p Pods) Delete(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	_, err := p.Client.Delete(ctx, client.RefOf(pod),
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	switch {
	case err == nil:
		p.Events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
	case !Gone(err):
		p.Events.Eventf(owner, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
	}
	return IgnoreGone(err)
}

// NamespaceTerminating reports whether a creation failed because the namespace is terminating.
func NamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Gone reports whether a deletion failed because the object no longer exists, or was replaced by another of the same
// name.
func Gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// IgnoreGone returns err, or nil if Gone(err).
func IgnoreGone(err error) error {
	if Gone(err) {
		return nil
	}
	return err
}

// SlowStart calls f with 0 to n-1 in concurrent batches, each twice as large as the previous one, so that few requests
// are wasted if all fail for the same reason. It starts no batch after an error. It returns the number of successful
// calls, and the errors.
func SlowStart(first, n int, f func(i int) error) (succeeded int, err error) {
	for begun, size := 0, max(first, 1); begun < n; size *= 2 {
		batch := make([]int, min(size, n-begun))
		for i := range batch {
			batch[i] = begun + i
		}
		begun += len(batch)
		errs := follow.Each(len(batch), batch, f)
		if succeeded += len(batch) - len(errs); len(errs) > 0 {
			return succeeded, errors.Join(errs...)
		}
	}
	return succeeded, nil
}

// Seconds returns n seconds, or the maximum Duration if that is less, because fields of an object may contain any
// number.
func Seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Second))) * time.Second
}
