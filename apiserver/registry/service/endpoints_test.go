package service_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/registry/kind/kindtest"
	"monopod/apiserver/registry/service"
)

// many returns a list of n items; format gets the index.
func many(n int, format string) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func TestEndpointsCreation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, obj, want string }{
		{"Endpoints", `{}`, ""},
		{"Endpoints", `{subsets: [{addresses: [{ip: 1.2.3.4, hostname: a, nodeName: n1}], ports: [{port: 80}]}]}`, ""},
		{"Endpoints", `{subsets: [{}]}`, "subsets[0]: Required value"},
		{"Endpoints", `{subsets: [{addresses: [{}]}]}`,
			"subsets[0].addresses[0].ip: Invalid value\nsubsets[0].addresses[0].ip: Invalid value"},
		{"Endpoints", `{subsets: [{notReadyAddresses: [{ip: "fe80::1"}]}]}`,
			"subsets[0].notReadyAddresses[0].ip: Invalid value"},
		{"Endpoints", `{subsets: [{addresses: [{ip: 1.2.3.4, hostname: A, nodeName: B}]}]}`,
			"subsets[0].addresses[0].hostname: Invalid value\nsubsets[0].addresses[0].nodeName: Invalid value"},
		{"Endpoints",
			`{subsets: [{addresses: [{ip: 1.2.3.4}], ports: [{port: 80}, {name: A, port: 0, protocol: X, appProtocol: "a b"}]}]}`,
			"subsets[0].ports[0].name: Required value\nsubsets[0].ports[1].name: Invalid value\n" +
				"subsets[0].ports[1].port: Invalid value\nsubsets[0].ports[1].protocol: Unsupported value\n" +
				"subsets[0].ports[1].appProtocol: Invalid value"},

		{"EndpointSlice", `{addressType: IPv4, endpoints: [{addresses: [1.2.3.4]}], ports: [{port: 80}]}`, ""},
		{"EndpointSlice", `{addressType: FQDN, endpoints: [{addresses: [a.example.com]}]}`, ""},
		{"EndpointSlice", `{}`, "addressType: Required value"},
		{"EndpointSlice", `{addressType: IP}`, "addressType: Unsupported value"},
		{"EndpointSlice", `{addressType: IPv4, endpoints: [{addresses: []}]}`, "endpoints[0].addresses: Required value"},
		{"EndpointSlice", `{addressType: IPv4, endpoints: [{addresses: ["fd00::1"]}]}`,
			"endpoints[0].addresses[0]: Invalid value"},
		{"EndpointSlice", `{addressType: IPv6, endpoints: [{addresses: ["::1"]}]}`,
			"endpoints[0].addresses[0]: Invalid value"},
		{"EndpointSlice", `{addressType: FQDN, endpoints: [{addresses: ["a_b.c"]}]}`,
			"endpoints[0].addresses[0]: Invalid value"},
		{"EndpointSlice", `{addressType: IPv4, endpoints: [{addresses: [1.2.3.4], hostname: A, nodeName: B}]}`,
			"endpoints[0].nodeName: Invalid value\nendpoints[0].hostname: Invalid value"},
		{"EndpointSlice", `{addressType: IPv4, endpoints: ` + many(1001, `{addresses: [1.2.3.4], zone: z%d}`) + `}`,
			"endpoints: Too many"},
		{"EndpointSlice", `{addressType: IPv4, endpoints: [{addresses: ` + many(101, `1.2.3.%d`) + `}]}`,
			"endpoints[0].addresses: Too many"},
		{"EndpointSlice", `{addressType: IPv4, ports: [{port: 1}, {port: 2}]}`, "ports[1].name: Duplicate value"},
		{"EndpointSlice", `{addressType: IPv4, ports: [{name: A, protocol: X, appProtocol: ""}]}`,
			"ports[0].name: Invalid value\nports[0].protocol: Unsupported value\nports[0].appProtocol: Invalid value\n" +
				"ports[0].appProtocol: Invalid value"},
		{"EndpointSlice",
			`{addressType: IPv4, endpoints: [{addresses: [1.2.3.4], hints: {forZones: [{name: a}, {name: a}, {name: "b c"}]}}]}`,
			"endpoints[0].hints.forZones[1].name: Duplicate value\nendpoints[0].hints.forZones[2].name: Invalid value"},
		{"EndpointSlice", `{addressType: IPv4, endpoints: [{addresses: [1.2.3.4], hints: {forNodes: ` +
			many(9, `{name: n%d}`) + `}}]}`, "endpoints[0].hints.forNodes: Too many"},
	} {
		r := kindtest.Of(t, service.Resources(), c.kind)
		t.Run(c.kind+" "+c.obj[:min(len(c.obj), 120)], func(t *testing.T) {
			t.Parallel()
			kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, c.obj), nil, ""), c.want)
		})
	}
}

func TestEndpointsUpdate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, old, next, want string
		generation            int64
	}{
		{"EndpointSlice", `{addressType: IPv4}`, `{addressType: IPv6}`, "addressType: Invalid value", 2},
		{"EndpointSlice", `{addressType: IPv4}`, `{metadata: {annotations: {a: b}}, addressType: IPv4}`, "", 1},
		{"EndpointSlice", `{addressType: IPv4}`, `{metadata: {labels: {a: b}}, addressType: IPv4}`, "", 2},
		{"EndpointSlice", `{addressType: IPv4, ports: [{port: 1}]}`, `{addressType: IPv4, ports: [{port: 1}]}`, "", 1},
		{"Endpoints", `{subsets: [{addresses: [{ip: 010.0.0.1}]}]}`, `{subsets: [{notReadyAddresses: [{ip: 010.0.0.1}]}]}`,
			"", 0},
	} {
		r := kindtest.Of(t, service.Resources(), c.kind)
		old := kindtest.Create(t, r, c.old)
		next := kindtest.Update(t, r, old, c.next, "")
		kindtest.WantErrors(t, kindtest.Validate(r, next, old, ""), c.want)
		if next.GetGeneration() != c.generation {
			t.Errorf("%s: %s -> %s: generation %d, want %d", c.kind, c.old, c.next, next.GetGeneration(), c.generation)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	kindtest.CheckDefaults(t, service.Resources(), []kindtest.Case{
		{"EndpointSlice",
			`{addressType: IPv4, endpoints: [{addresses: [1.2.3.4], deprecatedTopology: {a: b}}], ports: [{port: 1}]}`,
			"addressType: IPv4\nendpoints:\n- addresses:\n  - 1.2.3.4\n  conditions: {}\nports:\n- name: \"\"\n  port: 1\n" +
				"  protocol: TCP\n"},
		{"Endpoints", `{subsets: [{ports: [{port: 1}]}]}`, "subsets:\n- ports:\n  - port: 1\n    protocol: TCP\n"},
	})
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	kindtest.CheckWarnings(t, service.Resources(), []kindtest.Case{
		{"EndpointSlice", `{addressType: FQDN}`, "spec.addressType: FQDN endpoints are deprecated"},
		{"EndpointSlice", `{addressType: IPv6, endpoints: [{addresses: ["FD00::1"]}]}`,
			`endpoints[0].addresses[0]: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")`},
		{"Endpoints", `{subsets: [{notReadyAddresses: [{ip: "FD00::1"}]}]}`,
			`subsets[0].notReadyAddresses[0].ip: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")`},
	})
}

func TestColumns(t *testing.T) {
	t.Parallel()
	hour := metav1.NewTime(kindtest.Now().Add(-time.Hour)).Format(time.RFC3339)
	meta := "metadata: {name: x, creationTimestamp: '" + hour + "'}\n"
	headings := map[string]string{
		"Service":       "Name|Type|Cluster-IP|External-IP|Port(s)|Age / Selector",
		"Endpoints":     "Name|Endpoints|Age / ",
		"EndpointSlice": "Name|AddressType|Ports|Endpoints|Age / ",
	}
	kindtest.CheckColumns(t, service.Resources(), headings, []kindtest.Case{
		{"Service", meta +
			"spec: {type: ClusterIP, clusterIPs: [10.96.1.1], ports: [{port: 80, protocol: TCP}, {port: 53, nodePort: 30053, " +
			"protocol: UDP}], selector: {a: b}}", "x|ClusterIP|10.96.1.1|<none>|80/TCP,53:30053/UDP|60m|a=b"},
		{"Service", meta + "spec: {type: NodePort, clusterIPs: [None], externalIPs: [1.1.1.1, 2.2.2.2]}",
			"x|NodePort|None|1.1.1.1,2.2.2.2|<none>|60m|<none>"},
		{"Service", meta + "spec: {type: LoadBalancer}", "x|LoadBalancer|<none>|<pending>|<none>|60m|<none>"},
		{"Service", meta +
			"spec: {type: LoadBalancer, externalIPs: [3.3.3.3]}\n" +
			"status: {loadBalancer: {ingress: [{ip: 1.1.1.1}, {hostname: a.example.com}]}}",
			"x|LoadBalancer|<none>|1.1.1.1,a.example.com,3.3.3.3|<none>|60m|<none>"},
		{"Service", meta + "spec: {type: ExternalName, externalName: a.b}", "x|ExternalName|<none>|a.b|<none>|60m|<none>"},
		{"Endpoints", meta, "x|<none>|60m"},
		{"Endpoints", meta + "subsets: [{addresses: [{ip: 1.1.1.1}, {ip: 'fd00::1'}], ports: [{port: 80}, {port: 81}]}]",
			"x|1.1.1.1:80,[fd00::1]:80,1.1.1.1:81 + 1 more...|60m"},
		{"Endpoints", meta + "subsets: [{addresses: [{ip: 1.1.1.1}], notReadyAddresses: [{ip: 2.2.2.2}]}]", "x|1.1.1.1|60m"},
		{"EndpointSlice", meta + "addressType: IPv4", "x|IPv4|<unset>|<unset>|60m"},
		{"EndpointSlice", meta +
			"addressType: IPv4\nports: [{port: 80}, {name: a}, {}, {port: 81}]\n" +
			"endpoints: [{addresses: [1.1.1.1, 1.1.1.2]}, {addresses: [1.1.1.3, 1.1.1.4, 1.1.1.5]}]",
			"x|IPv4|80,a,* + 1 more...|1.1.1.1,1.1.1.2,1.1.1.3 + 2 more...|60m"},
	})
}

func TestServiceFields(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, service.Resources(), "Service")
	got := r.FieldsOf(kindtest.Create(t, r, spec(clusterIP, onePort)))
	if got["spec.clusterIP"] != "10.96.1.1" || got["spec.type"] != "ClusterIP" || got["metadata.name"] != "x" {
		t.Errorf("got %v", got)
	}
}

func TestEndpointSlicePortsAtMost(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, service.Resources(), "EndpointSlice")
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	for i := range 20001 {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprintf("p%d", i))})
	}
	r.Default(slice)
	kindtest.WantErrors(t, r.Validate(slice, nil, ""), "ports: Too many")
	slice.Ports = slice.Ports[:20000]
	kindtest.WantErrors(t, r.Validate(slice, nil, ""))
}
