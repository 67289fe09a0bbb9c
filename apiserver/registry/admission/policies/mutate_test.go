package policies_test

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
)

// mutating creates a policy and a binding from YAML. The default rules match all writes of ConfigMaps.
func (c *cluster) mutating(name, spec, binding string) {
	c.t.Helper()
	p := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name + "-binding"}}
	read(c.t, spec, &p.Spec)
	read(c.t, binding, &b.Spec)
	if p.Spec.MatchConstraints == nil {
		read(c.t, `resourceRules: [{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]`,
			&p.Spec.MatchConstraints)
	}
	if p.Spec.ReinvocationPolicy == "" {
		p.Spec.ReinvocationPolicy = admissionv1.NeverReinvocationPolicy
	}
	b.Spec.PolicyName = name
	for _, obj := range []client.Object{p, b} {
		if _, err := c.Create(c.t.Context(), obj); err != nil {
			c.t.Fatalf("%s: %v", obj.GetName(), err)
		}
	}
}

// forget deletes a mutating policy and its binding.
func (c *cluster) forget(name string) {
	c.t.Helper()
	for _, ref := range []client.Ref{{Resource: client.MutatingAdmissionPolicyBindings, Name: name + "-binding"},
		{Resource: client.MutatingAdmissionPolicies, Name: name}} {
		if _, err := c.Delete(c.t.Context(), ref, metav1.DeleteOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// apply and patch return a mutation with an expression.
func apply(expression string) string {
	return fmt.Sprintf("{patchType: ApplyConfiguration, applyConfiguration: {expression: %q}}", expression)
}

func patch(expression string) string {
	return fmt.Sprintf("{patchType: JSONPatch, jsonPatch: {expression: %q}}", expression)
}

// TestMutations creates a ConfigMap with the data a: b under a policy.
func TestMutations(t *testing.T) {
	t.Parallel()
	const denied = `policy 'p' with binding 'p-binding' denied request: `
	k := open(t)
	if _, err := k.Create(t.Context(), config("params", map[string]string{"suffix": "!"})); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, policy, binding string
		code                  int32
		err                   string
		want                  map[string]string // the data; nil: a: b
	}{
		{"an apply configuration", `mutations: [` + apply(`Object{data: {"c": object.data.a + "!"}}`) + `]`, "", 0, "",
			map[string]string{"a": "b", "c": "b!"}},
		{"a patch", `mutations: [` +
			patch(`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"x/y": "1"}}, JSONPatch{op: "add", `+
				`path: "/metadata/annotations/" + jsonpatch.escapeKey("c/d"), value: "2"}, JSONPatch{op: "add", `+
				`path: "/data/e", value: "e"}, JSONPatch{op: "remove", path: "/data/a"}]`) + `]`, "", 0, "",
			map[string]string{"e": "e"}},
		{"one after the other", `mutations: [` + apply(`Object{data: {"a": "c"}}`) + `, ` +
			patch(`[JSONPatch{op: "add", path: "/data/d", value: object.data.a}]`) + `]`, "", 0, "",
			map[string]string{"a": "c", "d": "c"}},
		{"a test that fails", `mutations: [` +
			patch(`[JSONPatch{op: "test", path: "/data/a", value: "x"}, JSONPatch{op: "remove", path: "/data/a"}]`) + `]`, "", 0,
			"", nil},
		{"a path that is missing", `mutations: [` + patch(`[JSONPatch{op: "remove", path: "/data/x"}]`) + `]`, "", 403,
			denied + "JSON Patch: ", nil},
		{"a path that is missing, ignored", `{failurePolicy: Ignore, mutations: [` +
			patch(`[JSONPatch{op: "remove", path: "/data/x"}]`) + `]}`, "", 0, "", nil},
		{"an unknown field by a patch", `mutations: [` + patch(`[JSONPatch{op: "add", path: "/odd", value: 1}]`) + `]`, "",
			500, `unknown field "odd"`, nil},
		{"an unknown field by an apply configuration", `mutations: [` + apply(`Object{odd: 1}`) + `]`, "", 403, denied +
			"error applying patch: failed to convert patch object to typed object: .odd: field not declared in schema", nil},
		{"a field of another type", `mutations: [` + apply(`Object{data: Object.odd{a: "b"}}`) + `]`, "", 403, denied +
			"type mismatch", nil},
		{"an atomic list", `mutations: [` +
			apply(`Object{metadata: Object.metadata{managedFields: [Object.metadata.managedFields{manager: "x"}]}}`) + `]`, "",
			403, denied +
				"error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, " +
				"maps or structs: .metadata.managedFields", nil},
		{"an error of an expression", `mutations: [` + apply(`Object{data: {"c": object.data.none}}`) + `]`, "", 403, denied +
			"expression 'Object{data: {\"c\": object.data.none}}' resulted in error: no such key: none", nil},
		{"the kind", `mutations: [` + patch(`[JSONPatch{op: "replace", path: "/kind", value: "Secret"}]`) + `]`, "", 500,
			"admission changed the kind", nil},
		{"what only the server sets", `mutations: [` +
			patch(`[JSONPatch{op: "add", path: "/metadata/uid", value: "x"}, JSONPatch{op: "add", `+
				`path: "/metadata/generation", value: 7}]`) + `]`, "", 0, "", nil},
		{"an expensive expression", `mutations: [` +
			apply(`Object{data: {"c": [1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, `+
				`[1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, `+
				`[1,2,3,4,5,6,7,8,9,10].all(f, [1,2,3,4,5,6,7,8,9,10].all(g, a+b+c+d+e+f+g > 0))))))) ? "x" : "y"}}`) + `]`, "",
			403, "cost", nil},
		{"variables and the user", `{variables: [{name: who, expression: request.userInfo.username}], mutations: [` +
			apply(`Object{data: {"by": variables.who}}`) + `]}`, "", 0, "", map[string]string{"a": "b", "by": "jane"}},
		{"a condition that is met", `{matchConditions: [{name: x, expression: "object.data.a == 'b'"}], mutations: [` +
			apply(`Object{data: {"a": "c"}}`) + `]}`, "", 0, "", map[string]string{"a": "c"}},
		{"a condition that is not met", `{matchConditions: [{name: x, expression: "object.data.a == 'c'"}], mutations: [` +
			apply(`Object{data: {"a": "c"}}`) + `]}`, "", 0, "", nil},
		{"a condition that fails", `{matchConditions: [{name: x, expression: "object.data.none == 'c'"}], mutations: [` +
			apply(`Object{data: {"a": "c"}}`) + `]}`, "", 403, denied + "expression 'object.data.none == 'c''", nil},
		{"a binding for other objects", `mutations: [` + apply(`Object{data: {"a": "c"}}`) + `]`,
			`matchResources: {objectSelector: {matchLabels: {of: other}}}`, 0, "", nil},
		{"parameters, one after the other", `{paramKind: {apiVersion: v1, kind: ConfigMap}, mutations: [` +
			apply(`Object{data: {"a": object.data.a + params.data.suffix}}`) + `]}`,
			`paramRef: {selector: {matchLabels: {of: test}}, namespace: default, parameterNotFoundAction: Deny}`, 0, "",
			map[string]string{"a": "b!"}},
		{"no such parameters", `{paramKind: {apiVersion: v1, kind: ConfigMap}, mutations: [` + apply(`Object{}`) + `]}`,
			`paramRef: {name: none, parameterNotFoundAction: Deny}`,
			403, denied + "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
			nil},
		{"a new object has no uid yet", `mutations: [` +
			apply(`Object{data: {"uid": string(has(object.metadata.uid)), `+
				`"created": string(has(object.metadata.creationTimestamp) && object.metadata.creationTimestamp != null)}}`) + `]`,
			"", 0, "",
			map[string]string{"a": "b", "uid": "false", "created": "false"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k.mutating("p", c.policy, c.binding)
			defer k.forget("p")
			obj, err := k.Create(registry.DryRun(k.ctx), config("c", map[string]string{"a": "b"}))
			wantStatus(t, err, c.code, c.err)
			if err != nil {
				return
			}
			want := c.want
			if want == nil {
				want = map[string]string{"a": "b"}
			}
			is := obj.(*corev1.ConfigMap)
			if !equality.Semantic.DeepEqual(is.Data, want) || is.UID == "x" || is.Generation != 0 || is.Name != "c" {
				t.Errorf("%v, want the data %v", is, want)
			}
		})
	}
}

// Policies run in the order of their names; with reinvocationPolicy IfNeeded, a policy also sees the changes of later
// ones.
func TestReinvocation(t *testing.T) {
	t.Parallel()
	for policy, want := range map[admissionv1.ReinvocationPolicyType]string{
		admissionv1.NeverReinvocationPolicy: "x a b", admissionv1.IfNeededReinvocationPolicy: "x a b a",
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			k := open(t)
			k.mutating("b", `mutations: [`+apply(`Object{data: {"a": object.data.a + " b"}}`)+`]`, "")
			k.mutating("a", `{reinvocationPolicy: `+string(policy)+`, mutations: [`+
				apply(`Object{data: {"a": object.data.a + " a"}}`)+`]}`, "")
			obj, err := k.Create(k.ctx, config("c", map[string]string{"a": "x"}))
			if err != nil || obj.(*corev1.ConfigMap).Data["a"] != want {
				t.Errorf("%v, %v, want %q", obj, err, want)
			}
		})
	}
}

// Policies mutate updates, other versions, subresources and pods with their defaults, but not deletions.
func TestMutatedRequests(t *testing.T) {
	t.Parallel()
	k := open(t)
	k.mutating("scaler", `{matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: [autoscaling], apiVersions: [v2], resources: ["*"]}]},
	  mutations: [`+apply(`Object{spec: Object.spec{maxReplicas: object.spec.maxReplicas + 1}}`)+`]}`, "")
	k.mutating("scale", `{matchConstraints: {resourceRules: [{operations: [UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments/scale]}]},
	  mutations: [`+patch(`[JSONPatch{op: "replace", path: "/spec/replicas", value: oldObject.spec.replicas + 1}]`)+`]}`, "")
	k.mutating("sidecar", `{matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]},
	  mutations: [`+apply(`Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "side", image: "side", restartPolicy: "Always"}]}}`)+`]}`, "")
	scaler := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	read(t, `{maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}`, &scaler.Spec)
	obj, err := k.Create(k.ctx, scaler)
	if err != nil || obj.(*autoscalingv1.HorizontalPodAutoscaler).Spec.MaxReplicas != 10 {
		t.Errorf("%v, %v, want 10 replicas", obj, err)
	}

	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	read(t, `{replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, `+
		`spec: {containers: [{name: c, image: i}]}}}`, &web.Spec)
	if _, err := k.Create(k.ctx, web); err != nil {
		t.Fatal(err)
	}
	obj, err = k.Update(k.ctx,
		client.Ref{Resource: client.Deployments, Namespace: "default", Name: "web", Subresource: "scale"},
		func(cur client.Object) (client.Object, error) {
			next := cur.DeepCopyObject().(*autoscalingv1.Scale)
			next.Spec.Replicas = 7
			return next, nil
		})
	if err != nil || obj.(*autoscalingv1.Scale).Spec.Replicas != 2 {
		t.Errorf("%v, %v, want 2 replicas", obj, err)
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "p-"}}
	read(t, `{containers: [{name: c, image: i}]}`, &pod.Spec)
	obj, err = k.Create(k.ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	made := obj.(*corev1.Pod)
	if len(made.Spec.InitContainers) != 1 || made.Spec.InitContainers[0].TerminationMessagePath == "" ||
		len(made.Name) != len("p-")+5 {
		t.Errorf("%s with %+v, want a sidecar with its defaults", made.Name, made.Spec.InitContainers)
	}
	if _, err := k.Delete(k.ctx, client.RefOf(made), metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// The result of a policy is validated.
func TestMutatedObjectIsValidated(t *testing.T) {
	t.Parallel()
	k := open(t)
	k.mutating("p", `mutations: [`+patch(`[JSONPatch{op: "add", path: "/metadata/labels", value: {"a b": "c"}}]`)+`]`, "")
	if _, err := k.Create(k.ctx, config("c", nil)); !apierrors.IsInvalid(err) {
		t.Errorf("%v, want metadata.labels: Invalid value", err)
	}
}
