package apiserver_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Kettle is a kind that exists only in this file.
type Kettle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   KettleSpec   `json:"spec"`
	Status KettleStatus `json:"status"`
}

// KettleSpec is the spec of a Kettle.
type KettleSpec struct {
	Litres int `json:"litres"`
}

// KettleStatus is the status of a Kettle.
type KettleStatus struct {
	Boils bool `json:"boils"`
}

// DeepCopyObject implements runtime.Object.
func (k *Kettle) DeepCopyObject() runtime.Object {
	out := *k
	k.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// kettles is the whole definition of the kind.
func kettles() registry.Resource {
	fill := func(obj kind.Object) { kind.SetIfZero(&obj.(*Kettle).Spec.Litres, 1) }
	return registry.Resource{
		GVR:        schema.GroupVersionResource{Group: "kitchen.monopod", Version: "v1", Resource: "kettles"},
		Kind:       "Kettle",
		Namespaced: true,
		ShortNames: []string{"kt"},
		Inert:      "nobody pours tea",
		New:        func() kind.Object { return new(Kettle) },
		Default:    fill,
		Prepare: kind.SpecAndStatus(func(obj kind.Object) (*KettleSpec, *KettleStatus) {
			return &obj.(*Kettle).Spec, &obj.(*Kettle).Status
		}, fill),
		Validate: func(next, _ kind.Object, _ string) (errs field.ErrorList) {
			if litres := next.(*Kettle).Spec.Litres; litres > 3 {
				errs = append(errs, field.Invalid(field.NewPath("spec", "litres"), litres, "a kettle holds 3 at most"))
			}
			return errs
		},
		Subresources: kind.Parts("status"),
		Columns: []table.Column{table.Name(),
			table.Count("Litres", "How much it holds.", func(k *Kettle) int { return k.Spec.Litres })},
	}
}

// A kind is one value: serving, discovery, defaults, validation, columns, warnings and lists are derived from
// it.
func TestNewKindIsOneValue(t *testing.T) {
	t.Parallel()
	a := serveOf(t, nil, kettles())
	const at = "/apis/kitchen.monopod/v1/namespaces/default/kettles"
	const asTable = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, c := range []struct {
		name, method, path, body, accept string
		code                             int
		says                             string
	}{
		{"discovery", "GET", "/apis/kitchen.monopod/v1", "", "", 200, `"name":"kettles/status"`},
		{"group", "GET", "/apis", "", "", 200, `"name":"kitchen.monopod"`},
		{"OpenAPI", "GET", "/openapi/v3/apis/kitchen.monopod/v1", "", "", 200, at[:len("/apis/kitchen.monopod/v1")]},
		{"create", "POST", at, `{"metadata":{"name":"a"},"status":{"boils":true}}`, "", 201, `"litres":1`},
		{"a mistake", "POST", at, `{"metadata":{"name":"b"},"spec":{"litres":4}}`, "", 422, "a kettle holds 3 at most"},
		{"an unknown field", "POST", at + "?fieldValidation=Strict", `{"metadata":{"name":"b"},"spec":{"cups":4}}`, "", 400, `unknown field \"spec.cups\"`},
		{"another kind", "POST", at, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"}}`, "", 400, "Kettle"},
		{"the status", "PATCH", at + "/a/status", `{"status":{"boils":true},"spec":{"litres":3}}`, "", 200, `"boils":true`},
		{"no scale", "GET", at + "/a/scale", "", "", 404, "NotFound"},
		{"read", "GET", at + "/a", "", "", 200, `"spec":{"litres":1},"status":{"boils":true}`},
		{"list", "GET", at, "", "", 200, `"kind":"KettleList"`},
		{"table", "GET", at, "", asTable, 200, `"cells":["a",1]`},
		{"delete", "DELETE", at + "/a", "", "", 200, "Success"},
	} {
		typ := "Content-Type: application/json"
		if c.method == "PATCH" {
			typ = "Content-Type: application/merge-patch+json"
		}
		headers := []string{typ}
		if c.accept != "" {
			headers = append(headers, c.accept)
		}
		resp := a.do(c.method, c.path, c.body, headers...)
		if data := readBody(t, resp); resp.StatusCode != c.code || !strings.Contains(data, c.says) {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, data)
		}
		if warned := strings.Contains(resp.Header.Get("Warning"), "nobody pours tea"); warned != (c.name == "create") {
			t.Errorf("%s: warning %q", c.name, resp.Header.Get("Warning"))
		}
	}
	served := registry.Served(append(registry.Resources(), kettles()))
	if want := (client.Kind{Resource: kettles().GVR, Kind: "Kettle", Namespaced: true}); !slices.Contains(served, want) {
		t.Error("neither the garbage collector nor the namespace controller handles it")
	}
}
