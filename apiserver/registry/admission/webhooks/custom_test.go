package webhooks_test

import (
	"encoding/json"
	"strings"
	"testing"

	reviewv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/registry"
)

const widgets = `
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [size], properties: {size: {type: integer, maximum: 9}}}}}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [size], properties: {size: {type: integer, maximum: 9}}}}}}}
`

// A webhook completes a custom object before it is validated, and sees it in the version of its rule.
func TestCustomKind(t *testing.T) {
	t.Parallel()
	k := open(t, nil)
	def := &crd.Definition{}
	if err := yaml.Unmarshal([]byte(widgets), def); err != nil {
		t.Fatal(err)
	}
	k.create(t.Context(), def)
	_, err := client.Update(t.Context(), k, def, "status", func(d *crd.Definition) error {
		d.Status.AcceptedNames = d.Spec.Names
		d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.NamesAccepted,
			Status: apiextensionsv1.ConditionTrue}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registry.NewDefinitions(k.Registry).Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Create(k.ctx, widget(t, k, "none", "")); err == nil {
		t.Error("a widget without a size passed")
	}
	size := "3"
	k.mutating("m",
		hook("m.example.com", serve(t, reviewing(t, func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
			if r.Kind.Version != "v2" || r.RequestKind.Version != "v1" ||
				!strings.Contains(string(r.Object.Raw), `"example.com/v2"`) {
				t.Errorf("asked about %v, requested %v: %s", r.Kind, r.RequestKind, r.Object.Raw)
			}
			return patch(`[{"op":"add","path":"/spec/size","value":` + size +
				`},{"op":"add","path":"/metadata/labels","value":{"by":"hook"}}]`)
		})), on("example.com", "v2", "widgets")))
	made := k.create(k.ctx, widget(t, k, "a", ""))
	data, err := json.Marshal(made)
	if err != nil || !strings.Contains(string(data), `"spec":{"size":3}`) ||
		!strings.Contains(string(data), `"example.com/v1"`) || made.GetLabels()["by"] != "hook" {
		t.Errorf("stored %s, %v", data, err)
	}
	size = "10"
	_, err = k.Create(k.ctx, widget(t, k, "b", `"size":1`))
	wantStatus(t, err, 422, "spec.size: Invalid value: 10")
}

func widget(t *testing.T, k *cluster, name, spec string) client.Object {
	t.Helper()
	res, err := k.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
	if err != nil {
		t.Fatal(err)
	}
	obj := res.New()
	text := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"default","name":"` + name +
		`"},"spec":{` + spec + `}}`
	if _, err := obj.(interface {
		UnmarshalStrict(data []byte, admit func(bytes int) error) ([]error, error)
	}).UnmarshalStrict([]byte(text), func(int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return obj
}
