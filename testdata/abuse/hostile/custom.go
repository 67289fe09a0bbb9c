package hostile

import (
	"fmt"
	"strings"
)

// Definition is the definition of things.abuse.io. Its schema has every feature that costs the server time or memory
// for each value.
const Definition = `{"metadata":{"name":"things.abuse.io"},"spec":{"group":"abuse.io","scope":"Namespaced",` +
	`"names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,` +
	`"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},` +
	`"additionalPrinterColumns":[{"name":"Ready","type":"string",` +
	`"jsonPath":".status.conditions[?(@.type=='Ready')].status"},{"name":"Names","type":"string",` +
	`"jsonPath":".spec..name"}],` +
	`"selectableFields":[{"jsonPath":".spec.color"}],` +
	`"schema":{"openAPIV3Schema":{"type":"object","properties":{"status":{"type":"object",` +
	`"x-kubernetes-preserve-unknown-fields":true},"spec":{"type":"object","properties":{` +
	`"replicas":{"type":"integer"},"color":{"type":"string"},"free":{"type":"object",` +
	`"x-kubernetes-preserve-unknown-fields":true},` +
	`"template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},` +
	`"items":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"text":{"type":"string",` +
	`"default":"a text of some length, ` +
	`which is in every ` +
	`item"},"ports":{"type":"array","items":{"type":"object","properties":{"port":{"type":"integer","default":80}}},` +
	`"default":[{},{},{},{}]}}}},` +
	`"lists":{"type":"array","items":{"type":"array","items":{"type":"string",` +
	`"pattern":"^[a-z]+([-a-z0-9]*[a-z0-9])?$"}}},` +
	`"set":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},` +
	`"keyed":{"type":"array","items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},` +
	`"value":{"type":"string"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"]},` +
	`"amount":{"type":"string","maxLength":1000,` +
	`"x-kubernetes-validations":[{"rule":"quantity(self).isGreaterThan(quantity('0'))"}]},` +
	`"map":{"type":"object","maxProperties":10000,"additionalProperties":{"type":"string","maxLength":100},` +
	`"x-kubernetes-validations":[{"rule":"self.all(k, self[k].size() < 90)"}]}` +
	`}}}}}}]}}`

// ThingsPath returns the path of things in a namespace.
func ThingsPath(namespace string) string {
	return "/apis/abuse.io/v1/namespaces/" + namespace + "/things"
}

// DefinitionsPath is the path of custom resource definitions.
const DefinitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// things returns requests for custom objects.
func things(namespace string) []Request {
	path := ThingsPath(namespace)
	thing := func(spec string) string {
		return `{"apiVersion":"abuse.io/v1","kind":"Thing","metadata":{"generateName":"t-"},"spec":{` + spec + `}}`
	}
	one := path + "/target"
	named := func(spec string) string {
		return `{"apiVersion":"abuse.io/v1","kind":"Thing","metadata":{"name":"target"},"spec":{` + spec + `}}`
	}
	return []Request{
		{"defaults", "POST", path, json, thing(`"items":[` + list("{}", 9_900) + `]`)},
		{"defaults applied", "PATCH", one + "?fieldManager=m&force=true", apply,
			named(`"items":[` + list("{}", 9_900) + `]`)},
		{"defaults merged", "PATCH", one, merge, `{"spec":{"items":[` + list("{}", 9_900) + `]}}`},
		{"mismatches", "POST", path, json, thing(`"lists":[` + list("["+list(`"A"`, 9_000)+"]", 60) + `]`)},
		{"types", "POST", path, json, thing(`"map":{` + members("k", "1", 100_000) + `}`)},
		{"rules", "POST", path, json, thing(`"map":{` + members("k", `"v"`, 9_900) + `}`)},
		{"quantity of a rule", "POST", path, json, thing(`"amount":"1e99999999"`)},
		{"duplicates", "POST", path, json, thing(`"set":[` + list(`"x"`, 9_900) + `]`)},
		{"keyed", "PATCH", one + "?fieldManager=n&force=true", apply, named(`"keyed":[` + keyed(3_000) + `]`)},
		{"pruned", "POST", path, json, thing(members("u", "1", 180_000))},
		{"nested free", "POST", path, json, thing(`"free":` + nested(`{"a":`, "}", 240))},
		{"free", "POST", path, json, thing(`"free":{` + members("k", `{"a":[]}`, 100_000) + `}`)},
		{"embedded", "POST", path, json,
			thing(`"template":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{` + members("l", `"v"`, 100_000) + `}}}`)},
	}
}

func keyed(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `{"name":"n%x"},`, i)
	}
	return strings.TrimSuffix(out.String(), ",")
}

// configurations returns dry runs that create configurations which would make other requests expensive.
func configurations() []Request {
	const (
		path     = DefinitionsPath + "?dryRun=All"
		policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?dryRun=All"
		webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?dryRun=All"
		rules    = `{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}`
	)
	definition := func(spec, more string) string {
		return `{"metadata":{"name":"bads.abuse.io"},"spec":{"group":"abuse.io","scope":"Namespaced",` +
			`"names":{"plural":"bads","kind":"Bad"},"versions":[{"name":"v1","served":true,"storage":true,` + more +
			`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":` + spec + `}}}}]}}`
	}
	object := func(properties string) string { return `{"type":"object","properties":{` + properties + `}}` }
	policy := func(spec string) string {
		return `{"metadata":{"name":"bad"},"spec":{"matchConstraints":{"resourceRules":[` + rules + `]},` + spec + `}}`
	}
	patterns := make([]string, 2500)
	for i := range patterns {
		patterns[i] = fmt.Sprintf(`"p%d":{"type":"string","pattern":"a{1000}%d"}`, i, i)
	}
	const free = `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
	return []Request{
		{"deep schema", "POST", path, json, definition(nested(`{"type":"object","properties":{"a":`, "}}", 100), "")},
		{"wide schema", "POST", path, json, definition(object(members("f", `{"type":"string","default":"x"}`, 9_000)), "")},
		{"patterns", "POST", path, json, definition(object(strings.Join(patterns, ",")), "")},
		{"rules of a schema", "POST", path, json,
			definition(object(members("f", `{"type":"integer","x-kubernetes-validations":[{"rule":"self > 1"}]}`, 1_000)), "")},
		{"columns", "POST", path, json,
			definition(free, `"additionalPrinterColumns":[`+list(`{"name":"A","type":"string","jsonPath":".a"}`, 9_900)+`],`)},
		{"doubling column", "POST", path, json,
			definition(free, `"additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":".spec`+
				strings.Repeat("['a','a']", 40)+`"}],`)},
		{"versions", "POST", path, json,
			`{"metadata":{"name":"bads.abuse.io"},"spec":{"group":"abuse.io","scope":"Namespaced","names":{"plural":"bads",` +
				`"kind":"Bad"},"versions":[` + list(`{}`, 9_900) + `]}}`},
		{"validations", "POST", policies, json,
			policy(`"validations":[` + list(`{"expression":"object.metadata.name.size() > 1"}`, 2_000) + `]`)},
		{"variables", "POST", policies, json,
			policy(`"validations":[{"expression":"variables.v == 1"}],"variables":[` +
				list(`{"name":"v","expression":"1 + 1"}`, 2_000) + `]`)},
		{"long expression", "POST", policies, json,
			policy(`"validations":[{"expression":"` + strings.Repeat("1+", 300_000) + `1 > 0"}]`)},
		{"nested expression", "POST", policies, json,
			policy(`"validations":[{"expression":"` + nested("(", ")", 9_000) + ` > 0"}]`)},
		{"webhooks", "POST", webhooks, json, `{"metadata":{"name":"bad"},"webhooks":[` +
			list(`{"name":"a.b.c","clientConfig":{"url":"https://127.0.0.1:1"},"rules":[`+rules+
				`],"sideEffects":"None","admissionReviewVersions":["v1"],"matchConditions":[{"name":"a","expression":"true"}]}`,
				2_000) + `]}`},
	}
}
