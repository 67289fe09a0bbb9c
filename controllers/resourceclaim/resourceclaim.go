// Package resourceclaim creates the ResourceClaims of pods that refer to a template, and releases claims:
//
//   - pod.go: creates a claim for each template, owned by the pod, and writes its name to the pod's status.
//   - resourceclaim.go: removes the reservations of finished and deleted pods. A claim without a reservation loses its
//     allocation; a generated claim of a finished pod is deleted.
package resourceclaim

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/dynamic-resource-allocation/resourceclaim"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// Name is upstream's name of the controller.
const Name = "resourceclaim-controller"

// Component is the source of its events.
const Component = "resource_claim"

// Controller creates and releases claims.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	made   owned.ClaimCreations
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller. It fails if its metrics are already registered.
func New(deps follow.Deps, events record.Eventer) (*Controller, error) {
	made, err := owned.NewClaimCreations(deps.Metrics)
	if err == nil {
		_, err = follow.Register(deps.Metrics, newCounts(deps.Client))
	}
	return &Controller{deps: deps, events: events, made: made}, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// key identifies an object of one of the kinds.
type key struct {
	kind byte
	follow.Key
}

const (
	aPod      = 'p'
	aClaim    = 'c'
	aTemplate = 't'
)

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c}
	r.loop = follow.New(c.deps, follow.Config[key]{
		Name: Name,
		Sources: []follow.Source[key]{
			{Selector: client.Selector{Resource: client.Pods}, Keys: follow.Plain(onPod)},
			{Selector: client.Selector{Resource: client.ResourceClaims}, Keys: follow.Plain(onClaim)},
			{Selector: client.Selector{Resource: client.ResourceClaimTemplates}, Keys: follow.Plain(onTemplate)},
		},
		Reconcile: r.reconcile,
	})
	return r.loop.Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	loop *follow.Loop[key]
}

// onPod wakes a pod that may need claims, and the claims of a finished or deleted pod.
func onPod(old, new client.Object) []key {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	pod := is
	if pod == nil {
		pod = was
	}
	if len(pod.Spec.ResourceClaims) == 0 && pod.Status.ExtendedResourceClaimStatus == nil {
		return nil
	}
	if is == nil || ended(is) {
		var keys []key
		for name := range upstream.PodClaims(pod) {
			keys = append(keys, key{aClaim, follow.Key{Namespace: pod.Namespace, Name: name}})
		}
		return keys
	}
	if was == nil || was.Spec.NodeName != is.Spec.NodeName ||
		!upstream.PodStatusEqual(was.Status.ResourceClaimStatuses, is.Status.ResourceClaimStatuses) ||
		!upstream.PodExtendedStatusEqual(was.Status.ExtendedResourceClaimStatus, is.Status.ExtendedResourceClaimStatus) {
		return []key{{aPod, follow.KeyOf(is)}}
	}
	return nil
}

// onClaim wakes a claim, and the owner of a deleted claim.
func onClaim(old, new client.Object) []key {
	if new != nil {
		return []key{{aClaim, follow.KeyOf(new)}}
	}
	if owner := metav1.GetControllerOfNoCopy(old); owner != nil && owner.Kind == "Pod" {
		return []key{{aPod, follow.Key{Namespace: old.GetNamespace(), Name: owner.Name}}}
	}
	return nil
}

func onTemplate(_, new client.Object) []key {
	if new == nil {
		return nil
	}
	return []key{{aTemplate, follow.KeyOf(new)}}
}

// ended reports whether no container of the pod runs or will run.
func ended(pod *corev1.Pod) bool {
	return podstate.Finished(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

func (r *run) reconcile(ctx context.Context, k key) (time.Duration, error) {
	var err error
	switch k.kind {
	case aPod:
		err = r.pod(ctx, k.Key)
	case aClaim:
		err = r.claim(ctx, k.Key)
	case aTemplate:
		err = r.template(ctx, k.Key)
	}
	if errors.Is(err, errReplaced) {
		err = nil
	}
	return 0, err
}

var errReplaced = errors.New("object was replaced by another of the same name")

// template wakes the pods that wait for a template.
func (r *run) template(ctx context.Context, k follow.Key) error {
	pods, err := client.List[*corev1.Pod](ctx, r.deps.Client, client.Selector{Namespace: k.Namespace})
	for _, pod := range pods {
		for i := range pod.Spec.ResourceClaims {
			named := pod.Spec.ResourceClaims[i].ResourceClaimTemplateName
			if _, _, missing := upstream.Name(pod, &pod.Spec.ResourceClaims[i]); missing != nil && named != nil &&
				*named == k.Name {
				r.loop.Add(key{aPod, follow.KeyOf(pod)})
			}
		}
	}
	return err
}

// claim removes the reservations of finished and deleted pods. A claim without reservations loses its allocation and
// the finalizer, and is deleted if it was generated for a finished pod.
func (r *run) claim(ctx context.Context, k follow.Key) error {
	claim, err := client.Get[*resourcev1.ResourceClaim](ctx, r.deps.Client, k.Namespace, k.Name)
	if err != nil {
		return notFound(err)
	}
	valid, err := r.neededReservations(ctx, claim)
	if err != nil {
		return err
	}
	if held := protected(claim); len(valid) < len(claim.Status.ReservedFor) || held && claim.DeletionTimestamp != nil &&
		len(valid) == 0 {
		if err := r.release(ctx, claim, valid); err != nil {
			return err
		}
	}
	if len(valid) > 0 || claim.DeletionTimestamp != nil {
		return nil
	}
	// Nothing reserves the claim: delete it if it was generated for a pod that has finished or no longer exists.
	owner := metav1.GetControllerOfNoCopy(claim)
	if owner == nil || owner.Kind != "Pod" || owner.APIVersion != "v1" {
		return nil
	}
	pod, err := client.Get[*corev1.Pod](ctx, r.deps.Client, claim.Namespace, owner.Name)
	if notFound(err) != nil {
		return err
	}
	if err == nil && pod.UID == owner.UID && !ended(pod) {
		return nil
	}
	_, err = r.deps.Client.Delete(ctx, client.RefOf(claim),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
	if apierrors.IsConflict(err) {
		return nil
	}
	return notFound(err)
}

// neededReservations returns the reservations that are still needed. It keeps reservations of objects other than pods.
func (r *run) neededReservations(ctx context.Context,
	claim *resourcev1.ResourceClaim) (valid []resourcev1.ResourceClaimConsumerReference, err error) {
	for _, ref := range claim.Status.ReservedFor {
		if ref.APIGroup == "" && ref.Resource == "pods" {
			pod, err := client.Get[*corev1.Pod](ctx, r.deps.Client, claim.Namespace, ref.Name)
			if notFound(err) != nil {
				return nil, err
			}
			if err != nil || pod.UID != ref.UID || ended(pod) {
				continue
			}
		}
		valid = append(valid, ref)
	}
	return valid, nil
}

// release writes the remaining reservations. Without any, it removes the allocation and the finalizer, in two writes
// that can each be repeated. A claim that was changed meanwhile wakes its key again.
func (r *run) release(ctx context.Context, claim *resourcev1.ResourceClaim,
	valid []resourcev1.ResourceClaimConsumerReference) error {
	unchanged := claim.ResourceVersion
	_, err := client.Update(ctx, r.deps.Client, claim, "status", func(cur *resourcev1.ResourceClaim) error {
		if cur.ResourceVersion != unchanged {
			return errReplaced
		}
		cur.Status.ReservedFor = valid
		if len(valid) == 0 && protected(cur) {
			cur.Status.Allocation, cur.Status.Devices = nil, nil
		}
		return nil
	})
	if err != nil || len(valid) > 0 {
		return notFound(err)
	}
	_, err = client.Update(ctx, r.deps.Client, claim, "", func(cur *resourcev1.ResourceClaim) error {
		if cur.UID != claim.UID || cur.Status.Allocation != nil {
			return errReplaced
		}
		cur.Finalizers = without(cur.Finalizers, resourcev1.Finalizer)
		return nil
	})
	return notFound(err)
}

// notFound returns nil for an object that no longer exists.
func notFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
