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

// isInternal reports whether this process or the agent of a node sent the request.
func isInternal(ctx context.Context) bool {
	user, known := auth.Known(ctx)
	return !known || slices.Contains(user.Groups, auth.Nodes)
}

// Exempt reports whether neither webhooks nor policies apply to the request. As upstream, the configurations of
// admission are exempt, so that users can fix a broken one. Unlike upstream, so are the writes by which the agent and
// the controllers keep the cluster running: a webhook must not block the start of its own pod.
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

// FailsOpen reports whether the request succeeds when a webhook cannot be called, regardless of its failurePolicy. This
// applies to deletions by this process or by an agent. A webhook that answers can still deny them.
func FailsOpen(ctx context.Context, r *admission.Request) bool {
	return isInternal(ctx) && (r.Operation == admission.Delete || r.Old != nil && r.Old.GetDeletionTimestamp() != nil)
}
