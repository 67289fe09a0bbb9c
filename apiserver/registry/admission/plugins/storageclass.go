package plugins

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	claims "monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// defaultStorageClass sets the default class of a claim without one. Of several default classes it takes the newest,
// then the first by name.
func defaultStorageClass(c client.Client) admission.Plugin {
	return admission.Plugin{Name: "DefaultStorageClass", Mutate: func(ctx context.Context, r *admission.Request) error {
		claim, ok := r.Object.(*corev1.PersistentVolumeClaim)
		if !ok || r.Operation != admission.Create || r.Subresource != "" || claim.Spec.StorageClassName != nil {
			return nil
		}
		if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named {
			return nil
		}
		classes, err := client.List[*storagev1.StorageClass](ctx, c, client.Selector{})
		chosen := claims.Default(classes)
		if err == nil && chosen != nil {
			claim.Spec.StorageClassName = new(chosen.Name)
		}
		return err
	}}
}

// claimResize rejects a larger claim unless its class allows volume expansion.
func claimResize(c client.Client) admission.Plugin {
	return admission.Plugin{Name: "PersistentVolumeClaimResize",
		Validate: func(ctx context.Context, r *admission.Request) error {
			claim, ok := r.Object.(*corev1.PersistentVolumeClaim)
			if !ok || r.Operation != admission.Update || r.Subresource != "" {
				return nil
			}
			had := r.Old.(*corev1.PersistentVolumeClaim).Spec.Resources.Requests[corev1.ResourceStorage]
			size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
			if size.Cmp(had) <= 0 {
				return nil
			}
			class, err := client.Get[*storagev1.StorageClass](ctx, c, "", claims.Class(claim))
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if err != nil || class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
				return r.Forbid(
					errors.New("only dynamically provisioned pvc can be resized and " +
						"the storageclass that provisions the pvc must support resize"))
			}
			return nil
		}}
}
