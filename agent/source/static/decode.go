package static

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"monopod/apiserver/codec/bounded"
)

// decode reads the one pod of a file, in YAML or JSON. Fields that a pod does not
// have are left out and returned, as the API does with a warning.
func decode(data []byte) (pod *corev1.Pod, unknown []error, err error) {
	doc, err := bounded.YAMLToJSON(data)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot be read: %w", err)
	}
	var weigher bounded.Weigher
	if _, err := weigher.JSON(doc, &corev1.Pod{}); err != nil {
		return nil, nil, err
	}
	var is metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &is); err != nil {
		return nil, nil, fmt.Errorf("cannot be read: %w", err)
	}
	if is.APIVersion != "v1" || is.Kind != "Pod" {
		return nil, nil, fmt.Errorf("must hold one Pod of v1, not kind %q of %q", is.Kind, is.APIVersion)
	}
	pod = new(corev1.Pod)
	if unknown, err = kjson.UnmarshalStrict(doc, pod); err != nil {
		return nil, nil, fmt.Errorf("cannot be read: %w", err)
	}
	if pod.Name == "" {
		return nil, nil, errors.New("metadata.name: Required value")
	}
	return pod, unknown, refers(pod)
}

// refers refuses a pod that needs objects of the API: it would not be the node
// that grants it to read them (upstream: PreventStaticPodAPIReferences).
func refers(pod *corev1.Pod) error {
	what := ""
	spec := &pod.Spec
	switch {
	case spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != "":
		what = "serviceaccounts"
	case len(spec.ImagePullSecrets) > 0:
		what = "secrets"
	case len(spec.ResourceClaims) > 0:
		what = "resourceclaims"
	}
	for i := range spec.Volumes {
		what = first(what, volumeRefers(&spec.Volumes[i]))
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		what = first(what, containerRefers(&c))
	}
	if what != "" {
		return fmt.Errorf("static pods may not reference %s", what)
	}
	return nil
}

func first(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func volumeRefers(v *corev1.Volume) string {
	switch {
	case v.Secret != nil:
		return "secrets"
	case v.ConfigMap != nil:
		return "configmaps"
	case v.PersistentVolumeClaim != nil || v.Ephemeral != nil:
		return "persistentvolumeclaims"
	case v.Projected == nil:
		return ""
	}
	for _, s := range v.Projected.Sources {
		switch {
		case s.Secret != nil:
			return "secrets"
		case s.ConfigMap != nil:
			return "configmaps"
		case s.ServiceAccountToken != nil:
			return "serviceaccounts"
		case s.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case s.PodCertificate != nil:
			return "podcertificaterequests"
		}
	}
	return ""
}

func containerRefers(c *corev1.Container) string {
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			return "secrets"
		}
		if from.ConfigMapRef != nil {
			return "configmaps"
		}
	}
	for _, v := range c.Env {
		if from := v.ValueFrom; from != nil && from.SecretKeyRef != nil {
			return "secrets"
		} else if from != nil && from.ConfigMapKeyRef != nil {
			return "configmaps"
		}
	}
	return ""
}
