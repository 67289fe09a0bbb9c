package static

import (
	"cmp"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"monopod/apiserver/kit/bounded"
	"monopod/apiserver/kit/volume"
)

// decode reads the pod of a file, in YAML or JSON. Like the API it ignores unknown fields, and returns them as
// warnings.
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
	return pod, unknown, checkReferences(pod)
}

// checkReferences returns an error for a pod that refers to objects of the API: nobody has authorized it to read them
// (upstream: PreventStaticPodAPIReferences).
func checkReferences(pod *corev1.Pod) error {
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
	volume.All().References(pod, func(resource, _ string) { what = cmp.Or(what, resource) })
	if what != "" {
		return fmt.Errorf("static pods may not reference %s", what)
	}
	return nil
}
