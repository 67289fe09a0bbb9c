package policy

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
	"monopod/store"
)

func of(t *testing.T, name string) kind.Resource {
	t.Helper()
	for _, r := range Resources() {
		if r.Kind == name {
			return r
		}
	}
	t.Fatalf("no kind %s", name)
	return kind.Resource{}
}

func TestLimitRangeCreation(t *testing.T) {
	t.Parallel()
	r := of(t, "LimitRange")
	for limit, want := range map[string]string{
		`{type: Container, max: {cpu: 2, memory: 1Gi}, min: {cpu: 100m}, default: {cpu: 1}, defaultRequest: {cpu: 200m}, ` +
			`maxLimitRequestRatio: {cpu: 10}}`: "",
		`{type: Pod, max: {cpu: 2}}`:                         "",
		`{type: PersistentVolumeClaim, min: {storage: 1Gi}}`: "",
		`{type: example.com/thing, max: {example.com/a: 1}}`: "",
		`{type: "a b"}`: "spec.limits[0].type: Invalid value",
		`{type: ""}`:    "spec.limits[0].type: Invalid value\nspec.limits[0].type: Invalid value",
		`{type: Node}`:  "spec.limits[0].type: Invalid value",
		`{type: Container, max: {frobs: 1}}`: strings.Repeat("spec.limits[0].max[frobs]: Invalid value\n",
			2) + strings.Repeat("spec.limits[0].default[frobs]: Invalid value\n", 2) +
			"spec.limits[0].defaultRequest[frobs]: Invalid value\nspec.limits[0].defaultRequest[frobs]: Invalid value",
		`{type: Pod, max: {pods: 1}}`:                                                            "spec.limits[0].max[pods]: Invalid value",
		`{type: Pod, default: {cpu: 1}, defaultRequest: {cpu: 1}}`:                               "spec.limits[0].default: Forbidden\nspec.limits[0].defaultRequest: Forbidden",
		`{type: PersistentVolumeClaim}`:                                                          "spec.limits[0].limits: Required value",
		`{type: PersistentVolumeClaim, min: {frobs: 1}, max: {storage: 1}}`:                      "spec.limits[0].min[frobs]: Invalid value",
		`{type: Pod, min: {cpu: 2}, max: {cpu: 1}}`:                                              "spec.limits[0].min[cpu]: Invalid value",
		`{type: Container, min: {cpu: 2}, defaultRequest: {cpu: 1}}`:                             "spec.limits[0].defaultRequest[cpu]: Invalid value",
		`{type: Container, max: {cpu: 1}, default: {cpu: 1}, defaultRequest: {cpu: 2}}`:          "spec.limits[0].defaultRequest[cpu]: Invalid value\nspec.limits[0].defaultRequest[cpu]: Invalid value",
		`{type: Container, min: {cpu: 2}, default: {cpu: 1}, defaultRequest: {cpu: 3}}`:          "spec.limits[0].defaultRequest[cpu]: Invalid value\nspec.limits[0].default[cpu]: Invalid value",
		`{type: Container, max: {cpu: 1}, default: {cpu: 2}, defaultRequest: {cpu: 1}}`:          "spec.limits[0].default[cpu]: Invalid value",
		`{type: Pod, maxLimitRequestRatio: {cpu: 500m}}`:                                         "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value",
		`{type: Pod, min: {cpu: 1}, max: {cpu: 2}, maxLimitRequestRatio: {cpu: 3}}`:              "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value",
		`{type: Container, default: {hugepages-2Mi: 4Mi}, defaultRequest: {hugepages-2Mi: 2Mi}}`: "spec.limits[0].defaultRequest[hugepages-2Mi]: Invalid value",
	} {
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, "spec: {limits: ["+limit+"]}"), nil, ""), want)
	}
	twice := kindtest.Create(t, r, `spec: {limits: [{type: Pod}, {type: Pod}]}`)
	kindtest.WantErrors(t, kindtest.Validate(r, twice, nil, ""), "spec.limits[1].type: Duplicate value")
}

func TestLimitRangeDefaults(t *testing.T) {
	t.Parallel()
	lr := kindtest.Create(t, of(t, "LimitRange"), `spec: {limits: [
		{type: Container, max: {cpu: 4, memory: 4Gi}, min: {cpu: 1, memory: 1Gi, ephemeral-storage: 1Mi}, default: {cpu: 2}},
		{type: Pod, max: {cpu: 4}}]}`).(*corev1.LimitRange)
	c := lr.Spec.Limits[0]
	for _, got := range []struct {
		of         corev1.ResourceList
		name, want string
	}{
		{c.Default, "cpu", "2"}, {c.Default, "memory", "4Gi"}, {c.DefaultRequest, "cpu", "2"},
		{c.DefaultRequest, "memory", "4Gi"}, {c.DefaultRequest, "ephemeral-storage", "1Mi"},
	} {
		if amount := got.of[corev1.ResourceName(got.name)]; amount.String() != got.want {
			t.Errorf("%s: %s, want %s", got.name, amount.String(), got.want)
		}
	}
	if p := lr.Spec.Limits[1]; p.Default != nil || p.DefaultRequest != nil {
		t.Errorf("a limit of pods got defaults: %+v", p)
	}
}

func TestResourceQuotaCreation(t *testing.T) {
	t.Parallel()
	r := of(t, "ResourceQuota")
	const scope, operator, values = "spec.scopeSelector.matchExpressions.scopeName",
		"spec.scopeSelector.matchExpressions.operator", "spec.scopeSelector.matchExpressions.values"
	for spec, want := range map[string]string{
		`{hard: {cpu: 1, requests.memory: 1Gi, pods: 5, count/deployments.apps: 2, requests.nvidia.com/gpu: 1, ` +
			`services.nodeports: 0, gold.storageclass.storage.k8s.io/requests.storage: 1Gi, hugepages-2Mi: 2Mi}}`: "",
		`{hard: {frobs: 1}}`:                                       "spec.hard[frobs]: Invalid value\nspec.hard[frobs]: Invalid value",
		`{hard: {"a b": 1}}`:                                       "spec.hard[a b]: Invalid value\nspec.hard[a b]: Invalid value",
		`{hard: {storage: 1}}`:                                     "spec.hard[storage]: Invalid value",
		`{hard: {cpu: -1}}`:                                        "spec.hard[cpu]: Invalid value",
		`{hard: {pods: 1500m}}`:                                    "spec.hard[pods]: Invalid value",
		`{hard: {count/pods: 500m}}`:                               "spec.hard[count/pods]: Invalid value",
		`{hard: {pods: 1}, scopes: [BestEffort, Terminating]}`:     "",
		`{hard: {pods: 1}, scopes: [Sometimes]}`:                   "spec.scopes: Invalid value",
		`{hard: {cpu: 1}, scopes: [BestEffort]}`:                   "spec.scopes: Invalid value",
		`{hard: {secrets: 1}, scopes: [NotBestEffort]}`:            "spec.scopes: Invalid value",
		`{hard: {pods: 1}, scopes: [BestEffort, NotBestEffort]}`:   "spec.scopes: Invalid value",
		`{hard: {pods: 1}, scopes: [Terminating, NotTerminating]}`: "spec.scopes: Invalid value",
		`{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}}`: "",
		`{hard: {persistentvolumeclaims: 1}, scopeSelector: {matchExpressions: [{scopeName: VolumeAttributesClass, ` +
			`operator: In, values: [a]}]}}`: "",
		`{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: Sometimes, operator: Exists}]}}`:                  scope + ": Invalid value",
		`{hard: {secrets: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: Exists}]}}`:           "spec.scopeSelector.matchExpressions: Invalid value",
		`{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: In, values: [a]}]}}`:        operator + ": Invalid value",
		`{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In}]}}`:                  values + ": Required value",
		`{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: Exists, values: [a]}]}}`: values + ": Invalid value",
		`{hard: {pods: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: Like}]}}`:                operator + ": Invalid value",
	} {
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, "spec: "+spec), nil, ""), want)
	}
}

func TestResourceQuotaUpdate(t *testing.T) {
	t.Parallel()
	r := of(t, "ResourceQuota")
	old := kindtest.Create(t, r, `{spec: {hard: {pods: 1}, scopes: [BestEffort, Terminating]}}`).(*corev1.ResourceQuota)
	old.Status.Hard = old.Spec.Hard
	same := kindtest.Update(t, r, old, `{spec: {hard: {pods: 2}, scopes: [Terminating, BestEffort]}, `+
		`status: {hard: {pods: 9}}}`, "").(*corev1.ResourceQuota)
	kindtest.WantErrors(t, kindtest.Validate(r, same, old, ""))
	if same.Status.Hard.Pods().Value() != 1 {
		t.Errorf("a write of the spec changed the status: %+v", same.Status)
	}
	other := kindtest.Update(t, r, old, `{spec: {hard: {pods: 2}, scopes: [Terminating]}}`, "")
	kindtest.WantErrors(t, kindtest.Validate(r, other, old, ""), "spec.scopes: Invalid value")
	status := kindtest.Update(t, r, old, `{spec: {hard: {pods: 7}}, status: {hard: {frobs: 1}, used: {pods: -1}}}`,
		"status").(*corev1.ResourceQuota)
	kindtest.WantErrors(t, kindtest.Validate(r, status, old, "status"), "status.hard[frobs]: Invalid value",
		"status.hard[frobs]: Invalid value", "status.used[pods]: Invalid value")
	if status.Spec.Hard.Pods().Value() != 1 {
		t.Errorf("a write of the status changed the spec: %+v", status.Spec)
	}
}

func TestOnlyTheStatusOfAQuotaIsVolatile(t *testing.T) {
	t.Parallel()
	r := of(t, "ResourceQuota")
	old := kindtest.Create(t, r, `{spec: {hard: {pods: 1}}}`).(*corev1.ResourceQuota)
	counted, changed := old.DeepCopy(), old.DeepCopy()
	counted.Status.Hard, counted.ResourceVersion = old.Spec.Hard, "2"
	changed.Labels = map[string]string{"a": "b"}
	if r.Durability(old, counted) != store.Volatile || r.Durability(old, changed) != store.Durable || r.Durability(nil,
		old) != store.Durable {
		t.Error("a change of only the status is durable, or another change is not")
	}
}

func TestRuntimeClass(t *testing.T) {
	t.Parallel()
	r := of(t, "RuntimeClass")
	for obj, want := range map[string]string{
		`{handler: runc}`:  "",
		`{}`:               "handler: Invalid value",
		`{handler: Run_C}`: "handler: Invalid value",
		`{handler: a, overhead: {podFixed: {cpu: -1, frobs: 1}}}`:                               "overhead.limits[cpu]: Invalid value\noverhead.limits[frobs]: Invalid value\noverhead.limits[frobs]: Invalid value",
		`{handler: a, scheduling: {nodeSelector: {"a b": c}}}`:                                  "scheduling.nodeSelector: Invalid value",
		`{handler: a, scheduling: {tolerations: [{key: a}, {key: a}]}}`:                         "scheduling.tolerations[1]: Duplicate value",
		`{handler: a, scheduling: {tolerations: [{key: a, tolerationSeconds: 3}]}}`:             "scheduling.tolerations[0].effect: Invalid value",
		`{handler: a, scheduling: {tolerations: [{operator: Exists, value: x, effect: What}]}}`: "scheduling.tolerations[0].operator: Invalid value\nscheduling.tolerations[0].effect: Unsupported value",
	} {
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, obj), nil, ""), want)
	}
	old := kindtest.Create(t, r, `{handler: a}`)
	kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, `{handler: b}`), old, ""), "handler: Invalid value")
}

func TestColumns(t *testing.T) {
	t.Parallel()
	const meta = "metadata: {name: x, creationTimestamp: '2026-01-01T11:00:00Z'}\n"
	for _, c := range []struct{ kind, headings, obj, row string }{
		{"LimitRange", "Name|Created At / ", meta, "x|2026-01-01T11:00:00Z"},
		{"ResourceQuota", "Name|Request|Limit|Age / ",
			meta + "status: {hard: {pods: 5, requests.cpu: 2, limits.cpu: 4, limits.memory: 1Gi}, used: {pods: 1, " +
				"requests.cpu: 500m, limits.cpu: 1}}",
			"x|pods: 1/5, requests.cpu: 500m/2|limits.cpu: 1/4, limits.memory: 0/1Gi|60m"},
		{"RuntimeClass", "Name|Handler|Age / ", meta + "handler: runc", "x|runc|60m"},
	} {
		r := of(t, c.kind)
		if got := kindtest.Headings(r.Columns); got != c.headings {
			t.Errorf("%s: %s", c.kind, got)
		}
		if got := kindtest.Row(t, r.Columns, read(t, r, c.obj)); got != c.row {
			t.Errorf("%s: got %s, want %s", c.kind, got, c.row)
		}
	}
}

// read decodes a stored object, without Prepare and defaults.
func read(t *testing.T, r kind.Resource, text string) kind.Object {
	t.Helper()
	obj := r.New()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}
