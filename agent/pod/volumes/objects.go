package volumes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/client"
)

// Objects reads the ConfigMaps and Secrets of one namespace, each once. It is for one step of a
// worker.
type Objects struct {
	Context   context.Context
	Client    client.Client
	Namespace string
}

// ConfigMap returns the ConfigMap with that name; nil: it does not exist.
func (o Objects) ConfigMap(name string) (*corev1.ConfigMap, error) {
	cm, err := client.Get[*corev1.ConfigMap](o.Context, o.Client, o.Namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cm, err
}

// Secret returns the Secret with that name; nil: it does not exist.
func (o Objects) Secret(name string) (*corev1.Secret, error) {
	s, err := client.Get[*corev1.Secret](o.Context, o.Client, o.Namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return s, err
}
