package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/registry"
)

const operatorsDir = "../testdata/operators"

// operatorModules downloads the modules of testdata/operators/go.mod, or finds them in the module cache, and returns
// their folders. go.sum contains their checksums.
func operatorModules(t testing.TB) map[string]string {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(operatorsDir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(operatorsDir, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"mod", "download", "-json"}
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "\t") && len(f) == 2 {
			args = append(args, f[0]+"@"+f[1])
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = operatorsDir
	out, _ := cmd.Output() // a module that cannot be downloaded has an Error
	folders := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var m struct{ Path, Version, Dir, Sum, Error string }
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m.Error != "" {
			t.Skipf("a module of an operator cannot be downloaded: %s", m.Error)
		}
		if !strings.Contains(string(sums), m.Path+" "+m.Version+" "+m.Sum+"\n") {
			t.Fatalf("%s %s has the sum %s, go.sum has another one", m.Path, m.Version, m.Sum)
		}
		folders[m.Path] = m.Dir
	}
	if len(folders) != len(args)-3 {
		t.Skipf("go mod download found %d of %d modules", len(folders), len(args)-3)
	}
	return folders
}

// definitionsOf returns the YAML of the operators' definitions, by name.
func definitionsOf(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for module, folder := range operatorModules(t) {
		var files []string
		for _, in := range []string{"deploy/crds", "config/crd/experimental", "manifests/crds", "config/crd/bases",
			"example/prometheus-operator-crd"} {
			found, _ := filepath.Glob(filepath.Join(folder, in, "*.yaml"))
			files = append(files, found...)
		}
		if len(files) == 0 {
			t.Errorf("%s has no definitions", module)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var def crd.Definition
			err = yaml.Unmarshal(text, &def)
			switch {
			case err != nil || def.Kind != "CustomResourceDefinition":
			case slices.Contains([]string{"Alertmanager", "PrometheusAgent", "ThanosRuler"}, def.Spec.Names.Kind):
				t.Logf("%s is left out: it is as large as Prometheus and has the same parts", def.Name)
			default:
				out[def.Name] = string(text)
			}
		}
	}
	return out
}

// establish does what the definitions' controller does for all definitions.
func (a API) establish() (established []*apiextensionsv1.CustomResourceDefinition) {
	a.t.Helper()
	all, err := client.List[*crd.Definition](a.t.Context(), a.reg, client.Selector{})
	for _, def := range all {
		if err == nil {
			_, err = client.Update(a.t.Context(), a.reg, def, "status", func(d *crd.Definition) error {
				d.Status.AcceptedNames = d.Spec.Names
				d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
					Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts"})
				return nil
			})
		}
		full, unpacking := def.Full()
		established, err = append(established, full), errors.Join(err, unpacking)
	}
	if err == nil {
		_, err = registry.NewDefinitions(a.reg).Load(a.t.Context())
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return established
}

// The definitions of real operators install; their kinds are listed, explained, applied, pruned and deleted.
func TestDefinitionsOfOperators(t *testing.T) {
	t.Parallel()
	texts := definitionsOf(t)
	if len(texts) < 35 {
		t.Fatalf("%d definitions", len(texts))
	}
	a := serve(t)
	const apply = "Content-Type: application/apply-patch+yaml"
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	for name, text := range texts {
		if resp := a.do("PATCH", definitions+name+"?fieldManager=test&fieldValidation=Strict", text,
			apply); resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s %.500s", name, resp.Status, readBody(t, resp))
		}
	}
	stored, refused, explained := 0, []string{}, map[string]string{}
	for _, def := range a.establish() {
		for _, v := range def.Spec.Versions {
			if !v.Served {
				continue
			}
			of := operatorKind{a, def, v}
			of.lists()
			of.explains(explained)
			if !v.Storage {
				continue
			}
			if said := of.lives(apply); said != "" {
				refused = append(refused, def.Name+": "+said)
			} else {
				stored++
			}
		}
	}
	t.Logf("%d definitions, objects of %d kinds stored; refused: %s", len(texts), stored, strings.Join(refused, "\n"))
	if stored < len(texts)*3/4 {
		t.Errorf("objects of only %d of %d kinds were stored", stored, len(texts))
	}
	for name, text := range texts {
		if len(text) < 100<<10 {
			if resp := a.do("PATCH", definitions+name+"?fieldManager=test", text, apply); resp.StatusCode != http.StatusOK {
				t.Errorf("%s again: %s %.500s", name, resp.Status, readBody(t, resp))
			}
		}
		if resp := a.do("DELETE", definitions+name, ""); resp.StatusCode != http.StatusOK {
			t.Errorf("delete %s: %s %.500s", name, resp.Status, readBody(t, resp))
		}
	}
}

// operatorKind is a served version of a definition.
type operatorKind struct {
	API
	def *apiextensionsv1.CustomResourceDefinition
	v   apiextensionsv1.CustomResourceDefinitionVersion
}

func (k operatorKind) path() string {
	scope := ""
	if k.def.Spec.Scope == apiextensionsv1.NamespaceScoped {
		scope = "/namespaces/default"
	}
	return "/apis/" + k.def.Spec.Group + "/" + k.v.Name + scope + "/" + k.def.Spec.Names.Plural
}

func (k operatorKind) lists() {
	k.t.Helper()
	for _, accept := range []string{"Accept: application/json", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"} {
		if resp := k.do("GET", k.path(), "", accept); resp.StatusCode != http.StatusOK {
			k.t.Errorf("list %s: %s %.500s", k.path(), resp.Status, readBody(k.t, resp))
		} else {
			resp.Body.Close()
		}
	}
}

// explains checks that OpenAPI v3, which kubectl explain reads, describes the kind. docs contains the documents that
// were already read.
func (k operatorKind) explains(docs map[string]string) {
	k.t.Helper()
	path := "/openapi/v3/apis/" + k.def.Spec.Group + "/" + k.v.Name
	if docs[path] == "" {
		docs[path] = readBody(k.t, k.do("GET", path, ""))
	}
	doc := docs[path]
	if want := fmt.Sprintf(`"kind":%q,"version":%q`, k.def.Spec.Names.Kind, k.v.Name); !strings.Contains(doc, want) {
		k.t.Errorf("OpenAPI of %s %s does not describe it: %.200s", k.def.Name, k.v.Name, doc)
	}
}

// lives applies an object, checks that it is pruned, changes and deletes it. It returns the error if the server refuses
// the object, because sampleOf ignores CEL rules and some patterns.
func (k operatorKind) lives(apply string) (refused string) {
	k.t.Helper()
	schema := k.v.Schema.OpenAPIV3Schema
	obj, _ := sampleOf(schema).(map[string]any)
	if spec, ok := schema.Properties["spec"]; ok && obj["spec"] == nil {
		obj["spec"] = sampleOf(&spec)
	}
	obj["apiVersion"], obj["kind"] = k.def.Spec.Group+"/"+k.v.Name, k.def.Spec.Names.Kind
	obj["metadata"] = map[string]any{"name": "sample"}
	send := func(method, query, typ string) (int, string) {
		text, err := json.Marshal(obj)
		if err != nil {
			k.t.Fatal(err)
		}
		resp := k.do(method, k.path()+"/sample"+query, string(text), typ)
		return resp.StatusCode, readBody(k.t, resp)
	}
	switch code, text := send("PATCH", "?fieldManager=a", apply); {
	case code == http.StatusUnprocessableEntity:
		var status metav1.Status
		if err := json.Unmarshal([]byte(text), &status); err != nil || status.Details == nil ||
			len(status.Details.Causes) == 0 {
			k.t.Errorf("%s: refused without causes: %s", k.def.Name, text)
		}
		return status.Message
	case code != http.StatusCreated:
		k.t.Errorf("apply %s: %d %.500s", k.def.Name, code, text)
		return text
	}
	if spec, ok := obj["spec"].(map[string]any); ok && !preserves(schema.Properties["spec"]) {
		spec["notInTheSchema"] = "x"
		obj["metadata"] = map[string]any{"name": "sample", "labels": map[string]any{"a": "b"}}
		if code, text := send("PATCH", "?fieldValidation=Strict",
			"Content-Type: application/merge-patch+json"); code != http.StatusBadRequest &&
			code != http.StatusUnprocessableEntity || !strings.Contains(text, "notInTheSchema") {
			k.t.Errorf("%s: an unknown field under Strict: %d %.300s", k.def.Name, code, text)
		}
		if code, text := send("PATCH", "", "Content-Type: application/merge-patch+json"); code != http.StatusOK ||
			strings.Contains(text, `"notInTheSchema"`) {
			k.t.Errorf("%s: an unknown field is not pruned: %d %.300s", k.def.Name, code, text)
		}
	}
	if resp := k.do("GET", k.path(), "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"); !strings.Contains(
		readBody(k.t, resp), `"sample"`) {
		k.t.Errorf("%s: the table does not have the object", k.def.Name)
	}
	if resp := k.do("DELETE", k.path()+"/sample", ""); resp.StatusCode != http.StatusOK {
		k.t.Errorf("delete %s: %s %.300s", k.path(), resp.Status, readBody(k.t, resp))
	}
	return ""
}

func preserves(schema apiextensionsv1.JSONSchemaProps) bool {
	return schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
}

// sampleOf returns a small value for a schema: its required fields, with the first text that matches a pattern.
func sampleOf(s *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case s.Default != nil:
		var value any
		if json.Unmarshal(s.Default.Raw, &value) == nil {
			return value
		}
	case len(s.Enum) > 0:
		var value any
		if json.Unmarshal(s.Enum[0].Raw, &value) == nil {
			return value
		}
	case s.XIntOrString:
		return 1
	}
	switch s.Type {
	case "string":
		return sampleText(s)
	case "integer", "number":
		if s.Minimum != nil {
			return *s.Minimum
		}
		return 1
	case "boolean":
		return true
	case "array":
		items := []any{}
		for range max(deref(s.MinItems), 0) {
			items = append(items, sampleOf(s.Items.Schema))
		}
		return items
	}
	object := map[string]any{}
	required := slices.Clone(s.Required)
	if len(s.OneOf) > 0 {
		required = append(required, s.OneOf[0].Required...)
	} else if len(s.AnyOf) > 0 {
		required = append(required, s.AnyOf[0].Required...)
	}
	for _, name := range required {
		if p, ok := s.Properties[name]; ok {
			object[name] = sampleOf(&p)
		}
	}
	if len(object) == 0 && deref(s.MinProperties) > 0 {
		for name, p := range s.Properties {
			object[name] = sampleOf(&p)
			break
		}
	}
	return object
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func sampleText(s *apiextensionsv1.JSONSchemaProps) string {
	for _, text := range []string{"a", "1m", "example.com", "https://example.com", "1Mi", "10.0.0.1",
		"2026-01-01T00:00:00Z", "example.com/a", "oci://example.com/a", "ssh://example.com", "*", "1.0.0"} {
		if s.Format == "date-time" && text != "2026-01-01T00:00:00Z" || int64(len(text)) < deref(s.MinLength) {
			continue
		}
		if ok, err := regexp.MatchString(s.Pattern, text); err == nil && ok {
			return text
		}
	}
	return "a"
}
