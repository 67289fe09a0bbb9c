package service

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/apiserver/registry/kind"
)

// Only loopback addresses in the pod range are accepted.
func TestWithLoopbackPods(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ip   string
		errs int
	}{
		{"127.88.0.2", 0}, {"10.0.0.1", 0}, {"127.0.0.1", 1}, {"127.89.0.1", 1}, {"169.254.0.1", 1},
	} {
		for _, r := range WithLoopbackPods(Resources(), netip.MustParsePrefix("127.88.0.0/16")) {
			var obj kind.Object
			switch r.Kind {
			case "Endpoints":
				obj = &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: c.ip}}}}}
			case "EndpointSlice":
				obj = &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
					Endpoints: []discoveryv1.Endpoint{{Addresses: []string{c.ip}}}}
			default:
				continue
			}
			if errs := r.Validate(obj, nil, ""); len(errs) != c.errs {
				t.Errorf("%s %s: %v", r.Kind, c.ip, errs)
			}
		}
	}
}
