package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/apiserver/kit/follow"
)

// text returns routes as lines: frontend -> endpoints.
func text(r Routes) string {
	var lines []string
	for _, entry := range r {
		to := make([]string, 0, len(entry.Endpoints))
		for _, e := range entry.Endpoints {
			to = append(to, e.AddrPort().String())
		}
		if len(to) == 0 {
			to = []string{map[bool]string{true: "drop", false: "reject"}[entry.Drop]}
		}
		protocol := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp",
			unix.IPPROTO_SCTP: "sctp"}[entry.Protocol]
		from := map[bool]string{true: "inside "}[entry.Inside]
		lines = append(lines,
			fmt.Sprintf("%s%s %s:%d -> %s", from, protocol, entry.Frontend.Addr, entry.Port, strings.Join(to, " ")))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// at returns an endpoint on this node; on returns one on any node.
func at(ip string, conditions ...*bool) discoveryv1.Endpoint { return on("here", ip, conditions...) }

func on(node, ip string, conditions ...*bool) discoveryv1.Endpoint {
	conditions = append(conditions, nil, nil, nil)
	return discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: &node,
		Conditions: discoveryv1.EndpointConditions{Ready: conditions[0], Serving: conditions[1], Terminating: conditions[2]}}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	yes, no := new(true), new(false)
	local := corev1.ServiceInternalTrafficPolicyLocal
	single := func(s *corev1.Service) { // only the cluster IP
		s.Spec.Type, s.Spec.ExternalIPs, s.Spec.Ports = corev1.ServiceTypeClusterIP, nil, []corev1.ServicePort{{Port: 80}}
	}
	for name, c := range map[string]struct {
		change    func(*corev1.Service)
		endpoints []discoveryv1.Endpoint
		want      string
	}{
		"all addresses": {
			change: func(s *corev1.Service) {
				s.Spec.Ports = s.Spec.Ports[:1]
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.8"},
					{IP: "192.0.2.9", IPMode: new(corev1.LoadBalancerIPModeProxy)}, {Hostname: "x"}}
			},
			endpoints: []discoveryv1.Endpoint{at("10.88.0.3"), at("10.88.0.2")},
			want: `tcp 0.0.0.0:30080 -> 10.88.0.2:8080 10.88.0.3:8080
tcp 10.96.0.5:80 -> 10.88.0.2:8080 10.88.0.3:8080
tcp 192.0.2.7:80 -> 10.88.0.2:8080 10.88.0.3:8080
tcp 192.0.2.8:80 -> 10.88.0.2:8080 10.88.0.3:8080`,
		},
		"named port": {
			change: func(s *corev1.Service) {
				single(s)
				s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2},
					{Name: "a", Port: 3, Protocol: corev1.ProtocolSCTP}, {Name: "c", Port: 4}}
			},
			endpoints: []discoveryv1.Endpoint{at("10.88.0.2")},
			want: `sctp 10.96.0.5:3 -> 10.88.0.2:103
tcp 10.96.0.5:1 -> 10.88.0.2:101
tcp 10.96.0.5:2 -> 10.88.0.2:102
tcp 10.96.0.5:4 -> reject`,
		},
		"ready endpoints": {
			change: single, endpoints: []discoveryv1.Endpoint{at("10.88.0.2", yes), at("10.88.0.3", no),
				at("10.88.0.4", no, yes, yes)}, want: "tcp 10.96.0.5:80 -> 10.88.0.2:8080",
		},
		"only terminating endpoints": {
			change: single, endpoints: []discoveryv1.Endpoint{at("10.88.0.2", no, no, yes), at("10.88.0.3", no),
				at("10.88.0.4", no, yes, yes)}, want: "tcp 10.96.0.5:80 -> 10.88.0.4:8080",
		},
		"none": {change: single, want: "tcp 10.96.0.5:80 -> reject"},
		"duplicate endpoint": {
			change: single, endpoints: []discoveryv1.Endpoint{at("10.88.0.2", no, yes, yes), at("10.88.0.2"), at("10.88.0.2")},
			want: "tcp 10.96.0.5:80 -> 10.88.0.2:8080",
		},
		"external policy Local": {
			change: func(s *corev1.Service) {
				s.Spec.ExternalTrafficPolicy, s.Spec.Ports = corev1.ServiceExternalTrafficPolicyLocal, s.Spec.Ports[:1]
			},
			endpoints: []discoveryv1.Endpoint{at("10.88.0.2"), on("there", "10.89.0.2")},
			want: `inside tcp 0.0.0.0:30080 -> 10.88.0.2:8080 10.89.0.2:8080
inside tcp 192.0.2.7:80 -> 10.88.0.2:8080 10.89.0.2:8080
tcp 0.0.0.0:30080 -> 10.88.0.2:8080
tcp 10.96.0.5:80 -> 10.88.0.2:8080 10.89.0.2:8080
tcp 192.0.2.7:80 -> 10.88.0.2:8080`,
		},
		"external policy Local, all endpoints local": {
			change: func(s *corev1.Service) {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				s.Spec.Ports = s.Spec.Ports[:1]
				s.Spec.ExternalIPs = nil
			},
			endpoints: []discoveryv1.Endpoint{at("10.88.0.2")},
			want: `tcp 0.0.0.0:30080 -> 10.88.0.2:8080
tcp 10.96.0.5:80 -> 10.88.0.2:8080`,
		},
		"external policy Local, no local endpoint": {
			change: func(s *corev1.Service) {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				s.Spec.Ports = s.Spec.Ports[:1]
				s.Spec.ExternalIPs = nil
			},
			endpoints: []discoveryv1.Endpoint{on("there", "10.89.0.2")},
			want: `inside tcp 0.0.0.0:30080 -> 10.89.0.2:8080
tcp 0.0.0.0:30080 -> drop
tcp 10.96.0.5:80 -> 10.89.0.2:8080`,
		},
		"internal policy Local, no local endpoint": {
			change:    func(s *corev1.Service) { single(s); s.Spec.InternalTrafficPolicy = &local },
			endpoints: []discoveryv1.Endpoint{on("there", "10.89.0.2")}, want: "tcp 10.96.0.5:80 -> drop",
		},
		"headless":       {change: func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }},
		"no address yet": {change: func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil }},
		"ExternalName":   {change: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }},
		"other proxy":    {change: func(s *corev1.Service) { s.Labels = map[string]string{labelProxyName: "other"} }},
		"headless by a label": {change: func(
			s *corev1.Service) {
			s.Labels = map[string]string{corev1.IsHeadlessService: ""}
		}},
		"another family": {change: func(s *corev1.Service) {
			s.Spec.ClusterIP = "fd96::5"
			s.Spec.ClusterIPs = []string{"fd96::5"}
		}},
	} {
		slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: c.endpoints,
			Ports: []discoveryv1.EndpointPort{
				{Name: new("tcp"), Port: new(int32(8080))}, {Port: new(int32(8080))}, {Name: new("c")},
				{Name: new("a"), Port: new(int32(101))}, {Name: new("b"), Port: new(int32(102))},
				{Name: new("a"), Port: new(int32(103)), Protocol: new(corev1.ProtocolSCTP)},
			}}
		other := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv6,
			Endpoints: []discoveryv1.Endpoint{at("fd88::2")}, Ports: slice.Ports}
		headless := slice.DeepCopy() // its label makes proxies ignore it
		headless.Labels = map[string]string{corev1.IsHeadlessService: ""}
		headless.Endpoints = []discoveryv1.Endpoint{at("10.88.0.99")}
		got := text(Of(service(c.change), []*discoveryv1.EndpointSlice{slice, other, headless}, corev1.IPv4Protocol,
			Node{Name: "here"}))
		if got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.want)
		}
	}
}

// TestAddressBelongsToOneService checks that, of two Services with the same external IP, the second gets it after the
// deletion of the first.
func TestAddressBelongsToOneService(t *testing.T) {
	t.Parallel()
	table := newTable(newLayout(Config{Table: "t", Bridge: "br"}, corev1.IPv4Protocol))
	first, second := follow.Key{Name: "first"}, follow.Key{Name: "second"}
	eps := endpointSlices([]string{"10.88.0.2"})
	routes := Of(service(), eps, corev1.IPv4Protocol, Node{Name: "here"})
	if taken, _ := table.set(first, routes); len(taken) > 0 {
		t.Errorf("conflicting addresses of the first Service: %v", taken)
	}
	if taken, _ := table.set(second, routes); len(taken) != len(routes) || table.services[second] != nil {
		t.Errorf("conflicting addresses of the second Service: %v of %v", taken, routes)
	}
	if _, freed := table.set(first, nil); !freed {
		t.Error("set does not report freed addresses")
	}
	if taken, _ := table.set(second, routes); len(taken) > 0 || text(table.services[second].Routes) != text(routes) {
		t.Errorf("after the deletion of the first Service: conflicts %v, the second has %v", taken, table.services[second])
	}
	table.set(second, nil)
	if !table.Empty() || len(table.owner)+len(table.services)+len(table.hosts) > 0 {
		t.Errorf("the table still has %+v, %v, %v, %v", table.Table, table.owner, table.services, table.hosts)
	}
}

// TestFlowsOfRemovedEndpoints checks that the proxy searches conntrack, which may be large, only after the removal of
// an endpoint of a UDP Service.
func TestFlowsOfRemovedEndpoints(t *testing.T) {
	t.Parallel()
	tbl := newTable(newLayout(Config{Table: tableName}, corev1.IPv4Protocol))
	for i, step := range []struct {
		endpoints []string
		search    bool
	}{
		{[]string{"10.0.0.1"}, true}, {[]string{"10.0.0.1", "10.0.0.2"}, false}, {[]string{"10.0.0.1", "10.0.0.2"}, false},
		{[]string{"10.0.0.2"}, true},
		{nil, true}, {[]string{"10.0.0.2"}, true},
	} {
		clear(tbl.udp)
		tbl.set(web, Of(service(), endpointSlices(step.endpoints), corev1.IPv4Protocol, Node{Name: "here"}))
		if search := len(tbl.udp) > 0; search != step.search {
			t.Errorf("step %d: search %t, want %t", i, search, step.search)
		}
	}
}

// TestTerminatingEndpointsAreNotHealthy checks that health checks of load balancers fail if all endpoints of the node
// terminate, while remaining traffic still reaches these endpoints.
func TestTerminatingEndpointsAreNotHealthy(t *testing.T) {
	t.Parallel()
	svc := service(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = 31000
	})
	slice := endpointSlices([]string{"10.0.0.1"})[0]
	slice.Endpoints = append(slice.Endpoints, on("there", "10.0.0.2"), at("10.0.0.3", new(false), new(true), new(true)))
	node := Node{Name: "here"}
	for _, want := range []int{1, 0} {
		eps := []*discoveryv1.EndpointSlice{slice}
		if got := localReady(svc, eps, corev1.IPv4Protocol, node.Name); got != want {
			t.Errorf("%d ready local endpoints, want %d", got, want)
		}
		front := Frontend{Addr: anyAddress(corev1.IPv4Protocol), Protocol: unix.IPPROTO_TCP, Port: 30080}
		if to, _ := Of(svc, eps, corev1.IPv4Protocol, node).find(front); len(to.Endpoints) != 1 || !to.Endpoints[0].Local {
			t.Errorf("traffic goes to %v", to.Endpoints)
		}
		slice.Endpoints = slice.Endpoints[1:] // leaves only the terminating endpoint on this node
	}
}
