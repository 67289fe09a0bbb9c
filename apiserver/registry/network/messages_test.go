package network_test

import (
	"testing"

	"monopod/apiserver/registry/kind/kindtest"
	"monopod/apiserver/registry/network"
)

// TestMessages compares complete errors with upstream's.
func TestMessages(t *testing.T) {
	t.Parallel()
	const backend = `backend: {service: {name: a, port: {number: 80}}}`
	for _, c := range []struct{ kind, obj, want string }{
		{"NetworkPolicy", `{spec: {ingress: [{ports: [{protocol: ICMP}]}]}}`,
			`spec.ingress[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"`},
		{"NetworkPolicy", `{spec: {ingress: [{ports: [{port: 0}]}]}}`,
			`spec.ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`},
		{"NetworkPolicy", `{spec: {ingress: [{ports: [{port: "a b"}]}]}}`,
			`spec.ingress[0].ports[0].port: Invalid value: "a b": must contain only alpha-numeric characters (a-z, 0-9), ` +
				`and hyphens (-)`},
		{"NetworkPolicy", `{spec: {ingress: [{ports: [{endPort: 80}]}]}}`,
			"spec.ingress[0].ports[0].endPort: Invalid value: 80: may not be specified when `port` is not specified"},
		{"NetworkPolicy", `{spec: {ingress: [{ports: [{port: http, endPort: 80}]}]}}`,
			"spec.ingress[0].ports[0].endPort: Invalid value: 80: may not be specified when `port` is non-numeric"},
		{"NetworkPolicy", `{spec: {egress: [{ports: [{port: 80, endPort: 79}]}]}}`,
			"spec.egress[0].ports[0].endPort: Invalid value: 79: must be greater than or equal to `port`"},
		{"NetworkPolicy", `{spec: {egress: [{ports: [{port: 80, endPort: 70000}]}]}}`,
			`spec.egress[0].ports[0].endPort: Invalid value: 70000: must be between 1 and 65535, inclusive`},
		{"NetworkPolicy", `{spec: {egress: [{to: [{}]}]}}`, `spec.egress[0].to[0]: Required value: must specify a peer`},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}}`,
			`spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer`},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{ipBlock: {}}]}]}}`,
			`spec.ingress[0].from[0].ipBlock.cidr: Required value`},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{ipBlock: {cidr: 10.0.0.1}}]}]}}`,
			`spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1": must be a valid CIDR value, ` +
				`(e.g. 10.9.8.0/24 or 2001:db8::/64)`},
		{"NetworkPolicy", `{spec: {ingress: [{from: [{ipBlock: {cidr: 10.0.0.1/8}}]}]}}`,
			`spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length`},
		{"NetworkPolicy", `{spec: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}]}}`,
			"spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`"},
		{"NetworkPolicy", `{spec: {policyTypes: [Sideways]}}`,
			`spec.policyTypes[0]: Unsupported value: "Sideways": supported values: "Ingress", "Egress"`},
		{"NetworkPolicy", `{spec: {policyTypes: [Ingress, Egress, Ingress]}}`,
			`spec.policyTypes: Invalid value: ["Ingress","Egress","Ingress"]: may not specify more than two policyTypes`},
		{"NetworkPolicy", `{spec: {podSelector: {matchExpressions: [{key: a, operator: Like}]}}}`,
			`spec.podSelector.matchExpressions[0].operator: Invalid value: "Like": not a valid selector operator`},
		{"NetworkPolicy", `{spec: {podSelector: {matchExpressions: [{key: a, operator: In}]}}}`,
			"spec.podSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"},
		{"NetworkPolicy", `{spec: {podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}}`,
			"spec.podSelector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or " +
				"'DoesNotExist'"},
		{"NetworkPolicy", `{spec: {podSelector: {matchLabels: {a: "b c"}}}}`,
			`spec.podSelector.matchLabels: Invalid value: "b c": a valid label must be an empty string or consist of ` +
				`alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. ` +
				`'MyValue',  or 'my_value',  or '12345', ` +
				`regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		{"Ingress", `{spec: {}}`, "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"},
		{"Ingress", `{spec: {defaultBackend: {}}}`,
			`spec.defaultBackend: Invalid value: "": resource or service backend is required`},
		{"Ingress", `{spec: {defaultBackend: {service: {name: a}}}}`,
			`spec.defaultBackend: Required value: port name or number is required`},
		{"Ingress", `{spec: {defaultBackend: {service: {port: {number: 1}}}}}`,
			`spec.defaultBackend.service.name: Required value`},
		{"Ingress", `{spec: {defaultBackend: {service: {name: A, port: {number: 70000}}}}}`,
			`[spec.defaultBackend.service.name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case ` +
				`alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', ` +
				` or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?'), ` +
				`spec.defaultBackend.service.port.number: Invalid value: 70000: must be between 1 and 65535, inclusive]`},
		{"Ingress", `{spec: {defaultBackend: {service: {name: a, port: {name: b, number: 1}}}}}`,
			`spec.defaultBackend: Invalid value: "": cannot set both port name & port number`},
		{"Ingress", `{spec: {defaultBackend: {service: {name: a, port: {number: 1}}, resource: {kind: a, name: b}}}}`,
			`spec.defaultBackend: Invalid value: "": cannot set both resource and service backends`},
		{"Ingress", rule(`{` + backend + `}`),
			`spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified`},
		{"Ingress", rule(`{pathType: Regex, ` + backend + `}`),
			`spec.rules[0].http.paths[0].pathType: Unsupported value: "Regex": supported values: "Exact", ` +
				`"ImplementationSpecific", "Prefix"`},
		{"Ingress", rule(`{pathType: Exact, path: a, ` + backend + `}`),
			`spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path`},
		{"Ingress", rule(`{pathType: Prefix, path: "/a//b", ` + backend + `}`),
			`spec.rules[0].http.paths[0].path: Invalid value: "/a//b": must not contain '//'`},
		{"Ingress", rule(`{pathType: Prefix, path: "/a/..", ` + backend + `}`),
			`spec.rules[0].http.paths[0].path: Invalid value: "/a/..": cannot end with '/..'`},
		{"Ingress", `{spec: {rules: [{http: {}}]}}`, `spec.rules[0].http.paths: Required value`},
		{"Ingress", `{spec: {rules: [{host: 1.2.3.4}]}}`,
			`spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address`},
		{"Ingress", `{spec: {rules: [{host: "a.*.b"}]}}`,
			`spec.rules[0].host: Invalid value: "a.*.b": a wildcard DNS-1123 subdomain must start with '*.', ` +
				`followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, ` +
				`'-' or '.' and end with an alphanumeric character (e.g. '*.example.com', ` +
				`regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		{"Ingress", `{spec: {rules: [{host: a}], tls: [{hosts: ["a_b"]}]}}`,
			`spec.tls[0].hosts[0]: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case ` +
				`alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. ` +
				`'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		{"Ingress", `{spec: {rules: [{host: a}], tls: [{secretName: A}]}}`,
			`spec.tls[0].secretName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case ` +
				`alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. ` +
				`'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		{"Ingress", `{metadata: {annotations: {kubernetes.io/ingress.class: b}}, spec: {rules: [{host: a}], ` +
			`ingressClassName: a}}`,
			"annotations.kubernetes.io/ingress.class: Invalid value: \"b\": must match `ingressClassName` when both are " +
				"specified"},
	} {
		r := kindtest.Of(t, network.Resources(), c.kind)
		errs := kindtest.Validate(r, kindtest.Create(t, r, c.obj), nil, "")
		if got := errs.ToAggregate(); got == nil || got.Error() != c.want {
			t.Errorf("%s %s:\n%v\nwant\n%s", c.kind, c.obj, got, c.want)
		}
	}
}
