package persistentvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
)

// The reasons are upstream's.
const (
	reasonNotDeleted  = "VolumeFailedDelete"
	reasonNotRecycled = "VolumeFailedRecycle"
)

// syncVolume sets a volume's phase, and releases the volume from a claim that no longer exists or is bound to another
// volume.
func (r *run) syncVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return r.volumePhase(ctx, v, corev1.VolumeAvailable, "")
	}
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, r.deps.Client, ref.Namespace, ref.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	switch {
	case err != nil || c.UID != ref.UID:
		return r.release(ctx, v)
	case c.Spec.VolumeName == v.Name:
		return r.volumePhase(ctx, v, corev1.VolumeBound, "")
	case c.Spec.VolumeName == "":
		r.loop.Add(key{Namespace: c.Namespace, Name: c.Name}) // the claim then binds itself to the volume
		return nil
	case v.Annotations[claim.ProvisionedBy] != "" &&
		v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return r.release(ctx, v) // provisioned for a claim that no longer needs it
	}
	// The claim has another volume. What the controller set is removed, and what a user set as a reservation stays.
	v, err = r.changeVolume(ctx, v, "", func(v *corev1.PersistentVolume) error {
		if _, ours := v.Annotations[claim.BoundByController]; ours {
			delete(v.Annotations, claim.BoundByController)
			v.Spec.ClaimRef = nil
		} else if v.Spec.ClaimRef != nil {
			v.Spec.ClaimRef.UID = ""
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.volumePhase(ctx, v, corev1.VolumeAvailable, "")
}

// release handles a volume whose claim was deleted. Its provisioner then deletes it; if that fails, it may set the phase
// Failed, which stays. A provisioner of an in-tree type that was migrated to CSI is external, too, and a CSI driver
// also deletes volumes that it has not provisioned.
func (r *run) release(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.Status.Phase == corev1.VolumeFailed {
		return nil
	}
	switch policy := v.Spec.PersistentVolumeReclaimPolicy; {
	case policy == corev1.PersistentVolumeReclaimRecycle:
		return r.fail(ctx, v, reasonNotRecycled, "No recycler plugin found for the volume!")
	case policy == corev1.PersistentVolumeReclaimDelete && v.Annotations[claim.ProvisionedBy] == "" &&
		v.Annotations[claim.MigratedTo] == "" && v.Spec.CSI == nil:
		return r.fail(ctx, v, reasonNotDeleted,
			fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name))
	}
	return r.volumePhase(ctx, v, corev1.VolumeReleased, "")
}

// fail sets the phase Failed with the reason why the reclaim policy cannot be applied.
func (r *run) fail(ctx context.Context, v *corev1.PersistentVolume, reason, message string) error {
	if v.Status.Phase != corev1.VolumeFailed {
		r.events.Eventf(v, corev1.EventTypeWarning, reason, "%s", message)
	}
	return r.volumePhase(ctx, v, corev1.VolumeFailed, message)
}

// volumePhase sets a volume's phase. It does not change message and reason if the phase stays the same.
func (r *run) volumePhase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase,
	message string) error {
	if v.Status.Phase == phase {
		return nil
	}
	_, err := r.changeVolume(ctx, v, "status", func(v *corev1.PersistentVolume) error {
		v.Status.Phase, v.Status.Message, v.Status.Reason = phase, message, ""
		return nil
	})
	return err
}
