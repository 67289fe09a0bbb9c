// Package ephemeral creates the PersistentVolumeClaims of generic ephemeral volumes (spec.volumes[].ephemeral). The pod
// owns the claims, so that they are deleted with it.
package ephemeral

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
)

// Name is upstream's name of the controller.
const Name = "ephemeral-volume"

// Component is the source of its events.
const Component = "ephemeral_volume"

// Controller creates the claims.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, events record.Eventer) *Controller {
	return &Controller{deps: deps, events: events}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name: Name,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Pods}, Keys: follow.Plain(onPod)},
			{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: follow.Plain(onClaim)},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

// onPod wakes new pods with ephemeral volumes.
func onPod(old, new client.Object) []follow.Key {
	if old != nil || new == nil {
		return nil
	}
	for _, v := range new.(*corev1.Pod).Spec.Volumes {
		if v.Ephemeral != nil {
			return []follow.Key{follow.KeyOf(new)}
		}
	}
	return nil
}

// onClaim wakes the pod whose claim was deleted.
func onClaim(old, new client.Object) []follow.Key {
	if new != nil {
		return nil
	}
	if owner := metav1.GetControllerOf(old); owner != nil && owner.Kind == "Pod" {
		return []follow.Key{{Namespace: old.GetNamespace(), Name: owner.Name}}
	}
	return nil
}

func (c *Controller) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	pod, err := client.Get[*corev1.Pod](ctx, c.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil {
			errs = append(errs, c.ensure(ctx, pod, v))
		}
	}
	return 0, errors.Join(errs...)
}

// ensure creates the claim of one volume. It fails if a claim has the name and the pod does not own it.
func (c *Controller) ensure(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) error {
	name := ephemeral.VolumeClaimName(pod, v)
	has, err := client.Get[*corev1.PersistentVolumeClaim](ctx, c.deps.Client, pod.Namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		template := v.Ephemeral.VolumeClaimTemplate
		_, err = c.deps.Client.Create(ctx, &corev1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: name,
				Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
			},
			Spec: *template.Spec.DeepCopy(),
		})
	case err == nil:
		err = ephemeral.VolumeIsForPod(pod, has)
	}
	if err != nil {
		c.events.Eventf(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", v.Name, err)
		return fmt.Errorf("ephemeral volume %s: %w", v.Name, err)
	}
	return nil
}
