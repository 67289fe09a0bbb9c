package plugins

import (
	"context"

	"monopod/apiserver/registry/admission"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TolerationSeconds is the time that a pod stays on a node that is not ready or unreachable, unless its own tolerations
// set it; nil: DefaultTolerationSeconds.
type TolerationSeconds struct {
	NotReady, Unreachable *int64
}

// DefaultTolerationSeconds is upstream's default.
const DefaultTolerationSeconds = 300

// defaultTolerationSeconds adds tolerations for nodes that are not ready or unreachable.
func defaultTolerationSeconds(stay TolerationSeconds) admission.Plugin {
	return admission.Plugin{Name: "DefaultTolerationSeconds", Mutate: func(_ context.Context, r *admission.Request) error {
		pod, ok := r.Object.(*corev1.Pod)
		if ok && r.Subresource == "" {
			tolerateFor(&pod.Spec, corev1.TaintNodeNotReady, stay.NotReady)
			tolerateFor(&pod.Spec, corev1.TaintNodeUnreachable, stay.Unreachable)
		}
		return nil
	}}
}

// tolerateFor adds the toleration unless the pod already tolerates the taint.
func tolerateFor(spec *corev1.PodSpec, taint string, seconds *int64) {
	for _, t := range spec.Tolerations {
		anyEffect := t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute
		if anyEffect && (t.Key == "" || t.Key == taint) {
			return
		}
	}
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
		Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: new(ptr.Deref(seconds, DefaultTolerationSeconds)),
	})
}
