package match

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// isInternal reports whether a request comes from this process's parts, or from the agent of a node.
func isInternal(ctx context.Context) bool {
	user, known := auth.Known(ctx)
	return !known || slices.Contains(user.Groups, auth.Nodes)
}

// Exempt reports whether neither webhooks nor policies apply to the request. As upstream these are the configurations
// of admission, so that a broken one can be repaired. Here these are also the writes by which the node and the
// controllers keep the cluster alive: a webhook whose pod runs here must not keep it from starting.
func Exempt(ctx context.Context, r *admission.Request) bool {
	if r.Resource.GVR.Group == client.MutatingWebhookConfigurations.Group {
		return true
	}
	if !isInternal(ctx) {
		return false
	}
	switch r.Namespace {
	case metav1.NamespaceSystem, corev1.NamespaceNodeLease:
		return true
	}
	switch r.Resource.GVR {
	case client.Leases, client.Events, client.NewEvents, client.Nodes, client.CSINodes, client.Endpoints,
		client.EndpointSlices, client.IPAddresses:
		return true
	}
	return r.Subresource != ""
}

// FailsOpen reports whether the request belongs to a deletion by this process or by an agent: a webhook can deny it,
// but it goes on if the webhook cannot be called.
func FailsOpen(ctx context.Context, r *admission.Request) bool {
	return isInternal(ctx) && (r.Operation == admission.Delete || r.Old != nil && r.Old.GetDeletionTimestamp() != nil)
}
