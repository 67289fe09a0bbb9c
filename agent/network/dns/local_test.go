package dns

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Each node's pods reach the server of their node, although the published EndpointSlice leads to that of one node.
func TestLocal(t *testing.T) {
	t.Parallel()
	addresses := []netip.Addr{netip.MustParseAddr("10.96.0.10")}
	servers := []netip.AddrPort{netip.MustParseAddrPort("10.88.5.1:53"), netip.MustParseAddrPort("[fd88:5::1]:53")}
	published := []*discoveryv1.EndpointSlice{slice(netip.MustParseAddrPort("10.88.0.1:53"), 0, "server")}
	for _, svc := range []*corev1.Service{nil, service(addresses, 53)} {
		got, eps := Local(svc, addresses, servers, "joined", published)
		if got == nil || got.Spec.ClusterIP != "10.96.0.10" || len(eps) != 2 ||
			eps[0].Endpoints[0].Addresses[0] != "10.88.5.1" || *eps[0].Endpoints[0].NodeName != "joined" ||
			eps[1].Endpoints[0].Addresses[0] != "fd88:5::1" {
			t.Errorf("Service %v with %v", got, eps)
		}
	}
	other := service(addresses, 53)
	other.Spec.Selector = map[string]string{"k8s-app": "kube-dns"}
	if got, eps := Local(other, addresses, servers, "joined", published); got != other || eps[0] != published[0] {
		t.Errorf("the Service of another DNS server became %v with %v", got, eps)
	}
	if got, eps := Local(nil, nil, nil, "joined", nil); got != nil || eps != nil {
		t.Errorf("without a DNS server: %v with %v", got, eps)
	}
}
