package volume

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/env"
)

// Immutable caches the immutable ConfigMaps and Secrets of a pod: each is read once, and does not change even if it is
// deleted and created again. The zero value is ready to use. It is not safe for concurrent use.
type Immutable struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
}

// Over returns a Source that reads src through the cache.
func (i *Immutable) Over(src env.Source) env.Source { return cachedSource{i, src} }

type cachedSource struct {
	*Immutable
	src env.Source
}

func (r cachedSource) ConfigMap(name string) (*corev1.ConfigMap, error) {
	if cached := r.configMaps[name]; cached != nil {
		return cached, nil
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

func (r cachedSource) Secret(name string) (*corev1.Secret, error) {
	if cached := r.secrets[name]; cached != nil {
		return cached, nil
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
