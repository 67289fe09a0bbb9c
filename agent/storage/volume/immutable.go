package volume

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/env"
)

// Immutable caches the immutable ConfigMaps and Secrets of a pod: they are read once, and do not
// change even if another object takes their name. The zero value is ready to use. It is not safe
// for concurrent use.
type Immutable struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
}

// Over returns src with the cache.
func (i *Immutable) Over(src env.Source) env.Source { return remembering{i, src} }

type remembering struct {
	*Immutable
	src env.Source
}

func (r remembering) ConfigMap(name string) (*corev1.ConfigMap, error) {
	if known := r.configMaps[name]; known != nil {
		return known, nil
	}
	cm, err := r.src.ConfigMap(name)
	if cm != nil && cm.Immutable != nil && *cm.Immutable {
		if r.configMaps == nil {
			r.configMaps = map[string]*corev1.ConfigMap{}
		}
		r.configMaps[name] = cm
	}
	return cm, err
}

func (r remembering) Secret(name string) (*corev1.Secret, error) {
	if known := r.secrets[name]; known != nil {
		return known, nil
	}
	secret, err := r.src.Secret(name)
	if secret != nil && secret.Immutable != nil && *secret.Immutable {
		if r.secrets == nil {
			r.secrets = map[string]*corev1.Secret{}
		}
		r.secrets[name] = secret
	}
	return secret, err
}
