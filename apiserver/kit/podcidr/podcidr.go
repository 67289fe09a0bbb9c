// Package podcidr reads the ranges of pods' addresses from Nodes.
package podcidr

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Annotation says who sets spec.podCIDRs of a Node.
	Annotation = "monopod.io/pod-cidrs"
	// Self is the value of Annotation on a Node that sets its own ranges; the node IPAM controller gives it none.
	Self = "self"
)

// Of returns the ranges of a Node, without those that do not parse.
func Of(node *corev1.Node) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}
