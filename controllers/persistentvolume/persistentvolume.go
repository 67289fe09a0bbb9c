// Package persistentvolume binds claims and volumes to each other, one to one.
//
//   - claim.go: finds a volume for a claim, or the provisioner that creates one.
//   - bind.go: the four writes of a binding, each of which can be repeated.
//   - volume.go: the phase of a volume, and its release after the deletion of its claim.
//
// Provisioners create and delete volumes; the agent's is monopod.io/local. The controller has one worker, so that no
// volume is bound twice, and acts only on watch events.
package persistentvolume

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
)

// Name is upstream's name of the controller.
const Name = "persistentvolume-binder"

// Component is the source of its events.
const Component = "persistentvolume-controller"

// Controller binds claims and volumes.
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

// key identifies a claim, or a volume, which has no namespace.
type key = follow.Key

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, reported: map[key]string{}}
	r.loop = follow.New(c.deps, follow.Config[key]{
		Name: Name,
		Sources: []follow.Source[key]{
			{Selector: client.Selector{Resource: client.PersistentVolumes}, Keys: r.onVolume},
			{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: follow.Plain(onClaim)},
			{Selector: client.Selector{Resource: client.StorageClasses}, Keys: r.onClass},
		},
		Reconcile: r.reconcile,
	})
	return r.loop.Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	loop *follow.Loop[key]
	// reported is the last Event of each waiting claim, so that it is recorded once. Only the worker uses it.
	reported map[key]string
}

// onVolume wakes the volume, the claim that it is reserved for and, if it is available, the claims that wait for a
// volume.
func (r *run) onVolume(ctx context.Context, old, new client.Object) ([]key, error) {
	was, _ := old.(*corev1.PersistentVolume)
	is, _ := new.(*corev1.PersistentVolume)
	v := is
	if v == nil {
		v = was
	}
	keys := []key{follow.KeyOf(v)}
	if ref := v.Spec.ClaimRef; ref != nil {
		keys = append(keys, key{Namespace: ref.Namespace, Name: ref.Name})
	}
	if is == nil || is.Spec.ClaimRef == nil || is.Spec.ClaimRef.UID == "" {
		waiting, err := r.waiting(ctx)
		return append(keys, waiting...), err
	}
	return keys, nil
}

// onClaim wakes the claim and its volume.
func onClaim(old, new client.Object) []key {
	obj := new
	if obj == nil {
		obj = old
	}
	c := obj.(*corev1.PersistentVolumeClaim)
	keys := []key{follow.KeyOf(c)}
	if c.Spec.VolumeName != "" {
		keys = append(keys, key{Name: c.Spec.VolumeName})
	}
	return keys
}

func (r *run) onClass(ctx context.Context, _, _ client.Object) ([]key, error) { return r.waiting(ctx) }

// waiting returns the claims without a volume. Claims that name a volume that no longer exists are lost.
func (r *run) waiting(ctx context.Context) ([]key, error) {
	claims, err := client.List[*corev1.PersistentVolumeClaim](ctx, r.deps.Client, client.Selector{})
	if err != nil {
		return nil, err
	}
	var keys []key
	for _, c := range claims {
		if c.Status.Phase != corev1.ClaimBound || !claim.Bound(c) {
			keys = append(keys, follow.KeyOf(c))
		}
	}
	return keys, nil
}

// errOutdated stops an update of an object that was replaced.
var errOutdated = errors.New("replaced meanwhile")

func (r *run) reconcile(ctx context.Context, k key) (time.Duration, error) {
	err := r.reconcileOne(ctx, k)
	if errors.Is(err, errOutdated) || apierrors.IsNotFound(err) {
		return 0, nil // the watch wakes the affected keys
	}
	return 0, err
}

func (r *run) reconcileOne(ctx context.Context, k key) error {
	if k.Namespace == "" {
		v, err := client.Get[*corev1.PersistentVolume](ctx, r.deps.Client, "", k.Name)
		if err != nil {
			return err
		}
		return r.syncVolume(ctx, v)
	}
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, r.deps.Client, k.Namespace, k.Name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			delete(r.reported, k)
			return r.orphaned(ctx, k)
		}
		return err
	}
	return r.syncClaim(ctx, c)
}

// orphaned wakes the volumes of a deleted claim, including volumes that the claim did not name.
func (r *run) orphaned(ctx context.Context, k key) error {
	volumes, err := client.List[*corev1.PersistentVolume](ctx, r.deps.Client, client.Selector{})
	for _, v := range volumes {
		if ref := v.Spec.ClaimRef; ref != nil && ref.Namespace == k.Namespace && ref.Name == k.Name {
			r.loop.Add(follow.KeyOf(v))
		}
	}
	return err
}

// recordEvent records an Event about the reason why a claim waits, once.
func (r *run) recordEvent(c *corev1.PersistentVolumeClaim, eventType, reason, message string) {
	k := follow.KeyOf(c)
	if r.reported[k] == string(c.UID)+message {
		return
	}
	r.reported[k] = string(c.UID) + message
	r.events.Eventf(c, eventType, reason, "%s", message)
}
