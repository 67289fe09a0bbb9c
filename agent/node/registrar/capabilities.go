package registrar

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// capabilities returns the runtime's features and handlers for the node's status.
func capabilities(resp *cri.StatusResponse) (handlers []corev1.NodeRuntimeHandler, features *corev1.NodeFeatures) {
	for _, h := range resp.GetRuntimeHandlers() {
		out := corev1.NodeRuntimeHandler{Name: h.Name}
		if f := h.Features; f != nil {
			out.Features = &corev1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: new(f.RecursiveReadOnlyMounts), UserNamespaces: new(f.UserNamespaces),
			}
		}
		handlers = append(handlers, out)
	}
	slices.SortFunc(handlers, func(a, b corev1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	if f := resp.GetFeatures(); f != nil {
		features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(f.SupplementalGroupsPolicy)}
	}
	return handlers, features
}
