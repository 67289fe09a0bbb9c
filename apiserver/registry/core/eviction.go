package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/pod"
)

// evictionSubresource returns the subresource eviction.
func evictionSubresource() kind.Subresource {
	sub := kind.Posted("eviction", policyv1.SchemeGroupVersion.WithKind("Eviction"),
		func() kind.Object { return new(policyv1.Eviction) })
	sub.Update = func(ctx context.Context, in kind.Registry, ref client.Ref, change client.Change) (kind.Object, error) {
		return (&evictor{in}).update(ctx, ref, change)
	}
	return sub
}

// evictor deletes pods within their disruption budgets.
type evictor struct{ kind.Registry }

// update implements Subresource.Update. change gets an empty Eviction. update returns change's result when the pod is
// being deleted.
func (e *evictor) update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	empty := &policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{Kind: "Eviction", APIVersion: "policy/v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
	}
	asked, err := change(empty)
	if err != nil {
		return nil, err
	}
	eviction, ok := asked.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", asked))
	}
	if eviction.Name != ref.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	var opts metav1.DeleteOptions
	if eviction.DeleteOptions != nil {
		opts = *eviction.DeleteOptions
	}
	switch { // the request, the Eviction or both may ask for a dry run
	case len(opts.DryRun) == 0:
	case reflect.DeepEqual(opts.DryRun, []string{metav1.DryRunAll}):
		ctx = e.DryRun(ctx)
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"Non-matching dry-run options in request and content: %v and %v", []string{metav1.DryRunAll}, opts.DryRun))
	}
	return eviction, e.evict(ctx, ref.Sub(""), eviction, opts)
}

// errPodChanged reports that the pod has changed since the decision.
var errPodChanged = errors.New("the pod has changed")

// evictionTries is the maximum number of attempts after conflicts (upstream: EvictionsRetry).
const evictionTries = 20

// evict deletes the pod if its disruption budget allows it, and sets the condition DisruptionTarget.
func (e *evictor) evict(ctx context.Context, ref client.Ref, eviction *policyv1.Eviction,
	opts metav1.DeleteOptions) error {
	for try := 1; ; try++ {
		err := e.evictOnce(ctx, ref, eviction, opts)
		if !errors.Is(err, errPodChanged) {
			return err
		}
		if try == evictionTries {
			return apierrors.NewTimeoutError(fmt.Sprintf("couldn't evict pod %q due to conflicts", ref.Name), 10)
		}
	}
}

func (e *evictor) evictOnce(ctx context.Context, ref client.Ref, eviction *policyv1.Eviction,
	opts metav1.DeleteOptions) error {
	obj, err := e.Get(ctx, ref)
	if err != nil {
		return err
	}
	victim := obj.(*corev1.Pod)
	if err := e.Admit(ctx, eviction, victim); err != nil {
		return err
	}
	if err := e.Check(victim, opts.Preconditions); err != nil {
		return err
	}
	if !pod.Disrupts(victim) {
		_, err := e.Delete(ctx, ref, opts)
		return err
	}
	guarded, err := e.takeDisruption(ctx, victim)
	if err != nil {
		return err
	}
	return e.disrupt(ctx, ref, victim, opts, guarded)
}

// disrupt sets the pod's condition DisruptionTarget and deletes the pod. If no disruption was taken because the pod was
// not ready, the pod must not have changed.
func (e *evictor) disrupt(ctx context.Context, ref client.Ref, victim *corev1.Pod, opts metav1.DeleteOptions,
	unguarded bool) error {
	marked, err := e.Update(ctx, ref.Status(), func(cur client.Object) (client.Object, error) {
		if cur.GetUID() != victim.UID {
			return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
		}
		if unguarded && cur.GetResourceVersion() != victim.ResourceVersion {
			return nil, errPodChanged
		}
		if err := e.Check(cur, opts.Preconditions); err != nil {
			return nil, err
		}
		next := cur.DeepCopyObject().(*corev1.Pod)
		pod.SetCondition(&next.Status, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: next.Generation,
			Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: e.Now(),
		})
		return next, nil
	})
	if err != nil {
		return err
	}
	opts.Preconditions = &metav1.Preconditions{UID: &victim.UID}
	if unguarded && !e.IsDryRun(ctx) {
		opts.Preconditions.ResourceVersion = new(marked.GetResourceVersion())
	}
	_, err = e.Delete(ctx, ref, opts)
	if unguarded && apierrors.IsConflict(err) {
		return errPodChanged
	}
	return err
}
