package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// bind binds the claim and the volume to each other: first the volume, so that no other claim takes it, then the claim,
// for which pods wait.
func (r *run) bind(ctx context.Context, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	reserved, err := r.changeVolume(ctx, v, "", func(v *corev1.PersistentVolume) error {
		if v.Spec.ClaimRef != nil && !claim.IsFor(v, c) {
			return errOutdated
		}
		if v.Spec.ClaimRef == nil {
			metav1.SetMetaDataAnnotation(&v.ObjectMeta, claim.BoundByController, "yes")
		}
		if ref := v.Spec.ClaimRef; ref == nil || ref.UID != c.UID {
			v.Spec.ClaimRef = claim.Reference(c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.volumePhase(ctx, reserved, corev1.VolumeBound, ""); err != nil {
		return err
	}
	c, err = r.changeClaim(ctx, c, "", func(c *corev1.PersistentVolumeClaim) {
		if c.Spec.VolumeName == "" {
			c.Spec.VolumeName = v.Name
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, claim.BoundByController, "yes")
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, claim.BindCompleted, "yes")
	})
	if err != nil {
		return err
	}
	delete(r.reported, follow.KeyOf(c))
	_, err = r.changeClaim(ctx, c, "status", func(c *corev1.PersistentVolumeClaim) {
		// Only the component that expands or modifies a volume changes the capacity and the class of a bound claim.
		if c.Status.Phase != corev1.ClaimBound || c.Status.Capacity == nil {
			c.Status.Capacity = v.Spec.Capacity.DeepCopy()
			if before, err := resource.ParseQuantity(v.Annotations[claim.PreResizeCapacity]); err == nil {
				c.Status.Capacity[corev1.ResourceStorage] = before // the node has not expanded its file system yet
			}
		}
		if c.Status.Phase != corev1.ClaimBound {
			c.Status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
		}
		c.Status.Phase = corev1.ClaimBound
		c.Status.AccessModes = v.Spec.AccessModes
	})
	return err
}

// phase sets the phase of a claim without a volume.
func (r *run) phase(ctx context.Context, c *corev1.PersistentVolumeClaim,
	phase corev1.PersistentVolumeClaimPhase) error {
	_, err := r.changeClaim(ctx, c, "status", func(c *corev1.PersistentVolumeClaim) {
		if c.Status.Phase != phase {
			c.Status = corev1.PersistentVolumeClaimStatus{Phase: phase, Conditions: c.Status.Conditions}
		}
	})
	return err
}

// changeClaim updates the claim, unless it was replaced.
func (r *run) changeClaim(ctx context.Context, c *corev1.PersistentVolumeClaim, sub string,
	change func(*corev1.PersistentVolumeClaim)) (*corev1.PersistentVolumeClaim, error) {
	return client.Update(ctx, r.deps.Client, c, sub, func(cur *corev1.PersistentVolumeClaim) error {
		if cur.UID != c.UID {
			return errOutdated
		}
		change(cur)
		return nil
	})
}

func (r *run) changeVolume(ctx context.Context, v *corev1.PersistentVolume, sub string,
	change func(*corev1.PersistentVolume) error) (*corev1.PersistentVolume, error) {
	return client.Update(ctx, r.deps.Client, v, sub, func(cur *corev1.PersistentVolume) error {
		if cur.UID != v.UID {
			return errOutdated
		}
		return change(cur)
	})
}
