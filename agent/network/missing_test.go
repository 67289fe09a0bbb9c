package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/network/dns"
	"monopod/agent/network/networktest"
	"monopod/apiserver/kit/follow"

	mdns "github.com/miekg/dns"
)

// TestKernelWithoutNftables checks that Check reports what does not work because of the kernel, with and without
// NetworkPolicies, and that the DNS server still answers the names of Services.
func TestKernelWithoutNftables(t *testing.T) {
	t.Parallel()
	networktest.Isolated(t, func(netns.NsHandle) {
		if err := networktest.DenyNetfilter(); err != nil {
			t.Error(err)
			return
		}
		n := New(follow.Deps{Log: zap.NewNop()}, Config{
			Node: "here", Bridge: networktest.Bridge, Table: "monopod-test", Policy: "monopod-test-policy",
			Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		})
		r := n.newRunning(nil)
		r.zone = dns.NewZone("cluster.local", r.endpoints, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")})
		defer r.proxy.Close()
		defer r.enforcer.Close()
		meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
		svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.5", ClusterIPs: []string{"10.96.0.5"}, Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := r.endpoints.Sources()[0].Keys(t.Context(), nil, svc); err != nil {
			t.Error(err)
		}
		reconcile := func() {
			t.Helper()
			if _, err := r.reconcile(t.Context(), follow.Key{}); err == nil {
				t.Error("a reconcile without nftables succeeded, so there is no retry")
			}
			want := "the addresses of Services are not forwarded, and NetworkPolicies are not applied"
			if err := n.Check(); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(),
				"the kernel (5.6 or later) needs nftables") {
				t.Errorf("Check returned %v, want %q", err, want)
			}
		}
		reconcile()
		n.policies.onNamespace(nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
		n.policies.onPod(nil, &corev1.Pod{ObjectMeta: meta,
			Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.88.0.2"}}}})
		n.policies.onPolicy(nil, &networkingv1.NetworkPolicy{ObjectMeta: meta})
		reconcile()
		a, ok := r.zone.Answer(mdns.Question{Name: "web.default.svc.cluster.local.", Qtype: mdns.TypeA,
			Qclass: mdns.ClassINET})
		if !ok || len(a.Records) != 1 || !strings.HasSuffix(a.Records[0].String(), "10.96.0.5") {
			t.Errorf("the answer for the Service is %v, %t", a, ok)
		}
	})
}
