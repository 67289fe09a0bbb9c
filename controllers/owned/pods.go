package owned

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/client/record"
	"monopod/apiserver/follow"
)

// parallel is how many requests SlowStart has in flight; upstream has as many as the
// batch.
const parallel = 100

// Pods creates and deletes the pods of owners, with upstream's Events about the owner.
type Pods struct {
	Client client.Client
	Events record.Eventer
}

// NewPod is a pod of a template that owner controls, with a generated name.
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

// Create stores a pod and returns it as the API has it. An error because the namespace is
// being deleted causes no Event.
func (p Pods) Create(ctx context.Context, owner client.Object, pod *corev1.Pod) (*corev1.Pod, error) {
	created, err := p.Client.Create(ctx, pod)
	switch {
	case err == nil:
		p.Events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", created.GetName())
		return created.(*corev1.Pod), nil
	case !Ending(err):
		p.Events.Eventf(owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
	}
	return nil, err
}

// Delete starts the deletion of a pod. Its error may be Gone.
func (p Pods) Delete(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	_, err := p.Client.Delete(ctx, client.RefOf(pod), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	switch {
	case err == nil:
		p.Events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
	case !Gone(err):
		p.Events.Eventf(owner, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
	}
	return err
}

// Ending reports whether a creation failed because the namespace is being deleted.
func Ending(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }

// Gone reports whether a deletion failed because the object does not exist any more, or
// another one has its name.
func Gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// SlowStart calls f with 0 to n-1 in parallel batches of 1, 2, 4…: if all fail for the
// same reason, few requests are wasted. A batch with an error is the last. It returns how
// many calls succeeded, and the errors of the last batch.
func SlowStart(n int, f func(i int) error) (succeeded int, err error) {
	for begin, size := 0, 1; begin < n; begin, size = begin+size, size*2 {
		batch := make([]int, min(size, n-begin))
		for i := range batch {
			batch[i] = begin + i
		}
		errs := follow.Each(parallel, batch, f)
		succeeded += len(batch) - len(errs)
		if len(errs) > 0 {
			return succeeded, errors.Join(errs...)
		}
	}
	return succeeded, nil
}
