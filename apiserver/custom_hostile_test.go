package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry"
)

// TestDefaultsAreBounded: an object of a few KB must not grow by its schema's defaults without limit.
func TestDefaultsAreBounded(t *testing.T) {
	t.Parallel()
	const item = `{"type":"object","properties":{"x":{"type":"string","default":%q}}}`
	wide := `{"type":"array","items":` + fmt.Sprintf(item, strings.Repeat("y", 20_000)) + `}`
	deep := `{"type":"string"}`
	for range 4 { // 60⁴ values
		deep = `{"type":"object","properties":{"a":{"type":"array","items":` + deep + `,"default":[` +
			items(map[bool]string{true: `"x"`, false: `{}`}[deep == `{"type":"string"}`], 60) + `]}}}`
	}
	mapped := `{"type":"object","additionalProperties":` + fmt.Sprintf(item, strings.Repeat("y", 20_000)) + `}`
	nulls := `{"type":"array","items":{"type":"string","default":"` + strings.Repeat("y", 20_000) + `"}}`
	many := func(form string, n int) string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf(form, i)
		}
		return strings.Join(out, ",")
	}
	for _, c := range []struct{ schema, spec, more string }{
		{wide, `[` + items(`{}`, 10) + `]`, `[` + items(`{}`, 900) + `]`},
		{nulls, `[null,"a"]`, `[` + items(`null`, 900) + `]`},
		{mapped, `{"a":{},"b":{"x":"z"}}`, `{` + many(`"k%d":{}`, 900) + `}`},
		{deep, `{"a":[]}`, `{}`},
	} {
		a := serve(t)
		text, err := yaml.JSONToYAML([]byte(definitionOf(c.schema)))
		if err != nil {
			t.Fatal(err)
		}
		a.define(string(text))
		object := func(name, spec string) string {
			return `{"apiVersion":"example.com/v1","kind":"Bad","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
		}
		const path = "/apis/example.com/v1/namespaces/default/bads"
		if code, out := a.read("POST", path, object("a", c.spec)); code != http.StatusCreated {
			t.Errorf("%.200s: %d %.300v", c.spec, code, out)
		}
		const want = "defaults of its schema would add more than 8 MiB"
		for _, r := range []struct{ method, path, content, body string }{
			{"POST", path, "application/json", object("b", c.more)},
			{"PUT", path + "/a", "application/json", object("a", c.more)},
			{"PATCH", path + "/a", "application/json-patch+json", `[{"op":"replace","path":"/spec","value":` + c.more + `}]`},
			{"PATCH", path + "/a?fieldManager=m&force=true", "application/apply-patch+yaml", object("a", c.more)},
		} {
			if r.content == "application/apply-patch+yaml" && c.more == "{}" {
				continue // apply merges it with the existing list
			}
			code, out := a.read(r.method, r.path, r.body, "Content-Type: "+r.content)
			if message, _ := out["message"].(string); code < 400 || code >= 500 || !strings.Contains(message, want) {
				t.Errorf("%s %s of %.60s: %d %.300s", r.method, r.content, c.more, code, message)
			}
		}
	}
}

func items(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

// TestCostlyDefinitions: patterns that need too much memory, and columns that select one value many times, are refused.
func TestCostlyDefinitions(t *testing.T) {
	t.Parallel()
	a := serve(t)
	patterns := func(n, repeats int) string {
		var out strings.Builder
		for i := range n {
			fmt.Fprintf(&out, `"f%d":{"type":"string","pattern":"a{%d}%d"},`, i, repeats, i)
		}
		return `{"type":"object","properties":{` + strings.TrimSuffix(out.String(), ",") + `}}`
	}
	column := func(path string) string {
		return strings.Replace(definitionOf(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`),
			`"storage":true,`, `"storage":true,"additionalPrinterColumns":[{"name":"A","type":"string","jsonPath":"`+path+`"}],`,
			1)
	}
	many := strings.Replace(column(".a"), `"additionalPrinterColumns":[`, `"additionalPrinterColumns":[`+
		strings.Repeat(`{"name":"A","type":"string","jsonPath":".a"},`, 100), 1)
	for text, want := range map[string]string{
		many:                              "FieldValueTooMany spec.versions[0].additionalPrinterColumns",
		definitionOf(patterns(100, 100)):  "",
		definitionOf(patterns(600, 1000)): "FieldValueForbidden spec.versions",
		definitionOf(patterns(2600, 1)):   "FieldValueForbidden spec.versions",
		column(`.spec.conditions[?(@.type=='Ready')].status`): "",
		column(`.spec..name`):                "",
		column(`.spec['a','b'].c[*].d[0:2]`): "",
		column(`.spec` + strings.Repeat(`['a','a']`,
			7)): "FieldValueInvalid spec.versions[0].additionalPrinterColumns[0].jsonPath",
		column(`.spec..a..b`): "FieldValueInvalid spec.versions[0].additionalPrinterColumns[0].jsonPath",
		column(`.a[?(@` + strings.Repeat(`['a','a']`, 7) +
			`==1)]`): "FieldValueInvalid spec.versions[0].additionalPrinterColumns[0].jsonPath",
		column(`.spec['a','b']..c`): "FieldValueInvalid spec.versions[0].additionalPrinterColumns[0].jsonPath",
	} {
		code, out := a.read("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", text)
		if got := strings.Join(causesOf(out), "; "); want == "" && code != http.StatusCreated || want != "" &&
			(code != http.StatusUnprocessableEntity || got != want) {
			t.Errorf("%.600s: %d %s, want %s", text, code, got, want)
		}
	}
}

// TestErrorsAreBounded: an object with very many invalid values is refused at once. Upstream's validator compares each
// error with all others, which took 9 seconds of CPU for 20,000.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	a := serve(t)
	text, err := yaml.JSONToYAML([]byte(definitionOf(`{"type":"object","properties":{"map":{"type":"object",` +
		`"additionalProperties":{"type":"string"}},` +
		`"lists":{"type":"array","items":{"type":"array","items":{"type":"string","pattern":"^a"}}}}}`)))
	if err != nil {
		t.Fatal(err)
	}
	a.define(string(text))
	var members strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&members, `"k%d":1,`, i)
	}
	object := func(spec string) string {
		return `{"apiVersion":"example.com/v1","kind":"Bad","metadata":{"name":"a"},"spec":{` + spec + `}}`
	}
	const path = "/apis/example.com/v1/namespaces/default/bads"
	if code, out := a.read("POST", path, object(`"map":{"a":"b"},"lists":[["a"]]`)); code != http.StatusCreated {
		t.Fatal(code, out)
	}
	for _, spec := range []string{`"map":{` + strings.TrimSuffix(members.String(), ",") + `}`, `"lists":[` +
		items("["+items(`"b"`, 9_000)+"]", 3) + `]`} {
		for _, at := range []string{"POST " + path + "?dryRun=All", "PUT " + path + "/a"} {
			method, path, _ := strings.Cut(at, " ")
			code, out := a.read(method, path, object(spec))
			message, _ := out["message"].(string)
			if n := len(causesOf(out)); code != http.StatusUnprocessableEntity || n < 150 || n > 250 ||
				!strings.Contains(message, "more values are invalid") {
				t.Errorf("%s %.40s: %d, %d causes, %.300s", method, spec, code, n, message)
			}
		}
	}
}

// TestComparisonsAreBounded: objects with long strings for costly patterns, or with many values for a schema with many
// alternatives, are refused before they are compared: the first of these took a quarter of a minute, and a body of such
// patterns takes hours. Objects that were stored before the schema changed can still be edited.
func TestComparisonsAreBounded(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const (
		path       = "/apis/example.com/v1/namespaces/default/bads"
		definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	)
	costly := `{"type":"string","pattern":"` + strings.Repeat("(a?){1000}", 20) + `z"`
	long := strings.Repeat("a", 100_000)
	schema := func(text string) string {
		return `{"type":"object","properties":{"text":` + text +
			`,"list":{"type":"array","items":{"type":"integer","allOf":[` + items(`{"minimum":1}`, 400) + `]}}}}`
	}
	object := func(name, spec string) string {
		return `{"apiVersion":"example.com/v1","kind":"Bad","metadata":{"name":"` + name + `"},"spec":{` + spec + `}}`
	}
	request := func(want int, cause, method, path, content, body string) {
		t.Helper()
		code, out := a.read(method, path, body, "Content-Type: "+content)
		if got := strings.Join(causesOf(out), ", "); code != want || got != cause {
			t.Errorf("%s %s: %d, causes %s, %.300v", method, path, code, got, out["message"])
		}
	}
	const inJSON, merge = "application/json", "application/merge-patch+json"
	text, err := yaml.JSONToYAML([]byte(definitionOf(schema(`{"type":"string"}`))))
	if err != nil {
		t.Fatal(err)
	}
	a.define(string(text))
	request(http.StatusCreated, "", "POST", path, inJSON, object("before", `"text":"`+long+`"`))
	request(http.StatusOK, "", "PATCH", definition+"/bads.example.com", "application/json-patch+json",
		`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec","value":`+schema(costly+"}")+`}]`)
	if _, err := registry.NewDefinitions(a.reg).Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	request(http.StatusCreated, "", "POST", path, inJSON, object("c", `"text":"az"`))
	request(http.StatusCreated, "", "POST", path, inJSON, object("a", `"list":[`+items("1", 100)+`]`))
	for cause, spec := range map[string]string{"spec.text": `"text":"` + long + `z"`, "spec.list[6234]": `"list":[` +
		items("1", 10_000) + `]`} {
		cause = "FieldValueForbidden " + cause
		request(http.StatusUnprocessableEntity, cause, "POST", path, inJSON, object("b", spec))
		request(http.StatusUnprocessableEntity, cause, "PUT", path+"/a", inJSON, object("a", spec))
		request(http.StatusUnprocessableEntity, cause, "PATCH", path+"/a", merge, `{"spec":{`+spec+`}}`)
	}
	request(http.StatusOK, "", "PATCH", path+"/before", merge, `{"metadata":{"labels":{"a":"b"}}}`)
	request(http.StatusUnprocessableEntity, "FieldValueForbidden spec.text", "PATCH", path+"/before", merge,
		`{"spec":{"list":[]}}`)
	request(http.StatusUnprocessableEntity, "FieldValueForbidden "+
		"spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[text].default",
		"POST", definition+"?dryRun=All", inJSON, definitionOf(schema(costly+`,"default":"`+long+`z"}`)))
}

// TestRulesAreBounded: a CEL rule that is cheap by upstream's estimate does not run for minutes on one value.
func TestRulesAreBounded(t *testing.T) {
	t.Parallel()
	a := serve(t)
	text, err := yaml.JSONToYAML([]byte(definitionOf(`{"type":"string","maxLength":100,` +
		`"x-kubernetes-validations":[{"rule":"quantity(self).isGreaterThan(quantity('1'))"}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	a.define(string(text))
	for spec, want := range map[string]int{"2Gi": http.StatusCreated, "1": http.StatusUnprocessableEntity,
		"1e99999999": http.StatusUnprocessableEntity} {
		body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Bad","metadata":{"generateName":"a"},"spec":%q}`, spec)
		if code, out := a.read("POST", "/apis/example.com/v1/namespaces/default/bads", body); code != want {
			t.Errorf("%s: %d %v", spec, code, out["message"])
		}
	}
}
