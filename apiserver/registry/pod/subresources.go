package pod

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"monopod/apiserver/registry/kind"
)

// subresources are what is served below a pod.
func subresources() []kind.Subresource {
	return append(kind.Parts("status", "ephemeralcontainers", "resize"),
		kind.Subresource{Name: "log", Verbs: []string{"get"}},
		kind.Connection("exec", "PodExecOptions"),
		kind.Connection("attach", "PodAttachOptions"),
		kind.Connection("portforward", "PodPortForwardOptions"),
		kind.Proxy("Pod"),
		kind.Posted("binding", corev1.SchemeGroupVersion.WithKind("Binding"), func() kind.Object { return new(corev1.Binding) }),
		kind.Posted("eviction", policyv1.SchemeGroupVersion.WithKind("Eviction"), func() kind.Object { return new(policyv1.Eviction) }),
	)
}
