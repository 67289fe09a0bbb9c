package env_test

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/env"
)

func TestServerFor(t *testing.T) {
	t.Parallel()
	interfaces := []netip.Prefix{
		netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("192.168.7.20/24"),
		netip.MustParsePrefix("10.88.0.1/24"), netip.MustParsePrefix("fd88::1/64"),
	}
	for _, c := range []struct {
		name, listen string
		host         bool
		ip, want     string
	}{
		{"loopback", "127.0.0.1:6443", false, "10.88.0.7", "invalid AddrPort"},
		{"loopback, host network", "127.0.0.1:6443", true, "192.168.7.20", "127.0.0.1:6443"},
		{"IPv6 loopback, host network", "[::1]:6443", true, "192.168.7.20", "[::1]:6443"},
		{"all addresses", "0.0.0.0:6443", false, "10.88.0.7", "10.88.0.1:6443"},
		{"all addresses, IPv6", "[::]:6443", false, "fd88::7", "[fd88::1]:6443"},
		{"all addresses, host network", "[::]:6443", true, "192.168.7.20", "127.0.0.1:6443"},
		{"all addresses, other network", "[::]:6443", false, "10.99.0.7", "192.168.7.20:6443"},
		{"all addresses, pod without address", "[::]:6443", false, "", "192.168.7.20:6443"},
		{"one address", "192.168.7.20:7443", false, "10.88.0.7", "192.168.7.20:7443"},
		{"IPv4-mapped address", "[::ffff:192.168.7.20]:7443", true, "192.168.7.20", "192.168.7.20:7443"},
	} {
		got := env.ServerFor(netip.MustParseAddrPort(c.listen), c.host, []string{c.ip}, interfaces, "192.168.7.20")
		if got.String() != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	if got := env.ServerFor(netip.MustParseAddrPort("[::]:6443"), false, []string{"10.99.0.7"}, interfaces,
		"127.0.0.1"); got.IsValid() {
		t.Errorf("a node without an address: got %s", got)
	}
}

func TestWithServer(t *testing.T) {
	t.Parallel()
	https := corev1.ServicePort{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}
	list := []*corev1.Service{service("ns", "kubernetes", "10.43.9.9", https),
		service("default", "kubernetes", "10.43.0.1", https)}
	got := lines(env.Services(env.WithServer(list, netip.MustParseAddrPort("10.88.0.1:6443")), "default", false))
	if want := `KUBERNETES_SERVICE_HOST=10.88.0.1
KUBERNETES_SERVICE_PORT=6443
KUBERNETES_SERVICE_PORT_HTTPS=6443
KUBERNETES_PORT=tcp://10.88.0.1:6443
KUBERNETES_PORT_6443_TCP=tcp://10.88.0.1:6443`; !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s", got)
	}
	if got := lines(env.Services(env.WithServer(list, netip.AddrPort{}), "default", true)); got != "" {
		t.Errorf("without a reachable server: got\n%s", got)
	}
	if got := lines(env.Services(env.WithServer(list, netip.AddrPort{}), "ns", true)); !strings.Contains(got,
		"10.43.9.9") {
		t.Errorf("without a reachable server, the Service kubernetes of the namespace is missing: got\n%s", got)
	}
	if list[1].Spec.ClusterIP != "10.43.0.1" {
		t.Error("WithServer changed the Service of the caller")
	}
}
