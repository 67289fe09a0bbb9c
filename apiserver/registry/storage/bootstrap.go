package storage

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	claims "monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
)

const (
	// defaultName is the name of a new cluster's default class.
	defaultName = "standard"
	// bootstrapAnnotation is the annotation of the namespace kube-system that records that Bootstrap has run.
	bootstrapAnnotation = "monopod.io/default-storage-class"
)

// Bootstrap creates the default StorageClass once in the life of a cluster, so that users can change or delete it. It
// does nothing if the cluster already has a default class. The namespace kube-system must exist.
func Bootstrap(ctx context.Context, c client.Client) error {
	system, err := client.Get[*corev1.Namespace](ctx, c, "", metav1.NamespaceSystem)
	if err != nil || system.Annotations[bootstrapAnnotation] != "" {
		return err
	}
	classes, err := client.List[*storagev1.StorageClass](ctx, c, client.Selector{})
	if err != nil {
		return err
	}
	if claims.Default(classes) == nil {
		class := &storagev1.StorageClass{ // its volumes are directories on the node, created when a pod needs them
			TypeMeta: metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass"},
			ObjectMeta: metav1.ObjectMeta{Name: defaultName,
				Annotations: map[string]string{claims.DefaultClass: "true"}},
			Provisioner:          claims.Provisioner,
			ReclaimPolicy:        new(corev1.PersistentVolumeReclaimDelete),
			VolumeBindingMode:    new(storagev1.VolumeBindingWaitForFirstConsumer),
			AllowVolumeExpansion: new(true),
		}
		if _, err := c.Create(ctx, class); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	_, err = client.Update(ctx, c, system, "", func(n *corev1.Namespace) error {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, bootstrapAnnotation, defaultName)
		return nil
	})
	return err
}
