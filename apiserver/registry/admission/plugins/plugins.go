// Package plugins contains this server's chain of admission plugins: the small ones, and those of
// the packages podsecurity and quota.
package plugins

import (
	"slices"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// New returns the chain; plugins read stored objects through c. With nil roles every user may
// grant everything. webhooks calls what is not built in.
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
		ResourceQuota(c), // last: what it admits counts at once
	})
}
