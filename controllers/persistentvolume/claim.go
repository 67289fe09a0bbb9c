package persistentvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
)

// The reasons are upstream's.
const (
	reasonFailed       = "FailedBinding"
	reasonWaitConsumer = "WaitForFirstConsumer"
	reasonWaitPod      = "WaitForPodScheduled"
	reasonMismatch     = "VolumeMismatch"
	reasonExternal     = "ExternalProvisioning"
	reasonNotMade      = "ProvisioningFailed"
	reasonLost         = "ClaimLost"
	reasonMisbound     = "ClaimMisbound"
	reasonExpand       = "ExternalExpanding"
)

func (r *run) syncClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if _, ok := c.Annotations[claim.BindCompleted]; ok {
		return r.syncBound(ctx, c)
	}
	if c.Spec.VolumeName == "" {
		return r.syncUnbound(ctx, c)
	}
	return r.syncNamed(ctx, c)
}

// syncUnbound finds a volume for a claim that names none, or requests provisioning.
func (r *run) syncUnbound(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.DeletionTimestamp != nil {
		return nil
	}
	c, err := r.defaultClass(ctx, c)
	if err != nil {
		return err
	}
	class, err := r.class(ctx, claim.Class(c))
	if err != nil {
		return err
	}
	volumes, err := client.List[*corev1.PersistentVolume](ctx, r.deps.Client, client.Selector{})
	if err != nil {
		return err
	}
	waits := claim.WaitsForConsumer(class)
	if v := claim.Best(c, volumes, nil, nil, waits); v != nil {
		return r.bind(ctx, c, v)
	}
	switch {
	case waits && c.Annotations[claim.SelectedNode] == "":
		err = r.awaitPod(ctx, c)
	case claim.Class(c) != "":
		err = r.provision(ctx, c, class)
	default:
		r.recordEvent(c, corev1.EventTypeNormal, reasonFailed,
			"no persistent volumes available for this claim and no storage class is set")
	}
	if err != nil {
		return err
	}
	return r.phase(ctx, c, corev1.ClaimPending)
}

// defaultClass sets the default class of a claim without a class; the default class may be newer than the claim.
func (r *run) defaultClass(ctx context.Context,
	c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if claim.HasClass(c) {
		return c, nil
	}
	classes, err := client.List[*storagev1.StorageClass](ctx, r.deps.Client, client.Selector{})
	chosen := claim.Default(classes)
	if err != nil || chosen == nil {
		return c, err
	}
	return r.changeClaim(ctx, c, "", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new(chosen.Name) })
}

// class returns the StorageClass; nil if it does not exist.
func (r *run) class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	if name == "" {
		return nil, nil
	}
	class, err := client.Get[*storagev1.StorageClass](ctx, r.deps.Client, "", name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return class, err
}

// awaitPod records what the claim waits for: a pod, or the scheduler.
func (r *run) awaitPod(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	pods, err := client.List[*corev1.Pod](ctx, r.deps.Client, client.Selector{Namespace: c.Namespace})
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for _, name := range claim.AllOf(pod) {
			if name == c.Name && pod.Spec.NodeName == "" {
				r.recordEvent(c, corev1.EventTypeNormal, reasonWaitPod, fmt.Sprintf("waiting for pod %s to be scheduled", pod.Name))
				return nil
			}
		}
	}
	r.recordEvent(c, corev1.EventTypeNormal, reasonWaitConsumer, "waiting for first consumer to be created before binding")
	return nil
}

// provision requests a volume from the class's provisioner by an annotation.
func (r *run) provision(ctx context.Context, c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	if class == nil {
		r.recordEvent(c, corev1.EventTypeWarning, reasonNotMade,
			fmt.Sprintf("storageclass.storage.k8s.io %q not found", claim.Class(c)))
		return nil
	}
	if class.Provisioner == claim.NoProvisioner {
		r.recordEvent(c, corev1.EventTypeNormal, reasonFailed,
			"no persistent volumes available for this claim, and its storage class has no provisioner")
		return nil
	}
	c, err := r.changeClaim(ctx, c, "", func(c *corev1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, claim.BetaStorageProvisioner, class.Provisioner)
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, claim.StorageProvisioner, class.Provisioner)
	})
	if err != nil {
		return err
	}
	r.recordEvent(c, corev1.EventTypeNormal, reasonExternal,
		fmt.Sprintf("Waiting for a volume to be created either by the external provisioner '%s' "+
			"or manually by the system administrator. "+
			"If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
			class.Provisioner))
	return nil
}

// syncNamed binds a claim that names its volume.
func (r *run) syncNamed(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	v, err := client.Get[*corev1.PersistentVolume](ctx, r.deps.Client, "", c.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return r.phase(ctx, c, corev1.ClaimPending)
	}
	if err != nil {
		return err
	}
	switch {
	case claim.IsFor(v, c):
		return r.bind(ctx, c, v)
	case v.Spec.ClaimRef != nil:
		r.recordEvent(c, corev1.EventTypeWarning, reasonFailed,
			fmt.Sprintf("volume %q already bound to a different claim.", v.Name))
		return r.phase(ctx, c, corev1.ClaimPending)
	}
	if why := claim.Mismatch(c, v); why != "" {
		r.recordEvent(c, corev1.EventTypeWarning, reasonMismatch,
			fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, why))
		return r.phase(ctx, c, corev1.ClaimPending)
	}
	return r.bind(ctx, c, v)
}

// syncBound checks that a bound claim is still bound.
func (r *run) syncBound(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.Spec.VolumeName == "" {
		return r.lose(ctx, c, reasonLost, "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	v, err := client.Get[*corev1.PersistentVolume](ctx, r.deps.Client, "", c.Spec.VolumeName)
	switch {
	case apierrors.IsNotFound(err):
		return r.lose(ctx, c, reasonLost, "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case err != nil:
		return err
	case v.Spec.ClaimRef == nil || claim.IsFor(v, c):
		r.expansion(c, v)
		return r.bind(ctx, c, v)
	}
	return r.lose(ctx, c, reasonMisbound, "Two claims are bound to the same volume, this one is bound incorrectly")
}

// expansion records an Event for a claim that requests more than its capacity; its provisioner expands the volume.
func (r *run) expansion(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
	wants, has := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	if c.Status.Phase == corev1.ClaimBound && wants.Cmp(has) > 0 &&
		v.Annotations[claim.ProvisionedBy] != claim.Provisioner {
		r.recordEvent(c, corev1.EventTypeNormal, reasonExpand, "waiting for an external controller to expand this PVC")
	}
}

func (r *run) lose(ctx context.Context, c *corev1.PersistentVolumeClaim, reason, message string) error {
	if c.Status.Phase != corev1.ClaimLost {
		r.events.Eventf(c, corev1.EventTypeWarning, reason, "%s", message)
	}
	return r.phase(ctx, c, corev1.ClaimLost)
}
