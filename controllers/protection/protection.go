// Package protection removes the protection finalizers of terminating claims that no pod uses, and of
// terminating volumes that are not bound.
package protection

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
	"monopod/apiserver/follow"
)

// Names of the controllers, upstream's.
const (
	Claims  = "pvc-protection"
	Volumes = "pv-protection"
)

// Controller removes one finalizer.
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
		{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: follow.Plain(deleting)},
		{Selector: client.Selector{Resource: client.Pods}, Keys: follow.Plain(letGo)},
	}}
	c.reconcile = c.claim
	return c
}

// NewVolumes returns the controller for volumes.
func NewVolumes(deps follow.Deps) *Controller {
	c := &Controller{deps: deps, name: Volumes, sources: []follow.Source[follow.Key]{
		{Selector: client.Selector{Resource: client.PersistentVolumes}, Keys: follow.Plain(deleting)},
	}}
	c.reconcile = c.volume
	return c
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

// deleting wakes terminating objects.
func deleting(_, new client.Object) []follow.Key {
	if new == nil || new.GetDeletionTimestamp() == nil {
		return nil
	}
	return []follow.Key{follow.KeyOf(new)}
}

// letGo wakes the claims of a pod that is gone or has ended.
func letGo(old, new client.Object) []follow.Key {
	pod, _ := new.(*corev1.Pod)
	if pod != nil && !shutDown(pod) {
		return nil
	}
	if pod == nil {
		pod = old.(*corev1.Pod)
	}
	var keys []follow.Key
	for _, name := range claim.AllOf(pod) {
		keys = append(keys, follow.Key{Namespace: pod.Namespace, Name: name})
	}
	return keys
}

// shutDown reports whether the pod has ended and only finalizers keep its object.
func shutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// claim removes the finalizer of a claim that no pod on a node uses, not even a finished one.
func (c *Controller) claim(ctx context.Context, key follow.Key) error {
	held, err := client.Get[*corev1.PersistentVolumeClaim](ctx, c.deps.Client, key.Namespace, key.Name)
	if err != nil || held.DeletionTimestamp == nil || !slices.Contains(held.Finalizers, claim.ClaimProtection) {
		return err
	}
	pods, err := client.List[*corev1.Pod](ctx, c.deps.Client, client.Selector{Namespace: key.Namespace})
	if err != nil || slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return p.Spec.NodeName != "" && !shutDown(p) && slices.Contains(claim.AllOf(p), key.Name)
	}) {
		return err
	}
	return release(ctx, c.deps.Client, held, held.UID, claim.ClaimProtection)
}

func (c *Controller) volume(ctx context.Context, key follow.Key) error {
	held, err := client.Get[*corev1.PersistentVolume](ctx, c.deps.Client, "", key.Name)
	if err != nil || held.DeletionTimestamp == nil || held.Status.Phase == corev1.VolumeBound || !slices.Contains(held.Finalizers, claim.VolumeProtection) {
		return err
	}
	return release(ctx, c.deps.Client, held, held.UID, claim.VolumeProtection)
}

var errReplaced = errors.New("another has its name")

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
