package certificates

import (
	"context"
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
)

const (
	// addressRetry is the interval at which a pending request is compared with the addresses of its node again, for
	// addressTime after it was created: a kubelet may report its addresses only after the request.
	addressRetry = 5 * time.Second
	addressTime  = time.Minute
)

// approveServing approves the request of a node for its serving certificate if every name and address in it is that of
// this node, and of no other. Otherwise a user decides.
func (c *Controller) approveServing(ctx context.Context, r *request,
	x *x509.CertificateRequest) (time.Duration, error) {
	nodes, err := client.List[*corev1.Node](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return 0, err
	}
	if !servesOnly(nodes, strings.TrimPrefix(x.Subject.CommonName, nodePrefix), x) {
		if c.deps.Clock.Since(r.CreationTimestamp.Time) < addressTime {
			return addressRetry, nil
		}
		return 0, nil
	}
	return 0, c.add(ctx, r, "approval", certificatesv1.CertificateApproved, "AutoApproved",
		"Auto approving kubelet serving certificate: its names and addresses are those of the node.")
}

// servesOnly reports whether every DNS name and IP address of the request is in the status of the node with the name,
// and of no other node.
func servesOnly(nodes []*corev1.Node, name string, x *x509.CertificateRequest) bool {
	var wanted []string
	for _, dns := range x.DNSNames {
		wanted = append(wanted, strings.ToLower(dns))
	}
	for _, ip := range x.IPAddresses {
		wanted = append(wanted, canonical(ip.String()))
	}
	found := false
	for _, node := range nodes {
		var has []string
		for _, a := range node.Status.Addresses {
			has = append(has, canonical(a.Address))
		}
		missing := func(one string) bool { return !slices.Contains(has, one) }
		if node.Name == name {
			found = true
			if slices.ContainsFunc(wanted, missing) {
				return false
			}
		} else if slices.ContainsFunc(wanted, func(one string) bool { return !missing(one) }) {
			return false
		}
	}
	return found
}

// canonical returns an address of a node in the form in which it is compared.
func canonical(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(address)
}
