package flowcontrol

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
)

const (
	goodSchema = `{metadata: {name: s}, spec: {priorityLevelConfiguration: {name: l}, matchingPrecedence: 5, distinguisherMethod: {type: ByUser},
  rules: [{subjects: [{kind: User, user: {name: u}}], resourceRules: [{verbs: [get], apiGroups: [""], resources: [pods], namespaces: [a]}]}]}}`
	goodLevel = `{metadata: {name: l}, spec: {type: Limited, limited: {limitResponse: {type: Queue, ` +
		`queuing: {queues: 10, handSize: 2, queueLengthLimit: 3}}}}}`
)

// Changes of a valid object give upstream's errors.
func TestBadObjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, good, old, new, want string }{
		{"FlowSchema", goodSchema, "Precedence: 5", "Precedence: 5", ""},
		{"FlowSchema", goodSchema, "Precedence: 5", "Precedence: -1", "spec.matchingPrecedence: Invalid value"},
		{"FlowSchema", goodSchema, "Precedence: 5", "Precedence: 10001", "spec.matchingPrecedence: Invalid value"},
		{"FlowSchema", goodSchema, "Precedence: 5", "Precedence: 1", "spec.matchingPrecedence: Invalid value"},
		{"FlowSchema", goodSchema, "type: ByUser", "type: ByGroup", "spec.distinguisherMethod.type: Unsupported value"},
		{"FlowSchema", goodSchema, "n: {name: l}", "n: {name: ''}", "spec.priorityLevelConfiguration.name: Required value"},
		{"FlowSchema", goodSchema, "n: {name: l}", "n: {name: L_}", "spec.priorityLevelConfiguration.name: Invalid value"},
		{"FlowSchema", goodSchema, "{kind: User, user: {name: u}}", "", "spec.rules[0].subjects: Required value"},
		{"FlowSchema", goodSchema, "kind: User", "kind: Human", "spec.rules[0].subjects[0].kind: Unsupported value"},
		{"FlowSchema", goodSchema, "kind: User, user", "kind: User, group: {name: g}, user",
			"spec.rules[0].subjects[0].group: Forbidden"},
		{"FlowSchema", goodSchema, "user: {name: u}", "group: {name: g}",
			"spec.rules[0].subjects[0].user: Required value; spec.rules[0].subjects[0].group: Forbidden"},
		{"FlowSchema", goodSchema, "user: {name: u}", "user: {name: ''}",
			"spec.rules[0].subjects[0].user.name: Required value"},
		{"FlowSchema", goodSchema, "kind: User, user: {name: u}", "kind: Group",
			"spec.rules[0].subjects[0].group: Required value"},
		{"FlowSchema", goodSchema, "kind: User, user: {name: u}", "kind: Group, group: {name: '*'}", ""},
		{"FlowSchema", goodSchema, "kind: User, user: {name: u}", "kind: ServiceAccount",
			"spec.rules[0].subjects[0].serviceAccount: Required value"},
		{"FlowSchema", goodSchema, "kind: User, user: {name: u}",
			"kind: ServiceAccount, serviceAccount: {name: '*', namespace: a}", ""},
		{"FlowSchema", goodSchema, "kind: User, user: {name: u}", "kind: ServiceAccount, serviceAccount: {name: '*'}",
			"spec.rules[0].subjects[0].serviceAccount.namespace: Required value"},
		{"FlowSchema", goodSchema, "kind: User, user: {name: u}",
			"kind: ServiceAccount, serviceAccount: {name: A_, namespace: B_}",
			"spec.rules[0].subjects[0].serviceAccount.name: Invalid value; " +
				"spec.rules[0].subjects[0].serviceAccount.namespace: Invalid value"},
		{"FlowSchema", goodSchema, "kind: User, user: {name: u}", "kind: ServiceAccount, serviceAccount: {namespace: a}",
			"spec.rules[0].subjects[0].serviceAccount.name: Required value"},
		{"FlowSchema", goodSchema, ", resourceRules: [{verbs: [get], apiGroups: [\"\"], resources: [pods], namespaces: [a]}]",
			"", "spec.rules[0]: Required value"},
		{"FlowSchema", goodSchema, "verbs: [get]", "verbs: []", "spec.rules[0].resourceRules[0].verbs: Required value"},
		{"FlowSchema", goodSchema, "verbs: [get]", "verbs: [get, '*']",
			"spec.rules[0].resourceRules[0].verbs: Invalid value"},
		{"FlowSchema", goodSchema, "verbs: [get]", "verbs: [got]", "spec.rules[0].resourceRules[0].verbs: Unsupported value"},
		{"FlowSchema", goodSchema, `[""]`, `[]`, "spec.rules[0].resourceRules[0].apiGroups: Required value"},
		{"FlowSchema", goodSchema, `[""]`, `["", "*"]`, "spec.rules[0].resourceRules[0].apiGroups: Invalid value"},
		{"FlowSchema", goodSchema, "[pods]", "[]", "spec.rules[0].resourceRules[0].resources: Required value"},
		{"FlowSchema", goodSchema, "[pods]", "[pods, '*']", "spec.rules[0].resourceRules[0].resources: Invalid value"},
		{"FlowSchema", goodSchema, "namespaces: [a]", "clusterScope: false",
			"spec.rules[0].resourceRules[0].namespaces: Required value"},
		{"FlowSchema", goodSchema, "namespaces: [a]", "clusterScope: true", ""},
		{"FlowSchema", goodSchema, "namespaces: [a]", "namespaces: ['*']", ""},
		{"FlowSchema", goodSchema, "namespaces: [a]", "namespaces: [a, '*']",
			"spec.rules[0].resourceRules[0].namespaces: Invalid value"},
		{"FlowSchema", goodSchema, "namespaces: [a]", "namespaces: [a, B_]",
			"spec.rules[0].resourceRules[0].namespaces[1]: Invalid value"},
		{"FlowSchema", goodSchema, "resourceRules",
			"nonResourceRules: [{verbs: [get], nonResourceURLs: [/, /a, /b/*]}, {verbs: ['*'], nonResourceURLs: ['*']}], " +
				"resourceRules", ""},
		{"FlowSchema", goodSchema, "resourceRules", "nonResourceRules: [{}], resourceRules",
			"spec.rules[0].nonResourceRules[0].verbs: Required value; spec.rules[0].nonResourceRules[0].nonResourceURLs: " +
				"Required value"},
		{"FlowSchema", goodSchema, "resourceRules", "nonResourceRules: [{verbs: [get], nonResourceURLs: [a]}], resourceRules",
			"spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value"},
		{"FlowSchema", goodSchema, "resourceRules",
			"nonResourceRules: [{verbs: [get], nonResourceURLs: ['', /a b, //a, /*/a, /a*]}], resourceRules",
			strings.TrimSuffix(strings.Repeat("spec.rules[0].nonResourceRules[0].nonResourceURLs[%]: Invalid value; ", 5),
				"; ")},
		{"FlowSchema", goodSchema, "resourceRules",
			"nonResourceRules: [{verbs: [get], nonResourceURLs: [/a, '*']}], resourceRules",
			"spec.rules[0].nonResourceRules[0].nonResourceURLs: Invalid value"},
		{"FlowSchema", goodSchema, "name: s", "name: catch-all", "spec: Invalid value"},

		{"PriorityLevelConfiguration", goodLevel, "type: Limited", "type: Limited", ""},
		{"PriorityLevelConfiguration", goodLevel, "type: Limited", "type: Exempt",
			"spec.type: Invalid value; spec.limited: Forbidden; spec.exempt: Required value"},
		{"PriorityLevelConfiguration", goodLevel, "type: Limited", "type: Open", "spec.type: Unsupported value"},
		{"PriorityLevelConfiguration", goodLevel, "type: Limited", "type: Limited, exempt: {}", "spec.exempt: Forbidden"},
		{"PriorityLevelConfiguration", goodLevel, "name: l", "name: exempt", "spec.type: Invalid value; spec: Invalid value"},
		{"PriorityLevelConfiguration", goodLevel, "name: l", "name: catch-all", "spec: Invalid value"},
		{"PriorityLevelConfiguration", `{metadata: {name: l}, spec: {type: Limited}}`, "type: Limited", "type: Limited",
			"spec.limited: Required value"},
		{"PriorityLevelConfiguration",
			`{metadata: {name: exempt}, spec: {type: Exempt, exempt: {nominalConcurrencyShares: 5, lendablePercent: 50}}}`, "5",
			"5", ""},
		{"PriorityLevelConfiguration",
			`{metadata: {name: exempt}, spec: {type: Exempt, exempt: {nominalConcurrencyShares: -5, lendablePercent: 101}}}`,
			"-5", "-5", "spec.exempt.nominalConcurrencyShares: Invalid value; spec.exempt.lendablePercent: Invalid value"},
		{"PriorityLevelConfiguration", goodLevel, "limited: {", "limited: {nominalConcurrencyShares: -1, ",
			"spec.limited.nominalConcurrencyShares: Invalid value"},
		{"PriorityLevelConfiguration", goodLevel, "limited: {", "limited: {nominalConcurrencyShares: 0, ", ""},
		{"PriorityLevelConfiguration", goodLevel, "limited: {", "limited: {lendablePercent: 101, ",
			"spec.limited.lendablePercent: Invalid value"},
		{"PriorityLevelConfiguration", goodLevel, "limited: {", "limited: {borrowingLimitPercent: -1, ",
			"spec.limited.borrowingLimitPercent: Invalid value"},
		{"PriorityLevelConfiguration", goodLevel, "type: Queue", "type: Reject",
			"spec.limited.limitResponse.queuing: Forbidden"},
		{"PriorityLevelConfiguration", goodLevel, "type: Queue", "type: Wait",
			"spec.limited.limitResponse.type: Unsupported value"},
		{"PriorityLevelConfiguration", goodLevel, ", queuing: {queues: 10, handSize: 2, queueLengthLimit: 3}", "",
			"spec.limited.limitResponse.queuing: Required value"},
		{"PriorityLevelConfiguration", goodLevel, "queueLengthLimit: 3", "queueLengthLimit: -3",
			"spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value"},
		{"PriorityLevelConfiguration", goodLevel, "queues: 10", "queues: -10",
			"spec.limited.limitResponse.queuing.queues: Invalid value; spec.limited.limitResponse.queuing.handSize: Invalid " +
				"value"},
		{"PriorityLevelConfiguration", goodLevel, "queues: 10", "queues: 10000001",
			"spec.limited.limitResponse.queuing.queues: Invalid value"},
		{"PriorityLevelConfiguration", goodLevel, "handSize: 2", "handSize: -2",
			"spec.limited.limitResponse.queuing.handSize: Invalid value"},
		{"PriorityLevelConfiguration", goodLevel, "handSize: 2", "handSize: 11",
			"spec.limited.limitResponse.queuing.handSize: Invalid value"},
		{"PriorityLevelConfiguration", goodLevel, "queues: 10, handSize: 2", "queues: 512, handSize: 8",
			"spec.limited.limitResponse.queuing.handSize: Invalid value"},
	} {
		r := kindtest.Of(t, Resources(), c.kind)
		text := kindtest.With(t, c.good, c.old, c.new)
		want := strings.FieldsFunc(strings.ReplaceAll(c.want, "; ", "\n"), func(r rune) bool { return r == '\n' })
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], "%", string(rune('0'+i)))
		}
		t.Run(c.new, func(t *testing.T) {
			kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, text), nil, ""), want...)
		})
	}
}

func TestConditionsHaveTypes(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]string{"FlowSchema": goodSchema, "PriorityLevelConfiguration": goodLevel} {
		r := kindtest.Of(t, Resources(), name)
		old := kindtest.Create(t, r, object)
		text := strings.TrimSuffix(object, "}") + `, status: {conditions: [{type: A}, {type: A}, {}]}}`
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Update(t, r, old, text, "status"), old, "status"),
			"status.conditions[1].type: Duplicate value", "status.conditions[2].type: Required value")
	}
}

// Upstream's own objects are valid, and the defaults do not change them.
func TestDefaultObjects(t *testing.T) {
	t.Parallel()
	var all []kind.Object
	for _, fs := range append(bootstrap.MandatoryFlowSchemas[:2:2], bootstrap.SuggestedFlowSchemas...) {
		all = append(all, fs.DeepCopy())
	}
	for _, pl := range append(bootstrap.MandatoryPriorityLevelConfigurations[:2:2],
		bootstrap.SuggestedPriorityLevelConfigurations...) {
		all = append(all, pl.DeepCopy())
	}
	for _, obj := range all {
		for _, r := range Resources() {
			if _, ok := obj.(*flowSchema); ok != (r.Kind == "FlowSchema") {
				continue
			}
			r.Default(obj)
			kindtest.WantErrors(t, kindtest.Validate(r, obj, nil, ""))
		}
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	kindtest.CheckColumns(t, Resources(), map[string]string{
		"FlowSchema":                 "Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL / ",
		"PriorityLevelConfiguration": "Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age / ",
	}, []kindtest.Case{
		{Kind: "FlowSchema", Object: goodSchema, Want: "s|l|5|ByUser|<unknown>|?"},
		{Kind: "FlowSchema", Object: `{metadata: {name: s}, status: {conditions: [{type: Dangling, status: "True"}]}}`,
			Want: "s||0|<none>|<unknown>|True"},
		{Kind: "PriorityLevelConfiguration", Object: goodLevel, Want: "l|Limited|30|10|2|3|<unknown>"},
		{Kind: "PriorityLevelConfiguration", Object: `{metadata: {name: exempt}, spec: {type: Exempt}}`,
			Want: "exempt|Exempt|<none>|<none>|<none>|<none>|<unknown>"},
	})
}
