package network_test

import (
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/registry/kind/kindtest"
	"monopod/apiserver/registry/network"
)

func rule(path string) string { return `{spec: {rules: [{http: {paths: [` + path + `]}}]}}` }

func TestCreation(t *testing.T) {
	t.Parallel()
	const backend = `backend: {service: {name: a, port: {number: 80}}}`
	const paths = "spec.rules[0].http.paths[0]."
	for _, c := range []struct{ kind, obj, want string }{

		{"Ingress", rule(`{pathType: Prefix, path: /, ` + backend + `}`), ""},
		{"Ingress", `{spec: {}}`, "spec: Invalid value"},
		{"Ingress", `{spec: {defaultBackend: {}}}`, "spec.defaultBackend: Invalid value"},
		{"Ingress", `{spec: {defaultBackend: {service: {port: {number: 70000}}}}}`,
			"spec.defaultBackend.service.name: Required value\nspec.defaultBackend.service.port.number: Invalid value"},
		{"Ingress", `{spec: {defaultBackend: {service: {name: 1a., port: {name: "a b"}}}}}`,
			"spec.defaultBackend.service.name: Invalid value\nspec.defaultBackend.service.port.name: Invalid value"},
		{"Ingress", `{spec: {defaultBackend: {service: {name: a}}}}`, "spec.defaultBackend: Required value"},
		{"Ingress", `{spec: {defaultBackend: {service: {name: a, port: {name: b, number: 1}}}}}`,
			"spec.defaultBackend: Invalid value"},
		{"Ingress", `{spec: {defaultBackend: {service: {name: a, port: {number: 1}}, resource: {kind: a, name: b}}}}`,
			"spec.defaultBackend: Invalid value"},
		{"Ingress", `{spec: {defaultBackend: {resource: {apiGroup: "a b"}}}}`,
			"spec.defaultBackend.resource.apiGroup: Invalid value\nspec.defaultBackend.resource.kind: Required value\n" +
				"spec.defaultBackend.resource.name: Required value"},
		{"Ingress", `{spec: {defaultBackend: {resource: {kind: a/b, name: ..}}}}`,
			"spec.defaultBackend.resource.kind: Invalid value\nspec.defaultBackend.resource.name: Invalid value"},
		{"Ingress", rule(`{` + backend + `}`), paths + "pathType: Required value"},
		{"Ingress", rule(`{pathType: Regex, ` + backend + `}`), paths + "pathType: Unsupported value"},
		{"Ingress", rule(`{pathType: Exact, path: a, ` + backend + `}`), paths + "path: Invalid value"},
		{"Ingress", rule(`{pathType: Prefix, ` + backend + `}`), paths + "path: Invalid value"},
		{"Ingress", rule(`{pathType: Prefix, path: "/a//b/../c%2Fd/..", ` + backend + `}`),
			strings.Repeat(paths+"path: Invalid value\n", 3) + paths + "path: Invalid value"},
		{"Ingress", rule(`{pathType: ImplementationSpecific, ` + backend + `}`), ""},
		{"Ingress", rule(`{pathType: ImplementationSpecific, path: a, ` + backend + `}`), paths + "path: Invalid value"},
		{"Ingress", `{spec: {rules: [{http: {}}]}}`, "spec.rules[0].http.paths: Required value"},
		{"Ingress", `{spec: {rules: [{host: 1.2.3.4}, {host: "*.a.b"}, {host: "a.*.b"}, {host: "a_b"}]}}`,
			"spec.rules[0].host: Invalid value\nspec.rules[2].host: Invalid value\nspec.rules[3].host: Invalid value"},
		{"Ingress", `{spec: {rules: [{host: a}], tls: [{hosts: ["a_b", "*.c"], secretName: A}], ingressClassName: A}}`,
			"spec.tls[0].hosts[0]: Invalid value\nspec.tls[0].secretName: Invalid value\nspec.ingressClassName: Invalid value"},
		{"Ingress", `{metadata: {annotations: {kubernetes.io/ingress.class: b}}, spec: {rules: [{host: a}], ` +
			`ingressClassName: a}}`, "annotations.kubernetes.io/ingress.class: Invalid value"},

		{"IngressClass", `{spec: {controller: example.com/c, parameters: {kind: a, name: b}}}`, ""},
		{"IngressClass", `{}`, "spec.controller: Required value"},
		{"IngressClass", `{spec: {controller: c}}`, "spec.controller: Invalid value"},
		{"IngressClass", `{spec: {controller: "a.b/` + strings.Repeat("x", 250) + `"}}`, "spec.controller: Too long"},
		{"IngressClass", `{spec: {controller: a.b/c, parameters: {scope: World}}}`,
			"spec.parameters.kind: Required value\nspec.parameters.name: Required value\n" +
				"spec.parameters.scope: Unsupported value"},
		{"IngressClass", `{spec: {controller: a.b/c, parameters: {kind: a, name: b, namespace: c}}}`,
			"spec.parameters.namespace: Forbidden"},
		{"IngressClass", `{spec: {controller: a.b/c, parameters: {kind: a, name: b, scope: Namespace}}}`,
			"spec.parameters.namespace: Required value"},
		{"IngressClass", `{spec: {controller: a.b/c, parameters: {kind: a, name: b, scope: Namespace, namespace: A}}}`,
			"spec.parameters.namespace: Invalid value"},

		{"ServiceCIDR", `{spec: {cidrs: [10.0.0.0/16, "fd00::/112"]}}`, ""},
		{"ServiceCIDR", `{}`, "spec.cidrs: Required value"},
		{"ServiceCIDR", `{spec: {cidrs: [10.0.0.0/16, 10.1.0.0/16]}}`, "spec.cidrs: Invalid value"},
		{"ServiceCIDR", `{spec: {cidrs: [10.0.0.1/16]}}`, "spec.cidrs[0]: Invalid value"},
		{"ServiceCIDR", `{spec: {cidrs: [10.0.0.0/16, "fd00::/112", 10.1.0.0/16]}}`, "spec.cidrs: Invalid value"},
		{"IPAddress", `{metadata: {name: 10.0.0.1}, spec: {parentRef: {resource: services, namespace: a, name: b}}}`, ""},
		{"IPAddress", `{metadata: {name: 10.0.0.1}}`, "spec.parentRef: Required value"},
		{"IPAddress", `{metadata: {name: 10.0.0.1}, spec: {parentRef: {group: "a b", namespace: a/b}}}`,
			"spec.parentRef.group: Invalid value\nspec.parentRef.resource: Required value\n" +
				"spec.parentRef.name: Required value\nspec.parentRef.namespace: Invalid value"},

		{"NetworkPolicy", `{}`, ""},
		{"NetworkPolicy",
			`{spec: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: 80, endPort: 90}]}]}}`,
			""},
		{"NetworkPolicy", `{spec: {podSelector: {matchLabels: {"a b": c}}}}`, "spec.podSelector.matchLabels: Invalid value"},
		{"NetworkPolicy", `{spec: {podSelector: {matchExpressions: [{key: a, operator: Like}]}}}`,
			"spec.podSelector.matchExpressions[0].operator: Invalid value"},
		{"NetworkPolicy", `{spec: {policyTypes: [Ingress, Sideways]}}`, "spec.policyTypes[1]: Unsupported value"},
		{"NetworkPolicy", `{spec: {policyTypes: [Ingress, Egress, Ingress]}}`, "spec.policyTypes: Invalid value"},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{}]}]}}`, "spec.ingress[0].from[0]: Required value"},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{podSelector: {}, namespaceSelector: {}}]}]}}`, ""},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}}`,
			"spec.ingress[0].from[0]: Forbidden"},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{ipBlock: {}}]}]}}`,
			"spec.ingress[0].from[0].ipBlock.cidr: Required value"},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{ipBlock: {cidr: 10.0.0.1}}]}]}}`,
			"spec.ingress[0].from[0].ipBlock.cidr: Invalid value"},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{ipBlock: {cidr: 10.0.0.1/8}}]}]}}`,
			"spec.ingress[0].from[0].ipBlock.cidr: Invalid value"},
		{"NetworkPolicy", `{spec: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16, 10.0.0.0/8, x]}}]}]}}`,
			"spec.egress[0].to[0].ipBlock.except[0]: Invalid value\nspec.egress[0].to[0].ipBlock.except[1]: Invalid value\n" +
				"spec.egress[0].to[0].ipBlock.except[2]: Invalid value"},
		{"NetworkPolicy", `{spec: {ingress: [{ports: [{protocol: ICMP}]}]}}`,
			"spec.ingress[0].ports[0].protocol: Unsupported value"},
		{"NetworkPolicy", `{spec: {ingress: [{ports: [{port: 0}, {port: "a b"}]}]}}`,
			"spec.ingress[0].ports[0].port: Invalid value\nspec.ingress[0].ports[1].port: Invalid value"},
		{"NetworkPolicy",
			`{spec: {ingress: [{ports: [{endPort: 80}, {port: http, endPort: 80}, {port: 80, endPort: 79}, {port: 80, ` +
				`endPort: 70000}]}]}}`,
			"spec.ingress[0].ports[0].endPort: Invalid value\nspec.ingress[0].ports[1].endPort: Invalid value\n" +
				"spec.ingress[0].ports[2].endPort: Invalid value\nspec.ingress[0].ports[3].endPort: Invalid value"},
	} {
		r := kindtest.Of(t, network.Resources(), c.kind)
		t.Run(c.kind+" "+c.obj[:min(len(c.obj), 120)], func(t *testing.T) {
			t.Parallel()
			kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, c.obj), nil, ""), c.want)
		})
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, old, next, want string
		generation            int64
	}{
		{"Ingress", `{spec: {rules: [{host: a}]}}`, `{spec: {rules: [{host: b}]}}`, "", 2},
		{"Ingress", `{spec: {rules: [{host: a}]}}`, `{metadata: {labels: {a: b}}, spec: {rules: [{host: a}]}}`, "", 1},
		{"IngressClass", `{spec: {controller: a.b/c}}`, `{spec: {controller: a.b/d}}`, "spec.controller: Invalid value", 2},
		{"IngressClass", `{spec: {controller: a.b/c, parameters: {kind: a, name: b}}}`,
			`{spec: {controller: a.b/c, parameters: {kind: a, name: b}}}`, "", 1},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{ipBlock: {cidr: 10.0.0.1/8}}]}]}}`,
			`{spec: {egress: [{to: [{ipBlock: {cidr: 10.0.0.1/8}}]}]}}`, "", 2},
		{"NetworkPolicy", `{spec: {}}`, `{}`, "", 1},
	} {
		r := kindtest.Of(t, network.Resources(), c.kind)
		old := kindtest.Create(t, r, c.old)
		next := kindtest.Update(t, r, old, c.next, "")
		kindtest.WantErrors(t, kindtest.Validate(r, next, old, ""), c.want)
		if next.GetGeneration() != c.generation {
			t.Errorf("%s: %s -> %s: generation %d, want %d", c.kind, c.old, c.next, next.GetGeneration(), c.generation)
		}
	}
}

func TestIngressStatus(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, network.Resources(), "Ingress")
	old := kindtest.Create(t, r, `{spec: {rules: [{host: a}]}, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}}`).(*networkingv1.Ingress)
	if len(old.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("a client created a status: %v", old.Status)
	}
	next := kindtest.Update(t, r, old, `{status: {loadBalancer: {ingress: [{ip: x}, {hostname: 1.2.3.4}, `+
		`{hostname: "a_b"}, {hostname: a.b}]}}}`, "status").(*networkingv1.Ingress)
	const path = "status.loadBalancer.ingress"
	kindtest.WantErrors(t, kindtest.Validate(r, next, old, "status"),
		path+"[0].ip: Invalid value", path+"[1].hostname: Invalid value", path+"[2].hostname: Invalid value")
	if len(next.Spec.Rules) != 1 || next.Generation != 1 {
		t.Errorf("a write of the status changed the spec: %+v", next)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	kindtest.CheckDefaults(t, network.Resources(), []kindtest.Case{
		{"NetworkPolicy", `{}`, "spec:\n  podSelector: {}\n  policyTypes:\n  - Ingress\n"},
		{"NetworkPolicy", `{spec: {egress: [{ports: [{port: 53}]}]}}`,
			"spec:\n  egress:\n  - ports:\n    - port: 53\n      protocol: TCP\n  podSelector: {}\n  policyTypes:\n  - Ingress\n  - Egress\n"},
	})
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	kindtest.CheckWarnings(t, network.Resources(), []kindtest.Case{
		{"Ingress", `{metadata: {annotations: {kubernetes.io/ingress.class: a}}}`,
			`annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead`},
		{"NetworkPolicy", `{spec: {egress: [{to: [{ipBlock: {cidr: "FD00::/8"}}]}]}}`,
			`spec.egress[0].to[0].ipBlock.cidr: IPv6 CIDR value "FD00::/8" should be in RFC 5952 canonical format ("fd00::/8")`},
	})
}

func TestColumns(t *testing.T) {
	t.Parallel()
	hour := metav1.NewTime(kindtest.Now().Add(-time.Hour)).Format(time.RFC3339)
	meta := "metadata: {name: x, creationTimestamp: '" + hour + "'}\n"
	headings := map[string]string{
		"Ingress":       "Name|Class|Hosts|Address|Ports|Age / ",
		"IngressClass":  "Name|Controller|Parameters|Age / ",
		"NetworkPolicy": "Name|Pod-Selector|Age / ",
		"ServiceCIDR":   "Name|CIDRs|Age / ",
		"IPAddress":     "Name|ParentRef|Age / ",
	}
	kindtest.CheckColumns(t, network.Resources(), headings, []kindtest.Case{
		{"Ingress", meta, "x|<none>|*||80|60m"},
		{"Ingress", meta + "spec: {ingressClassName: c, tls: [{}], rules: [{host: a}, {host: b}, {}, {host: c}, " +
			"{host: d}]}\nstatus: {loadBalancer: {ingress: [{ip: 1.1.1.1}, {hostname: h}]}}",
			"x|c|a,b,c + 2 more...|1.1.1.1,h|80, 443|60m"},
		{"IngressClass", meta + "spec: {controller: a.b/c}", "x|a.b/c|<none>|60m"},
		{"IngressClass", meta + "spec: {controller: a.b/c, parameters: {apiGroup: g, kind: K, name: o}}",
			"x|a.b/c|K.g/o|60m"},
		{"IngressClass", meta + "spec: {controller: a.b/c, parameters: {kind: K, name: o}}", "x|a.b/c|K/o|60m"},
		{"NetworkPolicy", meta + "spec: {podSelector: {matchLabels: {a: b}}}", "x|a=b|60m"},
		{"NetworkPolicy", meta, "x|<none>|60m"},
		{"ServiceCIDR", meta + "spec: {cidrs: [10.0.0.0/16, 'fd00::/112']}", "x|10.0.0.0/16,fd00::/112|60m"},
		{"IPAddress", meta + "spec: {parentRef: {resource: services, namespace: a, name: b}}", "x|services/a/b|60m"},
	})
}
