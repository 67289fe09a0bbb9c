package admissionregistration

import (
	"testing"

	"monopod/apiserver/registry/kind/kindtest"
)

func TestWebhookDefaults(t *testing.T) {
	t.Parallel()
	const rest = `  admissionReviewVersions: null
  clientConfig:
    service:
      name: s
      namespace: ns
      port: 443
  failurePolicy: Fail
  matchPolicy: Equivalent
  name: a.example.com
  namespaceSelector: {}
  objectSelector: {}
`
	const rules = `  rules:
  - operations:
    - '*'
    resources:
    - pods
    scope: '*'
  sideEffects: null
  timeoutSeconds: 10
`
	const object = `{webhooks: [{name: a.example.com, clientConfig: {service: {name: s, namespace: ns}}, ` +
		`rules: [{operations: ["*"], resources: [pods]}]}]}`
	fixed := func(s string) string { return "webhooks:\n- " + s[2:] }
	kindtest.CheckDefaults(t, webhookResources(), []kindtest.Case{
		{Kind: "ValidatingWebhookConfiguration", Object: object, Want: fixed(rest + rules)},
		{Kind: "MutatingWebhookConfiguration", Object: object, Want: fixed(rest + "  reinvocationPolicy: Never\n" + rules)},
	})
}

func TestWebhookValidation(t *testing.T) {
	t.Parallel()
	const good = `{webhooks: [{name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: "https://x/y"},
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}]}`
	for _, c := range []struct {
		name, old, new string
		want           []string
	}{
		{"good", "", "", nil},
		{"name", "name: a.example.com", "name: a", []string{"webhooks[0].name: Invalid value"}},
		{"side effects", "sideEffects: None", "sideEffects: Some", []string{"webhooks[0].sideEffects: Unsupported value"}},
		{"no side effects", "sideEffects: None, ", "", []string{"webhooks[0].sideEffects: Required value"}},
		{"versions", "[v1], clientConfig", "[v7], clientConfig",
			[]string{"webhooks[0].admissionReviewVersions: Invalid value"}},
		{"no versions", "admissionReviewVersions: [v1], ", "",
			[]string{"webhooks[0].admissionReviewVersions: Required value"}},
		{"http", "https://x/y", "http://x/y", []string{"webhooks[0].clientConfig.url: Invalid value"}},
		{"a query", "https://x/y", "https://x/y?z", []string{"webhooks[0].clientConfig.url: Invalid value"}},
		{"no client", `clientConfig: {url: "https://x/y"}`, "clientConfig: {}",
			[]string{"webhooks[0].clientConfig: Required value"}},
		{"a service", `{url: "https://x/y"}`, "{service: {name: s, namespace: n, path: y, port: 0}}",
			[]string{"webhooks[0].clientConfig.service.port: Invalid value",
				"webhooks[0].clientConfig.service.path: Invalid value"}},
		{"operations", "[CREATE]", "[CREATE, '*']", []string{"webhooks[0].rules[0].operations: Invalid value"}},
		{"operation", "[CREATE]", "[GET]", []string{"webhooks[0].rules[0].operations[0]: Unsupported value"}},
		{"groups", `apiGroups: [""]`, `apiGroups: [a, "*"]`, []string{"webhooks[0].rules[0].apiGroups: Invalid value"}},
		{"rule versions", "apiVersions: [v1]", "apiVersions: ['']",
			[]string{"webhooks[0].rules[0].apiVersions[0]: Required value"}},
		{"resources", "resources: [pods]", "resources: []", []string{"webhooks[0].rules[0].resources: Required value"}},
		{"covered", "resources: [pods]", "resources: [pods/*, pods/status]",
			[]string{"webhooks[0].rules[0].resources[1]: Invalid value"}},
		{"scope", "resources: [pods]", "resources: [pods], scope: Moon",
			[]string{"webhooks[0].rules[0].scope: Unsupported value"}},
		{"timeout", "sideEffects: None", "sideEffects: None, timeoutSeconds: 31",
			[]string{"webhooks[0].timeoutSeconds: Invalid value"}},
		{"failure", "sideEffects: None", "sideEffects: None, failurePolicy: Maybe",
			[]string{"webhooks[0].failurePolicy: Unsupported value"}},
		{"selector", "sideEffects: None", "sideEffects: None, objectSelector: {matchExpressions: [{key: a, operator: Odd}]}",
			[]string{"webhooks[0].objectSelector.matchExpressions[0].operator: Invalid value"}},
		{"a condition of another type", "sideEffects: None",
			"sideEffects: None, matchConditions: [{name: a, expression: '1'}]",
			[]string{"webhooks[0].matchConditions[0].expression: Invalid value"}},
		{"conditions", "sideEffects: None",
			"sideEffects: None, matchConditions: [{name: a, expression: 'true'}, {name: a, expression: 'object.'}, " +
				"{expression: ' '}]",
			[]string{"webhooks[0].matchConditions[1].expression: Invalid value",
				"webhooks[0].matchConditions[1].name: Duplicate value",
				"webhooks[0].matchConditions[2].expression: Required value",
				"webhooks[0].matchConditions[2].name: Required value"}},
	} {
		for _, r := range webhookResources() {
			text := good
			if c.old != "" {
				text = kindtest.With(t, good, c.old, c.new)
			}
			t.Run(c.name+" "+r.Kind, func(t *testing.T) {
				kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, text), nil, ""), c.want...)
			})
		}
	}
	kindtest.CheckColumns(t, webhookResources(),
		map[string]string{"ValidatingWebhookConfiguration": "Name|Webhooks|Age / ",
			"MutatingWebhookConfiguration": "Name|Webhooks|Age / "}, nil)
}
