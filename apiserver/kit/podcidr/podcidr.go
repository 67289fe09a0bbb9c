// Package podcidr reads from Nodes what decides where packets to their pods go.
package podcidr

import (
	"bytes"
	"encoding/base64"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Annotation says who sets spec.podCIDRs of a Node.
	Annotation = "monopod.io/pod-cidrs"
	// Self is the value of Annotation on a Node that sets its own ranges; the node IPAM controller gives it none.
	Self = "self"
	// WireGuardKey is the annotation of a Node with the public key of its WireGuard.
	WireGuardKey = "monopod.io/wireguard-public-key"
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

// HasKeyOf reports whether two Nodes have the same WireGuardKey, in whatever form of base64.
func HasKeyOf(a, b *corev1.Node) bool {
	x, errX := base64.StdEncoding.DecodeString(a.Annotations[WireGuardKey])
	y, errY := base64.StdEncoding.DecodeString(b.Annotations[WireGuardKey])
	return errX == nil && errY == nil && len(x) > 0 && bytes.Equal(x, y)
}
