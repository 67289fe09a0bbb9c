// Package plugins contains the built-in admission plugins and their order.
package plugins

import (
	"slices"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// New returns the chain. The plugins read stored objects through c. If roles is nil, users may grant all permissions.
// webhooks calls webhooks and policies.
func New(c client.Client, roles Roles, stay TolerationSeconds, webhooks admission.Chain) admission.Chain {
	return slices.Concat(admission.Chain{
		namespaceLifecycle(c),
		serviceAccount(c),
		priority(c),
		LimitRanger(c),
		defaultTolerationSeconds(stay),
		NewPodSecurity(c),
		defaultIngressClass(c),
		nodeRestriction(c),
		roleEscalation(c, roles),
		defaultStorageClass(c),
		claimResize(c),
		runtimeClass(c),
		deviceAdmin(c),
		deviceStatus(roles),
		certificateRequester(),
		certificateApproval(roles),
		certificateSigning(roles),
		podCertificateSigning(roles),
		trustBundleAttest(roles),
		certificateSubjectRestriction(),
	}, webhooks, admission.Chain{
		ResourceQuota(c), // last: the objects that it admits count at once
	})
}
