package owned

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"

	"monopod/apiserver/kit/follow"
)

// ClaimCreations counts the ResourceClaims that are created for pods. Several controllers share the metric.
type ClaimCreations struct{ total *prometheus.CounterVec }

// NewClaimCreations registers the metric, or returns the registered one.
func NewClaimCreations(m *follow.Metrics) (ClaimCreations, error) {
	total, err := follow.Register(m, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dynamic_resource_allocation_resourceclaim_creates_total",
		Help: "Number of requests to create a ResourceClaim for a pod, by success and administrative access.",
	}, []string{"status", "admin_access", "owner_api_group", "owner_api_kind"}))
	return ClaimCreations{total}, err
}

// Add counts an attempt to create a claim.
func (c ClaimCreations) Add(claim *resourcev1.ResourceClaim, err error) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	c.total.WithLabelValues(status, strconv.FormatBool(AdminAccess(claim)), "", "Pod").Inc()
}

// AdminAccess reports whether a claim requests administrative access to devices.
func AdminAccess(claim *resourcev1.ResourceClaim) bool {
	for i := range claim.Spec.Devices.Requests {
		if e := claim.Spec.Devices.Requests[i].Exactly; e != nil && e.AdminAccess != nil && *e.AdminAccess {
			return true
		}
	}
	return false
}
