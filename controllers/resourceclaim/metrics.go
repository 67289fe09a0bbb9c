package resourceclaim

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
)

// counts counts the claims whenever the metrics are read.
type counts struct {
	client client.Client
	claims *prometheus.Desc
}

func newCounts(c client.Client) counts {
	return counts{c, prometheus.NewDesc("dynamic_resource_allocation_resource_claims",
		"Number of ResourceClaims, by whether devices are allocated, administrative access and source: "+
			"resource_claim_template, extended_resource or empty.",
		[]string{"allocated", "admin_access", "source"}, nil)}
}

var _ prometheus.Collector = counts{}

// Describe implements prometheus.Collector.
func (c counts) Describe(to chan<- *prometheus.Desc) { to <- c.claims }

// Collect implements prometheus.Collector.
func (c counts) Collect(to chan<- prometheus.Metric) {
	type labels struct {
		allocated, admin bool
		source           string
	}
	claims, err := client.List[*resourcev1.ResourceClaim](context.Background(), c.client, client.Selector{})
	if err != nil {
		return
	}
	found := map[labels]int{}
	for _, claim := range claims {
		found[labels{claim.Status.Allocation != nil, owned.AdminAccess(claim), source(claim)}]++
	}
	for l, n := range found {
		to <- prometheus.MustNewConstMetric(c.claims, prometheus.GaugeValue, float64(n), strconv.FormatBool(l.allocated),
			strconv.FormatBool(l.admin), l.source)
	}
}

// source returns what a claim was created from; empty: a user created it.
func source(claim *resourcev1.ResourceClaim) string {
	switch {
	case claim.Annotations[annotation] != "":
		return "resource_claim_template"
	case claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true":
		return "extended_resource"
	}
	return ""
}
