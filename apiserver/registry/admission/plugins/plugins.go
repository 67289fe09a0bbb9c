// Package plugins is the chain of admission of this server. What is small is here;
// podsecurity and quota are rooms of their own.
package plugins

import (
	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/podsecurity"
	"monopod/apiserver/registry/admission/quota"
)

// New is the chain of this server; plugins read what is stored through c. roles
// may be nil: then everybody may grant everything.
func New(c client.Client, roles Roles) admission.Chain {
	return admission.Chain{
		namespaceLifecycle(c),
		serviceAccount(c),
		priority(c),
		quota.LimitRanger(c),
		defaultTolerationSeconds(),
		podsecurity.New(c),
		defaultIngressClass(c),
		nodeRestriction(c),
		roleEscalation(c, roles),
		defaultStorageClass(c),
		claimResize(c),
		runtimeClass(c),
		certificateRequester(),
		certificateApproval(roles),
		certificateSigning(roles),
		certificateSubjectRestriction(),
		quota.ResourceQuota(c), // last: what it lets through counts at once
	}
}
