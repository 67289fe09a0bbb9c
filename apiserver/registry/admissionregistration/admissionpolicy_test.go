package admissionregistration

import (
	"strings"
	"testing"

	"monopod/apiserver/registry/kind/kindtest"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	const match = `    matchPolicy: Equivalent
    namespaceSelector: {}
    objectSelector: {}
    resourceRules:
    - operations:
      - '*'
      scope: '*'
`
	kindtest.CheckDefaults(t, Resources(), []kindtest.Case{
		{Kind: "ValidatingAdmissionPolicy", Object: `{spec: {matchConstraints: {resourceRules: [{operations: ["*"]}]}}}`,
			Want: "spec:\n  failurePolicy: Fail\n  matchConstraints:\n" + match + "status:\n  observedGeneration: 1\n"},
		{Kind: "ValidatingAdmissionPolicyBinding", Object: `{spec: {matchResources: {resourceRules: [{operations: ["*"]}]}}}`,
			Want: "spec:\n  matchResources:\n" + match},
		{Kind: "MutatingAdmissionPolicy", Object: `{spec: {matchConstraints: {resourceRules: [{operations: ["*"]}]}}}`,
			Want: "spec:\n  failurePolicy: Fail\n  matchConstraints:\n" + match},
		{Kind: "MutatingAdmissionPolicyBinding", Object: `{spec: {matchResources: {resourceRules: [{operations: ["*"]}]}}}`,
			Want: "spec:\n  matchResources:\n" + match},
	})
}

// checkAll validates an object after each change of its text.
func checkAll(t *testing.T, kind, good string, cases [][3]string) {
	t.Helper()
	for _, r := range Resources() {
		if r.Kind != kind {
			continue
		}
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, good), nil, ""))
		for _, c := range cases {
			t.Run(kind+" "+c[1], func(t *testing.T) {
				var want []string
				if c[2] != "" {
					want = strings.Split(c[2], "; ")
				}
				kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, kindtest.With(t, good, c[0], c[1])), nil, ""),
					want...)
			})
		}
	}
}

func TestValidation(t *testing.T) {
	t.Parallel()
	const rule = `{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}`
	const validations = `validations: [{expression: "object.spec.x == 1"}]`
	checkAll(t, "ValidatingAdmissionPolicy", `{metadata: {name: p}, spec: {matchConstraints: {resourceRules: [`+rule+
		`]}, `+validations+`}}`, [][3]string{
		{`matchConstraints: {resourceRules: [` + rule + `]}, `, ``, "spec.matchConstraints: Required value"},
		{`[` + rule + `]`, `[]`, "spec.matchConstraints.resourceRules: Required value"},
		{`[CREATE]`, `[GET]`, "spec.matchConstraints.resourceRules[0].operations[0]: Unsupported value"},
		{`operations`, `resourceNames: [a, a, ..], operations`,
			"spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value; " +
				"spec.matchConstraints.resourceRules[0].resourceNames[2]: Invalid value"},
		{`{resourceRules`, `{matchPolicy: Odd, resourceRules`, "spec.matchConstraints.matchPolicy: Unsupported value"},
		{`{resourceRules`, `{namespaceSelector: {matchLabels: {a b: c}}, resourceRules`,
			"spec.matchConstraints.namespaceSelector.matchLabels: Invalid value"},
		{validations, `failurePolicy: Odd, ` + validations, "spec.failurePolicy: Unsupported value"},
		{validations, `validations: []`, "spec.validations: Required value; spec.auditAnnotations: Required value"},
		{validations, `paramKind: {}, ` + validations,
			"spec.paramKind.apiVersion: Required value; spec.paramKind.kind: Required value"},
		{validations, `paramKind: {apiVersion: a/b/c, kind: X y}, ` + validations,
			"spec.paramKind.apiVersion: Invalid value; spec.paramKind.kind: Invalid value"},
		{validations, `paramKind: {apiVersion: A/1, kind: X}, ` + validations,
			"spec.paramKind.apiVersion: Invalid value; spec.paramKind.apiVersion: Invalid value"},
		{`"object.spec.x == 1"`, `" "`, "spec.validations[0].expression: Required value"},
		{`"object.spec.x == 1"`, `"object."`, "spec.validations[0].expression: Invalid value"},
		{`"object.spec.x == 1"`, `"1"`, "spec.validations[0].expression: Invalid value"},
		{`"object.spec.x == 1"`, `"params == 1"`, "spec.validations[0].expression: Invalid value"},
		{`"object.spec.x == 1"`, `"variables.x"`, "spec.validations[0].expression: Invalid value"},
		{`{expression`, `{message: " ", expression`, "spec.validations[0].message: Invalid value"},
		{`{expression`, `{message: "a\nb", expression`, "spec.validations[0].message: Invalid value"},
		{`{expression`, `{messageExpression: " ", expression`, "spec.validations[0].messageExpression: Invalid value"},
		{`{expression`, `{messageExpression: "1", expression`, "spec.validations[0].messageExpression: Invalid value"},
		{`{expression`, `{messageExpression: "string(authorizer.path('/x').check('get').allowed())", expression`,
			"spec.validations[0].messageExpression: Invalid value"},
		{`{expression`, `{reason: NotFound, expression`, "spec.validations[0].reason: Unsupported value"},
		{validations, `matchConditions: [{name: a, expression: "1"}, {expression: ""}], ` + validations,
			"spec.matchConditions[0].expression: Invalid value; spec.matchConditions[1].expression: Required value; " +
				"spec.matchConditions[1].name: Required value"},
		{validations, `variables: [{name: "", expression: ""}, {name: in, expression: "1"}, {name: x, expression: "y"}], ` +
			validations,
			"spec.variables[0].name: Required value; spec.variables[0].expression: Required value; spec.variables[1].name: " +
				"Invalid value; spec.variables[2].expression: Invalid value"},
		{validations,
			`auditAnnotations: [{key: "a b", valueExpression: ""}, {key: c, valueExpression: "1"}, {key: c, ` +
				`valueExpression: "'x'"}]`,
			"spec.auditAnnotations[0].key: Invalid value; spec.auditAnnotations[0].valueExpression: Required value; " +
				"spec.auditAnnotations[1].valueExpression: Invalid value; spec.auditAnnotations[2].key: Duplicate value"},
		{validations, `auditAnnotations: [{key: a, valueExpression: "'` + strings.Repeat("x", 5*1024) + `'"}]`,
			"spec.auditAnnotations[0].valueExpression: Required value"},
		{validations, `auditAnnotations: [` + strings.Repeat(`{key: a, valueExpression: "'x'"}, `, 21) + `]`,
			"spec.auditAnnotations: Invalid value"},
	})
	checkAll(t, "ValidatingAdmissionPolicyBinding",
		`{metadata: {name: b}, spec: {policyName: p, validationActions: [Deny]}}`, [][3]string{
			{`policyName: p, `, ``, "spec.policyName: Required value"},
			{`policyName: p`, `policyName: P`, "spec.policyName: Invalid value"},
			{`[Deny]`, `[]`, "spec.validationActions: Required value"},
			{`[Deny]`, `[Deny, Deny]`, "spec.validationActions[1]: Duplicate value"},
			{`[Deny]`, `[Deny, Warn]`, "spec.validationActions: Invalid value"},
			{`[Deny]`, `[Stop]`, "spec.validationActions[0]: Unsupported value"},
			{`[Deny]`, `[Deny], paramRef: {}`,
				"spec.paramRef: Required value; spec.paramRef.parameterNotFoundAction: Required value"},
			{`[Deny]`, `[Deny], paramRef: {name: a/b, selector: {}, parameterNotFoundAction: Odd}`,
				"spec.paramRef.name: Invalid value; spec.paramRef.name: Forbidden; spec.paramRef.selector: Forbidden; " +
					"spec.paramRef.parameterNotFoundAction: Unsupported value"},
			{`[Deny]`, `[Deny], matchResources: {resourceRules: [{operations: [CREATE], apiGroups: [], apiVersions: [v1], ` +
				`resources: [pods]}]}`, "spec.matchResources.resourceRules[0].apiGroups: Required value"},
		})
	const mutations = `mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'test', path: '/x', ` +
		`value: object.x}]"}}]`
	checkAll(t, "MutatingAdmissionPolicy", `{metadata: {name: p}, spec: {matchConstraints: {resourceRules: [`+rule+
		`]}, reinvocationPolicy: Never, `+mutations+`}}`, [][3]string{
		{`matchConstraints: {resourceRules: [` + rule + `]}, `, ``, "spec.matchConstraints: Required value"},
		{`[` + rule + `]`, `[]`, "spec.matchConstraints.resourceRules: Required value"},
		{`[CREATE]`, `["*"]`, ""},
		{`[CREATE]`, `[DELETE, CONNECT]`, "spec.matchConstraints.resourceRules.operations: Unsupported value"},
		{`Never`, `""`, "spec.reinvocationPolicy: Required value"},
		{`Never`, `Always`, "spec.reinvocationPolicy: Unsupported value"},
		{`reinvocationPolicy`, `failurePolicy: Odd, reinvocationPolicy`, "spec.failurePolicy: Unsupported value"},
		{`reinvocationPolicy`, `paramKind: {}, reinvocationPolicy`,
			"spec.paramKind.apiVersion: Required value; spec.paramKind.kind: Required value"},
		{mutations, `mutations: []`, "spec.mutations: Required value"},
		{`patchType: JSONPatch, `, ``, "spec.mutations[0].patchType: Required value"},
		{`patchType: JSONPatch`, `patchType: Merge`, "spec.mutations[0].patchType: Unsupported value"},
		{`patchType: JSONPatch`, `patchType: ApplyConfiguration`,
			"spec.mutations[0].applyConfiguration: Required value; spec.mutations[0].jsonPatch: Invalid value"},
		{`jsonPatch: {`, `applyConfiguration: {`,
			"spec.mutations[0].jsonPatch: Required value; spec.mutations[0].applyConfiguration: Invalid value"},
		{`[JSONPatch{op: 'test', path: '/x', value: object.x}]`, ` `,
			"spec.mutations[0].jsonPatch.expression: Required value"},
		{`[JSONPatch{op: 'test', path: '/x', value: object.x}]`, `[1]`,
			"spec.mutations[0].jsonPatch.expression: Invalid value"},
		{`[JSONPatch{op: 'test', path: '/x', value: object.x}]`, `Object{x: 1}`,
			"spec.mutations[0].jsonPatch.expression: Invalid value"},
		{`{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'test', path: '/x', value: object.x}]"}}`,
			`{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{x: variables.x}}"}}`,
			"spec.mutations[0].applyConfiguration.expression: Invalid value"},
		{mutations, `variables: [{name: x, expression: "1"}], mutations: [{patchType: ApplyConfiguration, ` +
			`applyConfiguration: {expression: "Object{spec: Object.spec{x: variables.x}}"}}]`, ""},
		{mutations, `variables: [{name: x, expression: "y"}], ` + mutations, "spec.variables[0].expression: Invalid value"},
		{mutations, `matchConditions: [{name: a, expression: "1"}], ` + mutations,
			"spec.matchConditions[0].expression: Invalid value"},
	})
	checkAll(t, "MutatingAdmissionPolicyBinding", `{metadata: {name: b}, spec: {policyName: p}}`, [][3]string{
		{`policyName: p`, ``, "spec.policyName: Required value"},
		{`policyName: p`, `policyName: p, paramRef: {}`,
			"spec.paramRef: Required value; spec.paramRef.parameterNotFoundAction: Required value"},
		{`policyName: p`,
			`policyName: p, matchResources: {resourceRules: [{operations: [DELETE], apiGroups: [""], apiVersions: [v1], ` +
				`resources: [pods]}]}`, "spec.matchResources.resourceRules.operations: Unsupported value"},
	})
	kindtest.CheckColumns(t, Resources(), map[string]string{
		"ValidatingAdmissionPolicy":        "Name|Validations|ParamKind|Age / ",
		"ValidatingAdmissionPolicyBinding": "Name|PolicyName|ParamRef|Age / ",
		"MutatingAdmissionPolicy":          "Name|Mutations|ParamKind|Age / ",
		"MutatingAdmissionPolicyBinding":   "Name|PolicyName|ParamRef|Age / ",
		"MutatingWebhookConfiguration":     "Name|Webhooks|Age / ", "ValidatingWebhookConfiguration": "Name|Webhooks|Age / "},
		nil)
}

func TestCells(t *testing.T) {
	t.Parallel()
	for want, text := range map[string]string{
		"<unset>": `{}`, "*/x": `{paramRef: {name: x}}`, "ns/x": `{paramRef: {name: x, namespace: ns}}`,
		"a=b": `{paramRef: {selector: {matchLabels: {a: b}}}}`,
	} {
		r := validatingResources()[1]
		if got := paramRef(kindtest.Create(t, r, `{spec: `+text+`}`).(*binding).Spec.ParamRef); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
