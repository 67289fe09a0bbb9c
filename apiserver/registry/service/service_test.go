package service_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/kind/kindtest"
	"monopod/apiserver/registry/service"
)

const (
	clusterIP = `type: ClusterIP, clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1], ipFamilies: [IPv4], ` +
		`ipFamilyPolicy: SingleStack`
	onePort = `ports: [{port: 80}]`
)

func spec(parts ...string) string {
	return "{metadata: {name: x}, spec: {" + strings.Join(parts, ", ") + "}}"
}

// balanced returns a Service of type LoadBalancer with an allocated address.
func balanced(parts ...string) string {
	return spec(append(
		[]string{`type: LoadBalancer, clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1], ipFamilies: [IPv4], ` + onePort},
		parts...)...)
}

func TestServiceCreation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ obj, want string }{
		{spec(clusterIP, onePort), ""},
		{spec(`clusterIP: None, clusterIPs: [None]`), ""},
		{spec(`type: ExternalName, externalName: example.com.`), ""},
		{spec(clusterIP), "spec.ports: Required value"},
		{spec(`type: Nonsense, ` + onePort), "spec.type: Unsupported value"},
		{spec(clusterIP, `ports: [{port: 0}]`), "spec.ports[0].port: Invalid value\nspec.ports[0].targetPort: Invalid value"},
		{spec(clusterIP, `ports: [{port: 65536, targetPort: 1}]`), "spec.ports[0].port: Invalid value"},
		{spec(clusterIP, `ports: [{port: 80}, {port: 81}]`),
			"spec.ports[0].name: Required value\nspec.ports[1].name: Required value"},
		{spec(clusterIP, `ports: [{name: a, port: 80}, {name: a, port: 81}]`), "spec.ports[1].name: Duplicate value"},
		{spec(clusterIP, `ports: [{name: A_b, port: 80}]`), "spec.ports[0].name: Invalid value"},
		{spec(clusterIP, `ports: [{name: a, port: 80}, {name: b, port: 80}]`), "spec.ports[1]: Duplicate value"},
		{spec(clusterIP, `ports: [{name: a, port: 80}, {name: b, port: 80, protocol: UDP}]`), ""},
		{spec(clusterIP, `ports: [{port: 80, protocol: tcp}]`), "spec.ports[0].protocol: Unsupported value"},
		{spec(clusterIP, `ports: [{port: 80, targetPort: no_port}]`), "spec.ports[0].targetPort: Invalid value"},
		{spec(clusterIP, `ports: [{port: 80, targetPort: 70000}]`), "spec.ports[0].targetPort: Invalid value"},
		{spec(clusterIP, `ports: [{port: 80, appProtocol: "a b"}]`), "spec.ports[0].appProtocol: Invalid value"},
		{spec(clusterIP, `ports: [{port: 80, nodePort: 30001}]`), "spec.ports[0].nodePort: Forbidden"},
		{spec(`type: NodePort, ` + `ports: [{name: a, port: 80, nodePort: 30001}, {name: b, port: 81, nodePort: 30001}]`),
			"spec.ports[1].nodePort: Duplicate value"},
		{spec(`type: NodePort, clusterIP: None, ` + onePort), "spec.clusterIPs[0]: Invalid value"},
		{spec(`type: LoadBalancer, clusterIP: None, ` + onePort), "spec.clusterIPs[0]: Invalid value"},
		{spec(clusterIP, onePort, `selector: {"a b": c}`), "spec.selector: Invalid value"},
		{spec(clusterIP, onePort, `sessionAffinity: Sometimes`), "spec.sessionAffinity: Unsupported value"},
		{spec(clusterIP, onePort, `sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}`),
			"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value"},
		{spec(clusterIP, onePort, `sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}`),
			"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value"},
		{spec(onePort, `clusterIP: 10.96.1.1, clusterIPs: [10.96.1.2]`), "spec.clusterIPs: Invalid value"},
		{spec(onePort, `clusterIPs: [10.96.1.2]`), "spec.clusterIPs: Invalid value"},
		{spec(onePort, `clusterIP: nonsense`), "spec.clusterIPs[0]: Invalid value"},
		{spec(onePort, `clusterIP: 010.96.0.1`), "spec.clusterIPs[0]: Invalid value"},
		{spec(onePort, `clusterIP: None, clusterIPs: [None, None]`),
			"spec.clusterIPs: Invalid value\nspec.clusterIPs[1]: Invalid value"},
		{spec(onePort, `clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1, 10.96.1.2]`), "spec.clusterIPs: Invalid value"},
		{spec(onePort, `clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1, "fd00::1", "fd00::2"]`),
			"spec.clusterIPs: Invalid value"},
		{spec(onePort, `clusterIP: 10.96.1.1, ipFamilies: [IPv6]`), "spec.clusterIPs[0]: Invalid value"},
		{spec(onePort, `ipFamilies: [IPv5]`), "spec.ipFamilies[0]: Unsupported value"},
		{spec(onePort, `ipFamilies: [IPv4, IPv4]`), "spec.ipFamilies[1]: Duplicate value"},
		{spec(onePort, `ipFamilyPolicy: Any`), "spec.ipFamilyPolicy: Unsupported value"},
		{spec(clusterIP, onePort, `externalIPs: [1.2.3.4]`), ""},
		{spec(clusterIP, onePort, `externalIPs: [nonsense]`), "spec.externalIPs[0]: Invalid value"},
		{spec(clusterIP, onePort, `externalIPs: [127.0.0.1, 0.0.0.0, 169.254.1.1, 224.0.0.1]`),
			"spec.externalIPs[0]: Invalid value\nspec.externalIPs[1]: Invalid value\nspec.externalIPs[2]: Invalid value\n" +
				"spec.externalIPs[3]: Invalid value"},
		{spec(clusterIP, onePort, `loadBalancerSourceRanges: [10.0.0.0/8]`), "spec.LoadBalancerSourceRanges: Forbidden"},
		{balanced(`loadBalancerSourceRanges: [" 10.0.0.0/8 ", 10.0.0.1/8]`),
			"spec.LoadBalancerSourceRanges[1]: Invalid value"},
		{spec(clusterIP, onePort, `allocateLoadBalancerNodePorts: true`), "spec.allocateLoadBalancerNodePorts: Forbidden"},
		{spec(clusterIP, onePort, `loadBalancerClass: a/b`), "spec.loadBalancerClass: Forbidden"},
		{balanced(`loadBalancerClass: "a b"`), "spec.loadBalancerClass: Invalid value"},
		{spec(clusterIP, onePort, `externalTrafficPolicy: Local`), "spec.externalTrafficPolicy: Invalid value"},
		{balanced(`externalTrafficPolicy: Here`), "spec.externalTrafficPolicy: Unsupported value"},
		{balanced(`externalTrafficPolicy: Local`), "spec.healthCheckNodePort: Required value"},
		{balanced(`externalTrafficPolicy: Local, healthCheckNodePort: 70000`), "spec.healthCheckNodePort: Invalid value"},
		{balanced(`healthCheckNodePort: 30000`), "spec.healthCheckNodePort: Invalid value"},
		{spec(clusterIP, onePort, `internalTrafficPolicy: Near`), "spec.internalTrafficPolicy: Unsupported value"},
		{spec(clusterIP, onePort, `trafficDistribution: PreferFar`), "spec.trafficDistribution: Unsupported value"},
		{spec(clusterIP, onePort, `trafficDistribution: PreferSameNode`), ""},
		{spec(`type: ExternalName`), "spec.externalName: Required value"},
		{spec(`type: ExternalName, externalName: "a b"`), "spec.externalName: Invalid value"},
		{spec(`type: ExternalName, externalName: a, clusterIP: 10.96.1.1, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack`),
			"spec.clusterIPs: Forbidden\nspec.ipFamilies: Forbidden\nspec.ipFamilyPolicy: Forbidden"},
		{`{metadata: {annotations: {service.kubernetes.io/topology-mode: Auto, ` +
			`service.kubernetes.io/topology-aware-hints: Disabled}}, spec: {` + clusterIP + `, ` + onePort + `}}`,
			"metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value"},
		{`{metadata: {annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: "10.0.0.0/8, x"}}, spec: {` +
			clusterIP + `, ` + onePort + `}}`,
			"metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Forbidden\n" +
				"metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Invalid value"},
	} {
		r := kindtest.Of(t, service.Resources(), "Service")
		t.Run(c.obj, func(t *testing.T) {
			t.Parallel()
			kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, c.obj), nil, ""), c.want)
		})
	}
}

func TestServiceNames(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, service.Resources(), "Service")
	for name, good := range map[string]bool{"a-1": true, "1a": true, "1a-": false, "a.b": false, "A": false,
		strings.Repeat("a", 64): false} {
		if got := len(r.NameErrors(name, false)) == 0; got != good {
			t.Errorf("%s: good %v, want %v", name, got, good)
		}
	}
}

func TestServiceDefaults(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, service.Resources(), "Service")
	got := kindtest.Create(t, r,
		`{spec: {sessionAffinity: ClientIP, type: LoadBalancer, ports: [{port: 80}, {name: b, port: 53, protocol: UDP, `+
			`targetPort: dns}]}, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}}`).(*corev1.Service)
	if len(got.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("a client created a status: %v", got.Status)
	}
	p := got.Spec.Ports
	if p[0].Protocol != "TCP" || p[0].TargetPort.IntValue() != 80 || p[1].TargetPort.StrVal != "dns" ||
		*got.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds != 10800 || got.Spec.ExternalTrafficPolicy != "Cluster" ||
		*got.Spec.InternalTrafficPolicy != "Cluster" || !*got.Spec.AllocateLoadBalancerNodePorts {
		t.Errorf("got %+v", got.Spec)
	}
	plain := kindtest.Create(t, r, `{spec: {ports: [{port: 80}]}}`).(*corev1.Service)
	if plain.Spec.Type != "ClusterIP" || plain.Spec.SessionAffinity != "None" || plain.Spec.ExternalTrafficPolicy != "" ||
		plain.Spec.AllocateLoadBalancerNodePorts != nil {
		t.Errorf("got %+v", plain.Spec)
	}
}

func TestServiceUpdate(t *testing.T) {
	t.Parallel()
	dual := `clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1, "fd00::1"], ipFamilies: [IPv4, IPv6]`
	four := `ipFamilies: [IPv4]` // as allocated, from the address
	for name, c := range map[string]struct{ old, next, want string }{
		"address omitted": {spec(clusterIP, onePort), spec(onePort, four), ""},
		"another address": {spec(clusterIP, onePort), spec(onePort, four, `clusterIP: 10.96.1.2`),
			"spec.clusterIPs[0]: Invalid value"},
		"headless": {spec(clusterIP, onePort), spec(onePort, `clusterIP: None`), "spec.clusterIPs[0]: Invalid value"},
		"no longer headless": {spec(onePort, `clusterIP: None`), spec(onePort, `clusterIP: 10.96.1.2`),
			"spec.clusterIPs[0]: Invalid value"},
		"another family": {spec(clusterIP, onePort), spec(onePort, `clusterIP: 10.96.1.1, ipFamilies: [IPv6]`),
			"spec.ipFamilies[0]: Invalid value\nspec.clusterIPs[0]: Invalid value"},
		"second family released": {spec(dual, onePort),
			spec(onePort, `clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack`), ""},
		"second family removed": {spec(dual, onePort),
			spec(onePort, `clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1], ipFamilies: [IPv4], ipFamilyPolicy: PreferDualStack`),
			"spec.ipFamilyPolicy: Invalid value\nspec.ipFamilyPolicy: Invalid value"},
		"to ExternalName": {spec(clusterIP, onePort), spec(`type: ExternalName, externalName: a`), ""},
		"to ExternalName with the address": {spec(clusterIP, onePort),
			spec(`type: ExternalName, externalName: a, clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1], ipFamilies: [IPv4], ` +
				`ipFamilyPolicy: SingleStack`), ""},
		"to ExternalName with another address": {spec(clusterIP, onePort),
			spec(`type: ExternalName, externalName: a, clusterIP: 10.96.1.2`), "spec.clusterIPs: Forbidden"},
		"class of a balancer": {balanced(`loadBalancerClass: a/b`), balanced(`loadBalancerClass: a/c`),
			"spec.loadBalancerClass: Invalid value"},
		"health port": {balanced(`externalTrafficPolicy: Local, healthCheckNodePort: 30001`),
			balanced(`externalTrafficPolicy: Local, healthCheckNodePort: 30002`), "spec.healthCheckNodePort: Forbidden"},
		"health port omitted": {balanced(`externalTrafficPolicy: Local, healthCheckNodePort: 30001`),
			balanced(`externalTrafficPolicy: Local`), ""},
		"no longer a load balancer": {balanced(
			`externalTrafficPolicy: Local, healthCheckNodePort: 30001, loadBalancerClass: a/b, ` +
				`allocateLoadBalancerNodePorts: false`),
			spec(clusterIP, onePort, `externalTrafficPolicy: Local, healthCheckNodePort: 30001, loadBalancerClass: a/b, `+
				`allocateLoadBalancerNodePorts: false`), ""},
		"ports of a NodePort": {spec(clusterIP, `type: NodePort, ports: [{port: 80, nodePort: 30001}]`),
			spec(clusterIP, `ports: [{port: 80, nodePort: 30001}]`), ""},
		"a port that is allocated already": {spec(clusterIP, `type: NodePort, ports: [{port: 80, nodePort: 30001}]`),
			spec(clusterIP, `ports: [{port: 80, nodePort: 30002}]`), "spec.ports[0].nodePort: Forbidden"},
	} {
		r := kindtest.Of(t, service.Resources(), "Service")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := kindtest.Create(t, r, lastWins(c.old))
			next := kindtest.Update(t, r, old, lastWins(c.next), "")
			kindtest.WantErrors(t, kindtest.Validate(r, next, old, ""), c.want)
		})
	}
}

// lastWins removes the type in clusterIP if another type follows.
func lastWins(text string) string {
	if strings.Count(text, "type:") > 1 {
		return strings.Replace(text, "type: ClusterIP, ", "", 1)
	}
	return text
}

func TestServiceKeepsNodePorts(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, service.Resources(), "Service")
	old := kindtest.Create(t, r, spec(`type: NodePort, ports: [{name: a, port: 80, nodePort: 30001}, {name: b, `+
		`port: 81, nodePort: 30002}]`))
	next := kindtest.Update(t, r, old, spec(`type: NodePort, ports: [{name: b, port: 8081}, {name: c, port: 82, `+
		`nodePort: 30001}, {name: a, port: 80}]`), "").(*corev1.Service)
	var got []int32
	for _, p := range next.Spec.Ports {
		got = append(got, p.NodePort)
	}
	if diff := cmp.Diff([]int32{30002, 30001, 0}, got); diff != "" {
		t.Error(diff)
	}
}

func TestServiceStatus(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, service.Resources(), "Service")
	old := kindtest.Create(t, r, balanced())
	for text, want := range map[string]string{
		`{ip: 1.2.3.4}`:                "",
		`{ip: 1.2.3.4, ipMode: Proxy}`: "",
		`{ip: 1.2.3, ipMode: VIP}`:     "status.loadBalancer.ingress[0].ip: Invalid value",
		`{ip: 1.2.3.4, ipMode: Magic}`: "status.loadBalancer.ingress[0].ipMode: Unsupported value",
		`{hostname: a.b, ipMode: VIP}`: "status.loadBalancer.ingress[0].ipMode: Forbidden",
		`{hostname: 1.2.3.4}`:          "status.loadBalancer.ingress[0].hostname: Invalid value",
		`{hostname: "a_b"}`:            "status.loadBalancer.ingress[0].hostname: Invalid value",
	} {
		next := kindtest.Update(t, r, old, `{spec: {type: ExternalName}, status: {loadBalancer: {ingress: [`+text+`]}}}`,
			"status").(*corev1.Service)
		if next.Spec.Type != corev1.ServiceTypeLoadBalancer {
			t.Fatalf("a write of the status changed the spec: %+v", next.Spec)
		}
		kindtest.WantErrors(t, kindtest.Validate(r, next, old, "status"), want)
	}
	inside := kindtest.Create(t, r, spec(clusterIP, onePort))
	next := kindtest.Update(t, r, inside, `{status: {loadBalancer: {ingress: [{ip: 1.2.3.4, ipMode: VIP}]}}}`, "status")
	kindtest.WantErrors(t, kindtest.Validate(r, next, inside, "status"), "status.loadBalancer.ingress: Forbidden")
}

func TestServiceWarnings(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, service.Resources(), "Service")
	for text, want := range map[string]string{
		spec(clusterIP, onePort): "",
		spec(`clusterIP: None, externalIPs: [1.2.3.4], loadBalancerIP: 1.2.3.4, sessionAffinity: ClientIP`): "spec.loadBalancerIP is ignored for headless services\n" +
			"spec.externalIPs is ignored for headless services\nspec.SessionAffinity is ignored for headless services",
		spec(`type: ExternalName, externalName: a, externalIPs: [1.2.3.4]`): `spec.externalIPs is ignored when spec.type ` +
			`is "ExternalName"`,
		spec(clusterIP, onePort, `externalName: a`): `spec.externalName is ignored when spec.type is not "ExternalName"`,
		spec(clusterIP, onePort, `trafficDistribution: PreferClose`): `spec.trafficDistribution: "PreferClose" is ` +
			`deprecated; use "PreferSameZone"`,
		spec(clusterIP, onePort, `loadBalancerIP: nonsense`): "",
		spec(clusterIP, onePort, `externalIPs: ["FD00::0:1"]`): `spec.externalIPs[0]: IPv6 address ` +
			`"FD00::0:1" should be in RFC 5952 canonical format ("fd00::1")`,
	} {
		if diff := cmp.Diff(want, strings.Join(r.Warnings(kindtest.Create(t, r, text), nil), "\n")); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}
