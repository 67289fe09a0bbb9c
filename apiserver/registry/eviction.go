package registry

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/pod"
)

// updateEviction is the creation of an Eviction below a pod: change gets an empty
// one, and what it returns comes back when the pod is on its way out.
func (r *Registry) updateEviction(ctx context.Context, ref client.Ref, change client.Change) (Object, error) {
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
		return nil, errBadRequest(fmt.Sprintf("not a Eviction object: %T", asked))
	}
	if eviction.Name != ref.Name {
		return nil, errBadRequest("name in URL does not match name in Eviction object")
	}
	ctx, opts, err := evictionOptions(ctx, eviction)
	if err != nil {
		return nil, err
	}
	return eviction, r.evict(ctx, ref.Sub(""), eviction, opts)
}

// evictionOptions are how the pod is to be deleted. A dry run may be asked for in
// the request, in the eviction, or in both.
func evictionOptions(ctx context.Context, eviction *policyv1.Eviction) (context.Context, metav1.DeleteOptions, error) {
	var opts metav1.DeleteOptions
	if eviction.DeleteOptions != nil {
		opts = *eviction.DeleteOptions
	}
	switch {
	case len(opts.DryRun) == 0:
	case reflect.DeepEqual(opts.DryRun, []string{metav1.DryRunAll}):
		ctx = DryRun(ctx)
	default:
		return ctx, opts, errBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", []string{metav1.DryRunAll}, opts.DryRun))
	}
	return ctx, opts, nil
}

// errAgain: what the decision was made on has changed.
var errAgain = errors.New("the pod has changed")

// evictionTries is how often a lost race is tried again (upstream:
// EvictionsRetry).
const evictionTries = 20

// evict deletes the pod if its disruption budget allows that, and says in its
// status why it goes.
func (r *Registry) evict(ctx context.Context, ref client.Ref, eviction *policyv1.Eviction, opts metav1.DeleteOptions) error {
	for try := 1; ; try++ {
		err := r.evictOnce(ctx, ref, eviction, opts)
		if !errors.Is(err, errAgain) {
			return err
		}
		if try == evictionTries {
			return apierrors.NewTimeoutError(fmt.Sprintf("couldn't evict pod %q due to conflicts", ref.Name), 10)
		}
	}
}

func (r *Registry) evictOnce(ctx context.Context, ref client.Ref, eviction *policyv1.Eviction, opts metav1.DeleteOptions) error {
	obj, err := r.Get(ctx, ref)
	if err != nil {
		return err
	}
	victim := obj.(*corev1.Pod)
	if err := r.admitEviction(ctx, eviction, victim); err != nil {
		return err
	}
	if err := preconditions(r.byGVR[ref.Resource], victim, opts.Preconditions); err != nil {
		return err
	}
	if !pod.Disrupts(victim) {
		_, err := r.Delete(ctx, ref, opts)
		return err
	}
	guarded, err := r.spend(ctx, victim)
	if err != nil {
		return err
	}
	return r.disrupt(ctx, ref, victim, opts, guarded)
}

func (r *Registry) admitEviction(ctx context.Context, eviction *policyv1.Eviction, victim *corev1.Pod) error {
	admitted := r.request(ctx, admission.Create, r.byGVR[client.Pods], "eviction", eviction, victim)
	if err := r.admission.Mutate(ctx, admitted); err != nil {
		return err
	}
	return r.admission.Validate(ctx, admitted)
}

// disrupt writes into the pod's status why it goes, and deletes it. A pod that no
// budget guarded because it was not ready must still be as it was.
func (r *Registry) disrupt(ctx context.Context, ref client.Ref, victim *corev1.Pod, opts metav1.DeleteOptions, unguarded bool) error {
	told, err := r.Update(ctx, ref.Status(), func(cur Object) (Object, error) {
		if cur.GetUID() != victim.UID {
			return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
		}
		if unguarded && cur.GetResourceVersion() != victim.ResourceVersion {
			return nil, errAgain
		}
		if err := preconditions(r.byGVR[ref.Resource], cur, opts.Preconditions); err != nil {
			return nil, err
		}
		next := cur.DeepCopyObject().(*corev1.Pod)
		pod.SetCondition(&next.Status, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: next.Generation,
			Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: r.now(),
		})
		return next, nil
	})
	if err != nil {
		return err
	}
	opts.Preconditions = &metav1.Preconditions{UID: &victim.UID}
	if unguarded && !isDryRun(ctx) {
		opts.Preconditions.ResourceVersion = new(told.GetResourceVersion())
	}
	_, err = r.Delete(ctx, ref, opts)
	if unguarded && apierrors.IsConflict(err) {
		return errAgain
	}
	return err
}
