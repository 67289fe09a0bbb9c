package admissionregistration_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/admissionregistration"
	"monopod/apiserver/registry/definitions"
	"monopod/store"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	const (
		match = `matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: [apps], apiVersions: [v1], ` +
			`resources: [deployments]}]}, `
		two = `matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: [apps, ""], apiVersions: [v1], ` +
			`resources: [deployments, pods]}]}, `
		all = `matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], ` +
			`resources: ["*"]}]}, `
		params = `paramKind: {apiVersion: v1, kind: ConfigMap}, `
	)
	set, err := definitions.Read()
	if err != nil {
		t.Fatal(err)
	}
	prepare := admissionregistration.Prepare(func(_, _ client.Object, _ string) {}, admissionregistration.Config{
		Served: registry.Resources, Definitions: func() (*definitions.Set, error) { return set, nil },
	})
	for _, c := range []struct {
		spec string
		want []string // field and a part of the text, for each warning
	}{
		{match + `validations: [{expression: "object.spec.replicas < 3 && oldObject.metadata.name != '' && ` +
			`request.operation == 'CREATE' && authorizer.path('/x').check('get').allowed()"}]`, nil},
		{match + `validations: [{expression: "object.replicas < 3"}]`,
			[]string{"spec.validations[0].expression",
				"apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'"}},
		{match + `validations: [{expression: "object.spec.replicas == 'x'"}]`,
			[]string{"spec.validations[0].expression", "found no matching overload for '_==_' applied to '(int, string)'"}},
		{match + `validations: [{expression: "true"}, {expression: "true", messageExpression: "string(object.name)"}]`,
			[]string{"spec.validations[1].messageExpression", "undefined field 'name'"}},
		{match + `validations: [{expression: "object.spec.template.spec.containers.all(c, c.img != '')"}]`,
			[]string{"spec.validations[0].expression", "undefined field 'img'"}},
		{match + `variables: [{name: r, expression: "object.spec.replicas"}], ` +
			`validations: [{expression: "variables.r > 1"}, {expression: "variables.r > 'x'"}]`,
			[]string{"spec.validations[1].expression", "no matching overload"}},
		{two + `validations: [{expression: "object.spec.replicas < 3"}]`,
			[]string{"spec.validations[0].expression", "/v1, Kind=Pod: ERROR"}},
		{all + `validations: [{expression: "object.nothing == 1"}]`, nil},
		{match + params + `validations: [{expression: "params.data.x == 'y'"}, {expression: "params.date.x == 'y'"}]`,
			[]string{"spec.validations[1].expression", "undefined field 'date'"}},
		{strings.Replace(match, "[deployments]", `["*", deployments/scale]`, 1) +
			`validations: [{expression: "object.nothing == 1"}]`, nil},
	} {
		p := &admissionv1.ValidatingAdmissionPolicy{}
		if err := yaml.UnmarshalStrict([]byte("{"+c.spec+"}"), &p.Spec); err != nil {
			t.Fatal(err)
		}
		prepare(p, nil, "")
		if p.Status.TypeChecking == nil || len(p.Status.TypeChecking.ExpressionWarnings) != len(c.want)/2 {
			t.Errorf("%s: %+v, want %q", c.spec, p.Status.TypeChecking, c.want)
			continue
		}
		for i, w := range p.Status.TypeChecking.ExpressionWarnings {
			if w.FieldRef != c.want[2*i] || !strings.Contains(w.Warning, c.want[2*i+1]) {
				t.Errorf("%s: %+v, want %q", c.spec, w, c.want)
			}
		}
	}
}

// The status comes with the write of a spec, and stays otherwise.
func TestStatus(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict(
		[]byte(`{matchConstraints: {resourceRules: [{operations: ["*"], apiGroups: [""], apiVersions: [v1], `+
			`resources: [pods]}]}, validations: [{expression: "object.nothing == 1"}]}`), &p.Spec); err != nil {
		t.Fatal(err)
	}
	want := func(obj client.Object, err error, warnings int, generation int64) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if s := obj.(*admissionv1.ValidatingAdmissionPolicy).Status; s.TypeChecking == nil ||
			len(s.TypeChecking.ExpressionWarnings) != warnings || s.ObservedGeneration != generation {
			t.Errorf("status %+v, want %d warnings about generation %d", s, warnings, generation)
		}
	}
	obj, err := r.Create(t.Context(), p)
	want(obj, err, 1, 1)
	change := func(do func(p *admissionv1.ValidatingAdmissionPolicy)) (client.Object, error) {
		return r.Update(t.Context(), client.Ref{Resource: client.ValidatingAdmissionPolicies, Name: "p"},
			func(cur client.Object) (client.Object, error) {
				next := cur.DeepCopyObject().(*admissionv1.ValidatingAdmissionPolicy)
				do(next)
				return next, nil
			})
	}
	obj, err = change(func(p *admissionv1.ValidatingAdmissionPolicy) { p.Labels = map[string]string{"a": "b"} })
	want(obj, err, 1, 1)
	obj, err = change(func(p *admissionv1.ValidatingAdmissionPolicy) {
		p.Spec.Validations[0].Expression = "object.spec.hostNetwork == true"
	})
	want(obj, err, 0, 2)
}
