package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	service := func(typ corev1.ServiceType, ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: typ, Ports: ports, ExternalName: "db.example.com"}}
	}
	slice := func(port string, number int32, endpoints ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}}}
		for _, text := range endpoints {
			address, state, _ := strings.Cut(text, " ")
			e := discoveryv1.Endpoint{Addresses: []string{address}}
			if state != "" {
				e.Conditions = discoveryv1.EndpointConditions{Ready: new(state == "ready"), Serving: new(state != "starting"),
					Terminating: new(state == "ending")}
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		return s
	}
	web := corev1.ServicePort{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}
	grpc := corev1.ServicePort{Name: "grpc", Port: 90, AppProtocol: new("kubernetes.io/h2c")}
	tls := corev1.ServicePort{Name: "tls", Port: 443, AppProtocol: new("https")}
	udp := corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}
	number := func(n int32) Target { return Target{Port: networkingv1.ServiceBackendPort{Number: n}} }
	named := func(name string) Target { return Target{Port: networkingv1.ServiceBackendPort{Name: name}} }
	over := func(t Target, protocol string) Target { t.Override = protocol; return t }
	for name, c := range map[string]struct {
		t    Target
		svc  *corev1.Service
		eps  []*discoveryv1.EndpointSlice
		want Servers
	}{
		"no Service":     {number(80), nil, nil, Servers{problem: `Service "" does not exist`}},
		"no such number": {number(81), service("", web), nil, Servers{problem: `Service "" has no port 81`}},
		"no such name":   {named("x"), service("", web), nil, Servers{problem: `Service "" has no port "x"`}},
		"UDP":            {number(53), service("", udp), nil, Servers{problem: `port 53 of Service "" is not a TCP port`}},
		"no endpoints":   {number(80), service("", web), nil, Servers{}},
		"by number": {number(80), service("", web),
			[]*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.2", "10.0.0.1 ready")},
			Servers{addresses: []string{"10.0.0.1:8080", "10.0.0.2:8080"}}},
		"by name": {named("http"), service("", grpc, web),
			[]*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1")}, Servers{addresses: []string{"10.0.0.1:8080"}}},
		"another port": {named("http"), service("", grpc, web),
			[]*discoveryv1.EndpointSlice{slice("grpc", 9090, "10.0.0.1")}, Servers{}},
		"two slices": {number(80), service("", web), []*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1"),
			slice("http", 8081, "10.0.0.2", "10.0.0.2")}, Servers{addresses: []string{"10.0.0.1:8080", "10.0.0.2:8081"}}},
		"not ready": {number(80), service("", web),
			[]*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1 starting", "10.0.0.2 ready")},
			Servers{addresses: []string{"10.0.0.2:8080"}}},
		"ending": {number(80), service("", web), []*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1 ending",
			"10.0.0.2 ready")}, Servers{addresses: []string{"10.0.0.2:8080"}}},
		"only terminating": {number(80), service("", web), []*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1 ending",
			"10.0.0.2 starting")}, Servers{addresses: []string{"10.0.0.1:8080"}}},
		"h2c": {number(90), service("", grpc), []*discoveryv1.EndpointSlice{slice("grpc", 9090, "fd00::1")},
			Servers{addresses: []string{"[fd00::1]:9090"}, protocol: h2c}},
		"https":              {named("tls"), service("", tls), nil, Servers{protocol: https}},
		"https by port name": {over(number(80), "HTTPS"), service("", web), nil, Servers{protocol: https}},
		"http by annotation": {over(named("tls"), "HTTP"), service("", tls), nil, Servers{protocol: http1}},
		"GRPC":               {over(number(80), "GRPC"), service("", web), nil, Servers{protocol: h2c}},
		"external": {number(80), service("ExternalName"), nil, Servers{addresses: []string{"db.example.com:80"},
			external: true}},
		"external name": {named("tls"), service("ExternalName", tls), nil,
			Servers{addresses: []string{"db.example.com:443"}, external: true, protocol: https}},
		"external, none": {named("x"), service("ExternalName"), nil, Servers{problem: `Service "" has no port "x"`}},
	} {
		if diff := cmp.Diff(c.want, Resolve(c.t, c.svc, c.eps), cmp.AllowUnexported(Servers{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	b := NewBackend(Target{})
	now := time.Unix(1000, 0)
	if e, c := b.pick(now, "", nil); e != nil || c.problem == "" {
		t.Errorf("a new backend has the endpoint %v", e)
	}
	if !b.Set(Servers{addresses: []string{"a", "b", "c"}}) || b.Set(Servers{addresses: []string{"a", "b", "c"}}) {
		t.Error("Set must report a changed problem, and only that")
	}
	count := func(tried ...*endpoint) string {
		counts := map[string]int{}
		for range 12 {
			if e, _ := b.pick(now, "", tried); e != nil {
				counts[e.address]++
			}
		}
		return fmt.Sprint(counts)
	}
	if got := count(); got != "map[a:4 b:4 c:4]" {
		t.Errorf("requests: %s", got)
	}
	_, c := b.pick(now, "", nil)
	first, second := c.endpoints[0], c.endpoints[1]
	if got := count(first, second); got != "map[c:12]" {
		t.Errorf("requests after two endpoints failed: %s", got)
	}
	first.avoidUntil.Store(now.Add(time.Second).UnixNano())
	if got := count(); !strings.HasPrefix(got, "map[b:") || strings.Contains(got, "a:") {
		t.Errorf("requests while one endpoint is avoided: %s", got)
	}
	if got := count(c.endpoints[1], c.endpoints[2]); got != "map[a:12]" {
		t.Errorf("requests if only the avoided endpoint is left: %s", got)
	}
	b.Set(Servers{addresses: []string{"a", "d"}})
	if _, c := b.pick(now, "", nil); c.endpoints[0] != first {
		t.Error("Set replaced the state of an existing endpoint")
	}
	now = now.Add(2 * time.Second)
	if got := count(); got != "map[a:6 d:6]" {
		t.Errorf("requests after the avoidance: %s", got)
	}
}
