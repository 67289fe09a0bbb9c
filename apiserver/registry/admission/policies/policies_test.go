package policies_test

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// cluster is a registry with the warnings that a user gets.
type cluster struct {
	*registry.Registry
	t        *testing.T
	ctx      context.Context
	warnings []string
}

func open(t *testing.T) *cluster {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	c := &cluster{t: t, Registry: registry.New(s, resources, registry.Config{})}
	if err := c.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ctx = registry.WithWarnings(auth.WithUser(t.Context(), auth.User{Name: "jane", Groups: []string{"developers"}}),
		func(text string) { c.warnings = append(c.warnings, text) })
	return c
}

// policy creates a policy and a binding from YAML. The default rules match all writes of ConfigMaps; the default action
// of the binding is Deny.
func (c *cluster) policy(name, spec, binding string) {
	c.t.Helper()
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name + "-binding"}}
	read(c.t, spec, &p.Spec)
	read(c.t, binding, &b.Spec)
	if p.Spec.MatchConstraints == nil {
		read(c.t, `resourceRules: [{operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: [configmaps]}]`,
			&p.Spec.MatchConstraints)
	}
	b.Spec.PolicyName = name
	if b.Spec.ValidationActions == nil {
		b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	}
	for _, obj := range []client.Object{p, b} {
		if _, err := c.Create(c.t.Context(), obj); err != nil {
			c.t.Fatalf("%s: %v", obj.GetName(), err)
		}
	}
}

func read(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func config(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		Labels: map[string]string{"of": "test"}}, Data: data}
}

// TestDecisions creates the ConfigMap c with the data a: b under a policy.
func TestDecisions(t *testing.T) {
	t.Parallel()
	const denied = `configmaps "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: `
	for _, c := range []struct {
		name, policy, binding string
		code                  int32
		want                  string // of the error
		warning               string
	}{
		{"true", `validations: [{expression: "object.data.a == 'b'"}]`, ``, 0, "", ""},
		{"false", `validations: [{expression: "object.data.a == 'c'"}]`, ``, 422, denied +
			`failed expression: object.data.a == 'c'`, ""},
		{"a message", `validations: [{expression: "false", message: " not this "}]`, ``, 422, denied + "not this", ""},
		{"a message expression",
			`validations: [{expression: "false", message: m, messageExpression: "'no ' + object.data.a"}]`, ``, 422, denied +
				"no b", ""},
		{"a blank message expression", `validations: [{expression: "false", message: m, messageExpression: "' '"}]`, ``,
			422, denied + "m", ""},
		{"a message expression of two lines",
			`validations: [{expression: "false", message: m, messageExpression: "'a\\nb'"}]`, ``,
			422, denied + "m", ""},
		{"a message expression that fails",
			`validations: [{expression: "false", message: m, messageExpression: "string(object.data.none)"}]`, ``, 422, denied +
				"m", ""},
		{"a reason", `validations: [{expression: "false", reason: Unauthorized}]`, ``, 401, denied +
			"failed expression: false", ""},
		{"the reason Forbidden", `validations: [{expression: "false", reason: Forbidden}]`, ``, 403, denied, ""},
		{"the reason of a size", `validations: [{expression: "false", reason: RequestEntityTooLarge}]`, ``, 413, denied, ""},
		{"the first of two", `validations: [{expression: "false", message: one}, {expression: "false", message: two}]`, ``,
			422, denied + "one", ""},
		{"an error", `validations: [{expression: "object.data.none == ''"}]`, ``, 422, denied +
			"expression 'object.data.none == ''' resulted in error: no such key: none", ""},
		{"an error that is ignored", `{failurePolicy: Ignore, validations: [{expression: "object.data.none == ''"}]}`, ``, 0,
			"", ""},
		{"a refusal is not ignored", `{failurePolicy: Ignore, validations: [{expression: "false"}]}`, ``, 422, denied, ""},
		{"a warning", `validations: [{expression: "false", message: m}]`, `validationActions: [Warn, Audit]`, 0, "",
			"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': m"},
		{"an error as a warning", `validations: [{expression: "object.data.none == ''"}]`, `validationActions: [Warn]`, 0, "",
			"no such key: none"},
		{"variables",
			`{variables: [{name: a, expression: object.data.a}, {name: aa, expression: variables.a + variables.a}], ` +
				`validations: [{expression: "variables.aa == 'bb'"}, {expression: "variables.aa == 'b'", ` +
				`messageExpression: string(variables.aa)}]}`, ``,
			422, denied + "bb", ""},
		{"a condition that is met",
			`{matchConditions: [{name: x, expression: "object.metadata.name == 'c'"}], validations: [{expression: "false"}]}`,
			``, 422, denied, ""},
		{"a condition that is not met",
			`{matchConditions: [{name: x, expression: "object.metadata.name == 'd'"}], validations: [{expression: "false"}]}`,
			``, 0, "", ""},
		{"a condition that fails",
			`{matchConditions: [{name: x, expression: "object.data.none == ''"}], validations: [{expression: "true"}]}`, ``, 422,
			denied + "expression 'object.data.none == ''' resulted in error", ""},
		{"the user", `validations: [{expression: "request.userInfo.username == 'jane' && request.operation == 'CREATE' && ` +
			`oldObject == null"}]`, ``, 0, "", ""},
		{"the namespace",
			`validations: [{expression: "namespaceObject.metadata.name == 'default' && request.namespace == 'default'"}]`, ``, 0,
			"", ""},
		{"the authorizer", `validations: [{expression: "authorizer.group('').resource('pods').check('get').allowed()"}]`, ``,
			0, "", ""},
		{"an expensive expression",
			`validations: [{expression: "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, ` +
				`[1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, ` +
				`[1,2,3,4,5,6,7,8,9,10].all(f, [1,2,3,4,5,6,7,8,9,10].all(g, a+b+c+d+e+f+g > 0)))))))"}]`, ``,
			422, "cost", ""},
		{"an annotation that fails", `auditAnnotations: [{key: a, valueExpression: "string(object.data.none)"}]`,
			`validationActions: [Audit]`, 422, denied + "expression 'string(object.data.none)' resulted in error", ""},
		{"an annotation that may fail",
			`{failurePolicy: Ignore, auditAnnotations: [{key: a, valueExpression: "string(object.data.none)"}]}`, ``, 0, "", ""},
		{"a binding for other objects", `validations: [{expression: "false"}]`,
			`matchResources: {objectSelector: {matchLabels: {of: other}}}`, 0, "", ""},
		{"a binding for these objects", `validations: [{expression: "false"}]`,
			`matchResources: {objectSelector: {matchLabels: {of: test}}}`, 422, denied, ""},
		{"a binding for another namespace", `validations: [{expression: "false"}]`,
			`matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}}`, 0, "", ""},
		{"a binding with rules", `validations: [{expression: "false"}]`,
			`matchResources: {resourceRules: [{operations: [UPDATE], apiGroups: [""], apiVersions: [v1], ` +
				`resources: [configmaps]}]}`, 0, "", ""},
		{"an excluded name",
			`{matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], ` +
				`resources: ["*"]}], excludeResourceRules: [{resourceNames: [c], operations: ["*"], apiGroups: [""], ` +
				`apiVersions: [v1], resources: [configmaps]}]}, validations: [{expression: "false"}]}`, ``, 0, "", ""},
		{"another name",
			`{matchConstraints: {resourceRules: [{resourceNames: [d], operations: ["*"], apiGroups: [""], apiVersions: [v1], ` +
				`resources: [configmaps]}]}, validations: [{expression: "false"}]}`, ``, 0, "", ""},
		{"this name",
			`{matchConstraints: {resourceRules: [{resourceNames: [d, c], operations: ["*"], apiGroups: [""], ` +
				`apiVersions: [v1], resources: [configmaps]}]}, validations: [{expression: "false"}]}`, ``, 422, denied, ""},
		{"no parameters in the binding",
			`{paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "params == null"}]}`, ``, 0, "", ""},
		{"parameters",
			`{paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "params.data.allowed == object.data.a ` +
				`&& params.kind == 'ConfigMap'"}]}`,
			`paramRef: {name: params, parameterNotFoundAction: Deny}`, 0, "", ""},
		{"parameters that deny",
			`{paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "params.data.allowed != ` +
				`object.data.a", messageExpression: "'not ' + params.data.allowed"}]}`,
			`paramRef: {selector: {matchLabels: {of: test}}, namespace: default, parameterNotFoundAction: Deny}`, 422, denied +
				"not b", ""},
		{"no such parameters", `{paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "true"}]}`,
			`paramRef: {name: none, parameterNotFoundAction: Deny}`, 422,
			denied + "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction", ""},
		{"no such parameters, which is allowed",
			`{paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "false"}]}`,
			`paramRef: {name: none, parameterNotFoundAction: Allow}`, 0, "", ""},
		{"parameters of an unknown kind",
			`{paramKind: {apiVersion: example.com/v1, kind: Limit}, validations: [{expression: "true"}]}`,
			`paramRef: {name: none, parameterNotFoundAction: Allow}`, 422,
			denied + "failed to configure binding: paramKind kind `example.com/v1, Kind=Limit` not known", ""},
		{"an ignored unknown kind",
			`{failurePolicy: Ignore, paramKind: {apiVersion: example.com/v1, kind: Limit}, validations: [{expression: "true"}]}`,
			`paramRef: {name: none, parameterNotFoundAction: Allow}`, 0, "", ""},
		{"a namespace for cluster-wide parameters",
			`{paramKind: {apiVersion: v1, kind: Node}, validations: [{expression: "true"}]}`,
			`paramRef: {name: none, namespace: default, parameterNotFoundAction: Allow}`, 422,
			denied + "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
			""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := open(t)
			if _, err := k.Create(t.Context(), config("params", map[string]string{"allowed": "b"})); err != nil {
				t.Fatal(err)
			}
			k.policy("p", c.policy, c.binding)
			_, err := k.Create(k.ctx, config("c", map[string]string{"a": "b"}))
			wantStatus(t, err, c.code, c.want)
			if got := strings.Join(k.warnings, "\n"); !strings.Contains(got, c.warning) || c.warning == "" && got != "" {
				t.Errorf("warnings %q, want %q", got, c.warning)
			}
		})
	}
}

func wantStatus(t *testing.T, err error, code int32, text string) {
	t.Helper()
	if code == 0 {
		if err != nil {
			t.Errorf("error %v, want none", err)
		}
		return
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("error %v, want %d %q", err, code, text)
	}
	if got := status.Status(); got.Code != code || !strings.Contains(got.Message, text) {
		t.Errorf("error %d %q, want %d %q", got.Code, got.Message, code, text)
	}
}

// Policies match writes of subresources and other versions, but not of objects that configure admission.
func TestMatching(t *testing.T) {
	t.Parallel()
	k := open(t)
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	read(t, `{replicas: 1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, `+
		`spec: {containers: [{name: c, image: i}]}}}`, &web.Spec)
	if _, err := k.Create(k.ctx, web); err != nil {
		t.Fatal(err)
	}
	scaler := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	read(t, `{maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}`, &scaler.Spec)

	k.policy("scale", `{matchConstraints: {resourceRules: [{operations: [UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments/scale]}]},
	  validations: [{expression: "object.spec.replicas <= 3 && oldObject.spec.replicas == 1 && object.kind == 'Scale'"}]}`, ``)
	k.policy("scaler", `{matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: [autoscaling], apiVersions: [v2], resources: ["*"]}]},
	  validations: [{expression: "object.apiVersion == 'autoscaling/v1'", messageExpression: "object.apiVersion + ' for ' + request.requestResource.version"}]}`, ``)
	k.policy("namespaces", `{matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [namespaces]}]},
	  validations: [{expression: "namespaceObject == null && object.metadata.name != 'bad'"}]}`, ``)
	k.policy("deletions", `{matchConstraints: {resourceRules: [{operations: [DELETE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]},
	  validations: [{expression: "object == null && oldObject.metadata.name != 'web'", message: stays}]}`, ``)
	scale := func(replicas int32) error {
		_, err := k.Update(k.ctx,
			client.Ref{Resource: client.Deployments, Namespace: "default", Name: "web", Subresource: "scale"},
			func(cur client.Object) (client.Object, error) {
				next := cur.DeepCopyObject().(*autoscalingv1.Scale)
				next.Spec.Replicas = replicas
				return next, nil
			})
		return err
	}
	wantStatus(t, scale(4), 422, "ValidatingAdmissionPolicy 'scale'")
	wantStatus(t, scale(3), 0, "")
	_, err := k.Create(k.ctx, scaler)
	wantStatus(t, err, 422, "autoscaling/v2 for v1")
	for name, code := range map[string]int32{"bad": 422, "good": 0} {
		_, err = k.Create(k.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		wantStatus(t, err, code, "ValidatingAdmissionPolicy 'namespaces'")
	}
	_, err = k.Delete(k.ctx, client.RefOf(web), metav1.DeleteOptions{})
	wantStatus(t, err, 422, "denied request: stays")

	k.policy("all",
		`{matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], `+
			`resources: ["*/*"]}]}, validations: [{expression: "false", message: "nothing at all"}]}`, ``)
	_, err = k.Create(k.ctx, config("c", nil))
	wantStatus(t, err, 422, "nothing at all")
	_, err = k.Delete(k.ctx, client.Ref{Resource: client.ValidatingAdmissionPolicyBindings, Name: "all-binding"},
		metav1.DeleteOptions{})
	wantStatus(t, err, 0, "")
	_, err = k.Create(k.ctx, config("c", nil))
	wantStatus(t, err, 0, "")
}

// A changed policy applies to the next write, and its status has the new generation.
func TestChanges(t *testing.T) {
	t.Parallel()
	k := open(t)
	k.policy("p", `validations: [{expression: "false"}]`, ``)
	ref := client.Ref{Resource: client.ValidatingAdmissionPolicies, Name: "p"}
	_, err := k.Update(k.ctx, ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*admissionv1.ValidatingAdmissionPolicy)
		next.Spec.Validations[0].Expression = "true"
		return next, nil
	})
	wantStatus(t, err, 0, "")
	_, err = k.Create(k.ctx, config("c", nil))
	wantStatus(t, err, 0, "")
	p, err := client.Get[*admissionv1.ValidatingAdmissionPolicy](k.ctx, k, "", "p")
	if err != nil || p.Generation != 2 || p.Status.ObservedGeneration != 2 {
		t.Errorf("generation %d, observed %d, %v", p.Generation, p.Status.ObservedGeneration, err)
	}
}
