package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/registry"
)

// widgets is a definition with two versions, of which the first is stored.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 9}
              color: {type: string, enum: [red, green], default: red}
              port: {x-kubernetes-int-or-string: true}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              tags: {type: array, items: {type: string, maxLength: 5}, x-kubernetes-list-type: set, maxItems: 3}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, count: {type: integer, default: 1}}}
              labels: {type: object, additionalProperties: {type: string, pattern: '^[a-z]+$'}}
              fixed: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: fixed is immutable}]}
              maybe: {type: string, nullable: true}
              when: {type: string, format: date-time}
          status:
            type: object
            properties: {ready: {type: boolean}}
  - name: v2
    served: true
    storage: false
    deprecated: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}, extra: {type: string, default: new}}}
`

// define creates a definition and serves it.
func (a API) define(text string) {
	a.t.Helper()
	def := &crd.Definition{}
	if err := yaml.Unmarshal([]byte(text), def); err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.reg.Create(a.t.Context(), def); err != nil {
		a.t.Fatal(err)
	}
	_, err := client.Update(a.t.Context(), a.reg, def, "status", func(d *crd.Definition) error {
		d.Status.AcceptedNames = d.Spec.Names
		d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts"})
		return nil
	})
	if err == nil {
		_, err = registry.NewDefinitions(a.reg).Load(a.t.Context())
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

const widgetsAt = "/apis/example.com/v1/namespaces/default/widgets"

func widgetOf(name, spec string) string {
	return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
}

// A custom kind has every verb of the built-in ones.
func TestCustomKind(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.define(widgets)
	const mergePatch, jsonPatch = "application/merge-patch+json", "application/json-patch+json"
	for _, c := range []struct {
		name, method, path, typ, body string
		code                          int
		says, not                     string
	}{
		{"discovery", "GET", "/apis/example.com/v1", "", "", 200, `"name":"widgets/status"`, "v2"},
		{"the storage version hash", "GET", "/apis/example.com/v1", "", "", 200, `"storageVersionHash":"gIwvi5rymmg="`, ""},
		{"the storage version hash of another version", "GET", "/apis/example.com/v2", "", "", 200,
			`"storageVersionHash":"gIwvi5rymmg="`, ""},
		{"upstream's storage version hash of pods", "GET", "/api/v1", "", "", 200, `"storageVersionHash":"xPOwRZ+Yhw8="`, ""},
		{"group", "GET", "/apis/example.com", "", "", 200, `"preferredVersion":{"groupVersion":"example.com/v2"`, ""},
		{"OpenAPI v3", "GET", "/openapi/v3/apis/example.com/v1", "", "", 200, `"com.example.v1.Widget":{`, ""},
		{"OpenAPI v2", "GET", "/openapi/v2", "", "", 200, `"com.example.v2.WidgetList":{`, ""},
		{"the conditions of a new definition are a list, not null", "POST",
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", "application/yaml",
			strings.NewReplacer("widgets", "gadgets", "Widget", "Gadget", "widget", "gadget").Replace(widgets), 201,
			`"conditions":[]`, ""},
		{"create", "POST", widgetsAt, "",
			widgetOf("a", `{"size":3,"port":"http","free":{"any":[1]},"unknown":1,"parts":[{"name":"x"}],"maybe":null}`), 201,
			`"spec":{"color":"red","free":{"any":[1]},"maybe":null,"parts":[{"count":1,"name":"x"}],"port":"http","size":3}}`,
			"unknown"},
		{"the status of a creation is dropped", "POST", widgetsAt, "",
			strings.Replace(widgetOf("b", `{"size":3}`), `"spec"`, `"status":{"ready":true},"spec"`, 1), 201, `"generation":1`,
			"ready"},
		{"an existing name", "POST", widgetsAt, "", widgetOf("a", `{"size":3}`), 409, `AlreadyExists`, ""},
		{"another kind", "POST", widgetsAt, "", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}`, 400, "Widget",
			""},
		{"YAML", "POST", widgetsAt, "application/yaml",
			"{apiVersion: example.com/v1, kind: Widget, metadata: {name: why}, spec: {size: 1}}", 201, `"size":1`, ""},
		{"protobuf", "POST", widgetsAt, "application/vnd.kubernetes.protobuf", "k8s\x00", 415, "UnsupportedMediaType", ""},
		{"read", "GET", widgetsAt + "/a", "", "", 200, `"generation":1`, ""},
		{"another version", "GET", strings.Replace(widgetsAt, "v1", "v2", 1) + "/a", "", "", 200,
			`"apiVersion":"example.com/v2","metadata":{`, "color"},
		{"its defaults", "GET", strings.Replace(widgetsAt, "v1", "v2", 1) + "/a", "", "", 200,
			`"spec":{"extra":"new","size":3}`, ""},
		{"list", "GET", widgetsAt, "", "", 200, `{"kind":"WidgetList","apiVersion":"example.com/v1"`, ""},
		{"merge patch", "PATCH", widgetsAt + "/a", mergePatch, `{"spec":{"size":4,"color":null}}`, 200, `"generation":2`, ""},
		{"the default of a removed field", "GET", widgetsAt + "/a", "", "", 200, `"color":"red"`, ""},
		{"JSON patch", "PATCH", widgetsAt + "/a", jsonPatch, `[{"op":"replace","path":"/spec/size","value":5}]`, 200,
			`"size":5`, ""},
		{"labels only", "PATCH", widgetsAt + "/a", mergePatch, `{"metadata":{"labels":{"x":"y"}}}`, 200, `"generation":3`,
			`"generation":4`},
		{"strategic merge", "PATCH", widgetsAt + "/a", "application/strategic-merge-patch+json", `{}`, 415,
			"accepted media types include: application/json-patch+json, application/merge-patch+json, " +
				"application/apply-patch+yaml, application/apply-patch+cbor", ""},
		{"status", "PATCH", widgetsAt + "/a/status", mergePatch,
			`{"metadata":{"labels":{"x":"z"}},"spec":{"size":1},"status":{"ready":true}}`, 200, `"status":{"ready":true}`,
			`"size":1`},
		{"the labels remain", "GET", widgetsAt + "/a", "", "", 200, `"x":"y"`, ""},
		{"the status remains", "PATCH", widgetsAt + "/a", mergePatch, `{"status":{"ready":false}}`, 200, `"ready":true`, ""},
		{"apply", "PATCH", widgetsAt + "/a?fieldManager=ann", "application/apply-patch+yaml",
			"{apiVersion: example.com/v1, kind: Widget, spec: {size: 5, parts: [{name: z, count: 2}]}}", 200,
			`"parts":[{"count":1,"name":"x"},{"count":2,"name":"z"}]`, ""},
		{"apply conflicts", "PATCH", widgetsAt + "/a?fieldManager=bob", "application/apply-patch+yaml",
			"{apiVersion: example.com/v1, kind: Widget, spec: {size: 6}}", 409, `conflicts with \"ann\":`, ""},
		{"apply creates", "PATCH", widgetsAt + "/c?fieldManager=ann", "application/apply-patch+yaml",
			"{apiVersion: example.com/v1, kind: Widget, spec: {size: 5}}", 201, `"manager":"ann"`, ""},
		{"no scale", "GET", widgetsAt + "/a/scale", "", "", 404, "NotFound", ""},
		{"a finalizer without a domain", "POST", widgetsAt, "",
			strings.Replace(widgetOf("f", `{"size":1}`), `"name":"f"`, `"name":"f","finalizers":["mine"]`, 1), 201,
			`"finalizers":["mine"]`, ""},
		{"delete", "DELETE", widgetsAt + "/a", "", "", 200, `"status":"Success"`, ""},
		{"delete all", "DELETE", widgetsAt, "", "", 200, `"items":[`, ""},
	} {
		typ := c.typ
		if typ == "" {
			typ = "application/json"
		}
		resp := a.do(c.method, c.path, c.body, "Content-Type: "+typ)
		if data := readBody(t, resp); resp.StatusCode != c.code || !strings.Contains(data, c.says) ||
			c.not != "" && strings.Contains(data, c.not) {
			t.Errorf("%s: %d %.2000s", c.name, resp.StatusCode, data)
		}
	}
}

// Objects that do not match the schema get upstream's code, reason and fields.
func TestBadCustomObjects(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.define(widgets)
	if code, out := a.read("POST", widgetsAt, widgetOf("old", `{"size":3,"fixed":"a"}`)); code != 201 {
		t.Fatal(code, out)
	}
	for spec, want := range map[string]struct {
		causes  []string // type field
		message string
	}{
		`{}`: {[]string{"FieldValueRequired spec.size"}, `spec.size: Required value`},
		`{"size":0}`: {[]string{"FieldValueInvalid spec.size"},
			`spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1`},
		`{"size":10}`: {[]string{"FieldValueInvalid spec.size"}, `should be less than or equal to 9`},
		`{"size":"3"}`: {[]string{"FieldValueTypeInvalid spec.size", "FieldValueInvalid <nil>"},
			`spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"`},
		`{"size":1.5}`: {[]string{"FieldValueTypeInvalid spec.size", "FieldValueInvalid <nil>"}, `must be of type integer`},
		`{"size":3,"color":"blue"}`: {[]string{"FieldValueNotSupported spec.color", "FieldValueInvalid <nil>"},
			`spec.color: Unsupported value: "blue": supported values: "red", "green"`},
		`{"size":3,"port":true}`:      {[]string{"FieldValueTypeInvalid spec.port", "FieldValueInvalid <nil>"}, `spec.port`},
		`{"size":3,"tags":["a","a"]}`: {[]string{"FieldValueDuplicate spec.tags[1]"}, `spec.tags[1]: Duplicate value: "a"`},
		`{"size":3,"tags":["abcdef"]}`: {[]string{"FieldValueTooLong spec.tags[0]", "FieldValueInvalid <nil>"},
			`spec.tags[0]: Too long: may not be more than 5 bytes`},
		`{"size":3,"tags":["a","b","c","d"]}`: {[]string{"FieldValueTooMany spec.tags", "FieldValueInvalid <nil>"},
			`spec.tags: Too many: 4: must have at most 3 items`},
		`{"size":3,"parts":[{"count":1}]}`: {[]string{"FieldValueRequired spec.parts[0].name", "FieldValueInvalid <nil>"},
			`spec.parts[0].name: Required value`},
		`{"size":3,"parts":[{"name":"x"},{"name":"x"}]}`: {[]string{"FieldValueDuplicate spec.parts[1]"},
			`spec.parts[1]: Duplicate value: {"name":"x"}`},
		`{"size":3,"parts":{}}`: {[]string{"FieldValueTypeInvalid spec.parts",
			"FieldValueInvalid <nil>"}, `must be of type array`},
		`{"size":3,"labels":{"a":"B"}}`: {[]string{"FieldValueInvalid spec.labels.a"}, `should match '^[a-z]+$'`},
		`{"size":3,"when":"tomorrow"}`:  {[]string{"FieldValueTypeInvalid spec.when"}, `must be of type date-time`},
		`{"size":3,"template":{}}`: {[]string{"FieldValueRequired spec.template.apiVersion",
			"FieldValueRequired spec.template.kind"}, `spec.template.kind: Required value`},
		`[]`: {[]string{"FieldValueTypeInvalid spec", "FieldValueInvalid <nil>"},
			`spec in body must be of type object: "array"`},
		`"x"`: {[]string{"FieldValueTypeInvalid spec", "FieldValueInvalid <nil>"},
			`spec in body must be of type object: "string"`},
	} {
		code, out := a.read("POST", widgetsAt, widgetOf("bad", spec))
		message, _ := out["message"].(string)
		causes := causesOf(out)
		for _, cause := range want.causes {
			if !slices.Contains(causes, cause) {
				t.Errorf("%s: no %s in %v", spec, cause, causes)
			}
		}
		if code != http.StatusUnprocessableEntity || out["reason"] != "Invalid" || !strings.HasPrefix(message,
			`Widget.example.com "bad" is invalid: `) || !strings.Contains(message, want.message) {
			t.Errorf("%s: %d %v %s", spec, code, causes, message)
		}
	}
	for body, want := range map[string]string{
		`{"spec":{"fixed":"b"}}`: `spec.fixed: Invalid value: "b": fixed is immutable`,
		`{"spec":{"size":77}}`:   "should be less than or equal to 9",
	} {
		code, out := a.read("PATCH", widgetsAt+"/old", body, "Content-Type: application/merge-patch+json")
		if message, _ := out["message"].(string); code != http.StatusUnprocessableEntity || !strings.Contains(message, want) {
			t.Errorf("%s: %d %v", body, code, out)
		}
	}
	code, out := a.read("POST", widgetsAt+"?fieldValidation=Strict",
		widgetOf("bad", `{"size":1,"size":2,"nope":{},"parts":[{"name":"a","nope":1}]}`))
	if message, _ := out["message"].(string); code != 400 ||
		message != `Widget in version "v1" cannot be handled as a Widget: strict decoding error: duplicate field `+
			`"spec.size", unknown field "spec.nope", unknown field "spec.parts[0].nope"` {
		t.Error(code, out)
	}
}

// causesOf returns the causes of a Status: type and field.
func causesOf(status map[string]any) (out []string) {
	details, _ := status["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	for _, c := range causes {
		cause := c.(map[string]any)
		field, _ := cause["field"].(string)
		typ, _ := cause["reason"].(string)
		out = append(out, typ+" "+field)
	}
	return out
}
