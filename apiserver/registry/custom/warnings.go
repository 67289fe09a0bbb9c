package custom

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/apiserver/registry/kind"
)

// finalizerWarnings returns warnings about new finalizers whose names may conflict with other writers (upstream:
// validateKubeFinalizerName).
func finalizerWarnings(next, cur kind.Object) (out []string) {
	const at = "metadata.finalizers"
	for _, name := range slices.Sorted(slices.Values(next.GetFinalizers())) {
		if cur != nil && slices.Contains(cur.GetFinalizers(), name) {
			continue
		}
		for _, why := range validation.IsQualifiedName(name) {
			out = append(out, fmt.Sprintf("%s: %q: %s", at, name, why))
		}
		switch {
		case strings.Contains(name, "/"), name == metav1.FinalizerOrphanDependents, name == metav1.FinalizerDeleteDependents,
			name == string(corev1.FinalizerKubernetes):
		case strings.Contains(name, "."):
			out = append(out,
				fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name including a path (/) "+
					"to avoid accidental conflicts with other finalizer writers", at, name))
		default:
			out = append(out,
				fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name "+
					"to avoid accidental conflicts with other finalizer writers", at, name))
		}
	}
	return out
}
