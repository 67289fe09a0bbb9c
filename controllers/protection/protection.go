// Package protection removes the protection finalizers of terminating claims that no pod uses, of terminating volumes
// that are not bound, and of terminating VolumeAttributesClasses that no claim or volume refers to. It also sets the
// condition Unused of claims.
package protection

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// The controllers' names are upstream's.
const (
	Claims  = "pvc-protection"
	Volumes = "pv-protection"
	// Attributes is the controller of VolumeAttributesClasses.
	Attributes = "volumeattributesclass-protection-controller"
)

// Controller removes the protection finalizer of one kind.
type Controller struct {
	deps      follow.Deps
	name      string
	sources   []follow.Source[follow.Key]
	reconcile func(ctx context.Context, key follow.Key) error
}

var _ follow.Controller = (*Controller)(nil)

// NewClaims returns the controller for claims.
func NewClaims(deps follow.Deps) *Controller {
	c := &Controller{deps: deps, name: Claims, sources: []follow.Source[follow.Key]{
		{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: follow.Plain(onClaim)},
		{Selector: client.Selector{Resource: client.Pods}, Keys: follow.Plain(onPod)},
	}}
	c.reconcile = c.claim
	return c
}

// NewVolumes returns the controller for volumes.
func NewVolumes(deps follow.Deps) *Controller {
	c := &Controller{deps: deps, name: Volumes, sources: []follow.Source[follow.Key]{
		{Selector: client.Selector{Resource: client.PersistentVolumes}, Keys: follow.Plain(onTerminating)},
	}}
	c.reconcile = c.volume
	return c
}

// NewAttributes returns the controller for VolumeAttributesClasses, which also adds the finalizer.
func NewAttributes(deps follow.Deps) *Controller {
	c := &Controller{deps: deps, name: Attributes, sources: []follow.Source[follow.Key]{
		{Selector: client.Selector{Resource: client.VolumeAttributesClasses}, Keys: follow.Plain(onClass)},
		{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: follow.Plain(onClaimOfClass)},
		{Selector: client.Selector{Resource: client.PersistentVolumes}, Keys: follow.Plain(onVolumeOfClass)},
	}}
	c.reconcile = c.attributes
	return c
}

// onClass wakes classes that lack the finalizer, or wait for its removal.
func onClass(_, new client.Object) []follow.Key {
	if new == nil || new.GetDeletionTimestamp() == nil &&
		slices.Contains(new.GetFinalizers(), claim.AttributesProtection) {
		return nil
	}
	return []follow.Key{follow.KeyOf(new)}
}

// onClaimOfClass wakes the classes that a claim no longer refers to.
func onClaimOfClass(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.PersistentVolumeClaim)
	is, _ := new.(*corev1.PersistentVolumeClaim)
	return dropped(classesOfClaim(was), classesOfClaim(is))
}

func onVolumeOfClass(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.PersistentVolume)
	is, _ := new.(*corev1.PersistentVolume)
	return dropped(classesOfVolume(was), classesOfVolume(is))
}

func dropped(was, is []string) (keys []follow.Key) {
	for _, name := range was {
		if !slices.Contains(is, name) {
			keys = append(keys, follow.Key{Name: name})
		}
	}
	return keys
}

// classesOfClaim returns the classes that a claim requests, has, or is being changed to.
func classesOfClaim(c *corev1.PersistentVolumeClaim) (names []string) {
	if c == nil {
		return nil
	}
	for _, name := range []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName} {
		if name != nil && *name != "" {
			names = append(names, *name)
		}
	}
	if m := c.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		names = append(names, m.TargetVolumeAttributesClassName)
	}
	return names
}

func classesOfVolume(v *corev1.PersistentVolume) []string {
	if v == nil || v.Spec.VolumeAttributesClassName == nil || *v.Spec.VolumeAttributesClassName == "" {
		return nil
	}
	return []string{*v.Spec.VolumeAttributesClassName}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return c.name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[follow.Key]{Name: c.name, Sources: c.sources,
		Reconcile: func(ctx context.Context, key follow.Key) (time.Duration, error) {
			err := c.reconcile(ctx, key)
			if apierrors.IsNotFound(err) || errors.Is(err, errReplaced) {
				err = nil
			}
			return 0, err
		}}).Run(ctx)
}

// onTerminating wakes terminating objects.
func onTerminating(_, new client.Object) []follow.Key {
	if new == nil || new.GetDeletionTimestamp() == nil {
		return nil
	}
	return []follow.Key{follow.KeyOf(new)}
}

// onClaim wakes claims that are terminating, or bound and without the condition Unused.
func onClaim(old, new client.Object) []follow.Key {
	if c, ok := new.(*corev1.PersistentVolumeClaim); ok && c.Status.Phase == corev1.ClaimBound && unused(c) == nil {
		return []follow.Key{follow.KeyOf(new)}
	}
	return onTerminating(old, new)
}

// onPod wakes the claims of a pod that is created, deleted, or finished.
func onPod(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Pod)
	pod, _ := new.(*corev1.Pod)
	if pod != nil && was != nil && uses(pod) == uses(was) && !shutDown(pod) {
		return nil
	}
	if pod == nil {
		pod = was
	}
	var keys []follow.Key
	for _, name := range claim.AllOf(pod) {
		keys = append(keys, follow.Key{Namespace: pod.Namespace, Name: name})
	}
	return keys
}

// uses reports whether a pod counts as a user of its claims for the condition Unused: it has not ended (upstream
// podUsesPVCForUnusedSince).
func uses(pod *corev1.Pod) bool {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return false
	case pod.DeletionTimestamp == nil:
		return true
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Terminated == nil && c.State.Waiting == nil
	})
}

// shutDown reports whether the pod has ended and only finalizers keep it.
func shutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// claim sets the condition Unused of a bound claim. It removes the finalizer of a terminating claim unless a pod with a
// node uses it, even a finished one.
func (c *Controller) claim(ctx context.Context, key follow.Key) error {
	held, err := client.Get[*corev1.PersistentVolumeClaim](ctx, c.deps.Client, key.Namespace, key.Name)
	if err != nil || held.DeletionTimestamp == nil && held.Status.Phase != corev1.ClaimBound {
		return err
	}
	pods, err := client.List[*corev1.Pod](ctx, c.deps.Client, client.Selector{Namespace: key.Namespace})
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(slices.Clone(pods),
		func(p *corev1.Pod) bool { return !slices.Contains(claim.AllOf(p), key.Name) })
	switch {
	case held.DeletionTimestamp == nil:
		return c.setUnused(ctx, held, !slices.ContainsFunc(pods, uses))
	case !slices.Contains(held.Finalizers, claim.ClaimProtection):
		return nil
	case slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" && !shutDown(p) }):
		return nil
	}
	return release(ctx, c.deps.Client, held, held.UID, claim.ClaimProtection)
}

// setUnused sets the condition Unused. Its transition time is when the last pod stopped using the claim.
func (c *Controller) setUnused(ctx context.Context, held *corev1.PersistentVolumeClaim, free bool) error {
	next := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionFalse,
		Reason: "PodUsingPVC", Message: "A pod is currently referencing this PVC",
	}
	if free {
		next.Status, next.Reason, next.Message = corev1.ConditionTrue, "NoPodsUsingPVC",
			"No pods are currently referencing this PVC"
	}
	if was := unused(held); was != nil && was.Status == next.Status {
		return nil
	}
	next.LastTransitionTime = metav1.NewTime(c.deps.Clock.Now())
	_, err := client.Update(ctx, c.deps.Client, held, "status", func(cur *corev1.PersistentVolumeClaim) error {
		if cur.UID != held.UID {
			return errReplaced
		}
		if was := unused(cur); was != nil {
			*was = next
		} else {
			cur.Status.Conditions = append(cur.Status.Conditions, next)
		}
		return nil
	})
	return err
}

// unused returns the condition Unused, or nil.
func unused(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimCondition {
	i := slices.IndexFunc(c.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimUnused
	})
	if i < 0 {
		return nil
	}
	return &c.Status.Conditions[i]
}

func (c *Controller) volume(ctx context.Context, key follow.Key) error {
	held, err := client.Get[*corev1.PersistentVolume](ctx, c.deps.Client, "", key.Name)
	if err != nil || held.DeletionTimestamp == nil || held.Status.Phase == corev1.VolumeBound ||
		!slices.Contains(held.Finalizers, claim.VolumeProtection) {
		return err
	}
	return release(ctx, c.deps.Client, held, held.UID, claim.VolumeProtection)
}

// attributes adds the finalizer to a class, and removes it from a terminating class that no claim or volume refers to.
func (c *Controller) attributes(ctx context.Context, key follow.Key) error {
	class, err := client.Get[*storagev1.VolumeAttributesClass](ctx, c.deps.Client, "", key.Name)
	if err != nil {
		return err
	}
	held := slices.Contains(class.Finalizers, claim.AttributesProtection)
	switch {
	case class.DeletionTimestamp == nil && !held:
		_, err := client.Update(ctx, c.deps.Client, class, "", func(cur *storagev1.VolumeAttributesClass) error {
			if cur.DeletionTimestamp == nil && !slices.Contains(cur.Finalizers, claim.AttributesProtection) {
				cur.Finalizers = append(cur.Finalizers, claim.AttributesProtection)
			}
			return nil
		})
		return err
	case class.DeletionTimestamp == nil || !held:
		return nil
	}
	claims, err := client.List[*corev1.PersistentVolumeClaim](ctx, c.deps.Client, client.Selector{})
	if err != nil ||
		slices.ContainsFunc(claims,
			func(p *corev1.PersistentVolumeClaim) bool { return slices.Contains(classesOfClaim(p), key.Name) }) {
		return err
	}
	volumes, err := client.List[*corev1.PersistentVolume](ctx, c.deps.Client, client.Selector{})
	if err != nil ||
		slices.ContainsFunc(volumes,
			func(v *corev1.PersistentVolume) bool { return slices.Contains(classesOfVolume(v), key.Name) }) {
		return err
	}
	return release(ctx, c.deps.Client, class, class.UID, claim.AttributesProtection)
}

var errReplaced = errors.New("object was replaced by another of the same name")

func release[T client.Object](ctx context.Context, c client.Client, obj T, uid types.UID, finalizer string) error {
	_, err := client.Update(ctx, c, obj, "", func(cur T) error {
		if cur.GetUID() != uid {
			return errReplaced
		}
		cur.SetFinalizers(slices.DeleteFunc(cur.GetFinalizers(), func(f string) bool { return f == finalizer }))
		return nil
	})
	return err
}
