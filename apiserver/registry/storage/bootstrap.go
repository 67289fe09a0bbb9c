package storage

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	claims "monopod/apiserver/client/claim"
)

const (
	// defaultName is that of the class a new cluster has.
	defaultName = "standard"
	// offered marks the namespace kube-system of a cluster that has been given it.
	offered = "monopod.io/default-storage-class"
)

// Bootstrap gives a cluster its default class, once in its life: what becomes of it
// afterwards is the user's, also that it is deleted. Where there is another default
// by then, none is made. The namespaces must be there.
func Bootstrap(ctx context.Context, c client.Client) error {
	system, err := client.Get[*corev1.Namespace](ctx, c, "", metav1.NamespaceSystem)
	if err != nil || system.Annotations[offered] != "" {
		return err
	}
	classes, err := client.List[*storagev1.StorageClass](ctx, c, client.Selector{})
	if err != nil {
		return err
	}
	if claims.Default(classes) == nil {
		if _, err := c.Create(ctx, defaultClass()); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	_, err = client.Update(ctx, c, system, "", func(n *corev1.Namespace) error {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, offered, defaultName)
		return nil
	})
	return err
}

// defaultClass is of folders on the node, made when a pod needs them.
func defaultClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		TypeMeta:             metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass"},
		ObjectMeta:           metav1.ObjectMeta{Name: defaultName, Annotations: map[string]string{claims.DefaultClass: "true"}},
		Provisioner:          claims.Provisioner,
		ReclaimPolicy:        new(corev1.PersistentVolumeReclaimDelete),
		VolumeBindingMode:    new(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: new(true),
	}
}
