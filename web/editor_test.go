package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// begun is a Deployment whose last line is being typed.
const begun = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: typed, labels: {any: thing}}\nspec:\n" +
	"  selector: {matchLabels: {app: typed}}\n  template:\n    metadata:\n      labels:\n        app: typed\n" +
	"    spec:\n      containers:\n      - name: web\n        "

// editor: CodeMirror shows YAML in colours, completes fields from the server's schemas, and marks those that the server
// does not know.
func (p page) editor(a *api) {
	p.visit("#/create")
	p.types(begun, "im")
	p.sees(`document.querySelector(".editor .cm-lineNumbers") && new Set([...document.querySelectorAll(".cm-line span")]` +
		`.map((e) => getComputedStyle(e).color)).size >= 2`)
	p.sees(`%s === "image,imagePullPolicy"`, offered)
	p.sees(`%s?.includes("Container image name")`, text(".cm-completionInfo"))
	p.click(".cm-tooltip-autocomplete li")
	p.sees(`document.querySelector(".editor").value.endsWith("\n        image: ")`)
	p.types(begun, "imagePullP")
	p.sees(`%s === "imagePullPolicy"`, offered)
	p.click(".cm-tooltip-autocomplete li")
	p.sees(`%s === "Always,IfNotPresent,Never"`, offered)
	p.key(kb.Escape)

	// The document of the cursor counts, and its kind is completed, too.
	p.types(begun+"\n---\napiVersion: v1\n", "ki")
	p.sees(`%s === "kind"`, offered)
	p.click(".cm-tooltip-autocomplete li")
	p.sees(`%s?.includes("ServiceAccount") && !%[1]s.includes("Deployment")`, offered)
	p.key("Conf")
	p.sees(`%s === "ConfigMap"`, offered)
	p.click(".cm-tooltip-autocomplete li")
	p.key("\rda")
	p.sees(`%s?.startsWith("data,")`, offered)
	p.key(kb.Escape)

	p.put(".editor", begun+"imag: a\n  replica: 2\n  strategy: {kind: flow}\n")
	p.sees(`document.querySelectorAll(".cm-lint-marker-warning").length === 2 && %s === "Line 13: Deployment has no `+
		`field `+
		`spec.template.spec.containers[0].imag. Line 14: Deployment has no field spec.replica."`, text(".editor ~ [role=status]"))

	// Errors of the server are marked until the text is edited.
	p.put(".editor", begun+"image: a\n      restartPolicy: Sometimes\n")
	p.press("main", "Check")
	p.press(".review", "Line 14")
	p.sees(`getSelection().toString() === "      restartPolicy: Sometimes" && ` +
		`document.querySelector(".cm-lint-marker-error")`)

	// Tab indents, and leaves the editor after Esc.
	p.key(kb.Tab)
	p.sees(`!document.querySelector(".cm-lint-marker-error") && document.querySelector(".editor").value.includes("\n   ` +
		`     restartPolicy")`)
	p.key(kb.Escape)
	p.key(kb.Tab)
	p.sees(`!document.activeElement.closest(".editor")`)

	p.lastApplied(a)
}

// lastApplied: kubectl's copy of the object is hidden, and an edit keeps it.
func (p page) lastApplied(a *api) {
	const path = "/api/v1/namespaces/default/configmaps"
	a.as(p.t, "kubectl-client-side-apply", http.MethodPost, path, "application/json", `{"apiVersion": "v1", "kind": `+
		`"ConfigMap", `+
		`"metadata": {"name": "applied", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"data\":`+
		`{\"of\":\"kubectl\"}}\n", "note": "stays"}}, "data": {"of": "grey"}}`)
	p.visit("#/configmaps/default/applied/yaml")
	p.changes("of: grey", "of: blue")
	p.sees(`!document.querySelector(".editor").value.includes("kubectl") && ` +
		`document.querySelector(".editor").value.includes("note: stays")`)
	p.accepts("of: blue")
	p.value(`fetch("` + path + `/applied", {headers: {Authorization: "Bearer " + ` +
		`sessionStorage.getItem("monopod-token")}})` +
		`.then((r) => r.json()).then((o) => window.applied = o) && true`)
	p.sees(`window.applied?.data?.of === "blue" && ` +
		`window.applied.metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"].includes("kubectl")`)
}

// plainEditor: without CodeMirror, objects are edited in a text field.
func (p page) plainEditor(a *api) {
	block := func(patterns ...*network.BlockPattern) {
		p.t.Helper()
		if _, err := chromedp.Call(p.ctx, network.SetBlockedURLs, network.SetBlockedURLsParams{URLPatterns: patterns}); err != nil {
			p.t.Fatal(err)
		}
	}
	if _, err := chromedp.Call(p.ctx, network.Enable, network.EnableParams{}); err != nil {
		p.t.Fatal(err)
	}
	block(&network.BlockPattern{URLPattern: "*://*:*/ui/codemirror.js*", Block: true})
	p.load(a.url)
	p.sees(`document.body.dataset.view === "in" && %s === "Live"`, text("#link-text"))
	p.visit("#/create")
	p.sees(`document.querySelector(".drop textarea")`)
	p.fill(".editor textarea", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: plain\nspec:\n  containers: []\n")
	p.press("main", "Check")
	p.press(".review", "Line 6")
	p.sees(`((e) => e.value.slice(e.selectionStart, e.selectionEnd))(document.querySelector(".editor textarea")) === " ` +
		` containers: []"`)
	block()
	if _, err := chromedp.Call(p.ctx, network.Disable, cdp.Empty{}); err != nil {
		p.t.Fatal(err)
	}
}

// offered is a JavaScript expression for the labels of the completions.
const offered = `([...document.querySelectorAll(".cm-tooltip-autocomplete .cm-completionLabel")].map((e) => ` +
	`e.innerText).join())`

// types opens the editor with a text, and types more at its end.
func (p page) types(text, more string) {
	p.t.Helper()
	p.put(".editor", text)
	p.sees(`document.querySelector(".editor .cm-content")`)
	p.value(`document.querySelector(".editor").goto(1e6) || true`)
	p.key(kb.End)
	p.key(more)
}

// fieldCases are texts with a mark where something is completed, and what is offered there.
var fieldCases = []struct{ text, want string }{
	{"¦", "apiVersion size open spec!"},
	{"spec:\n  ¦", "list map! mood name"},
	{"spec:\n  name: a\n  m¦", "list map! mood"},
	{"spec:\n    deeper: true\n    ¦", "list map! mood name"},
	{"spec:\n  mood: ¦", "good bad"},
	{"spec:\n  mood: g¦", "good bad"},
	{"spec:\n  mood:¦", ""},
	{"spec:\n  list:\n  - ¦", "a b"},
	{"spec:\n  list:\n    - a: 1\n      ¦", "b"},
	{"spec:\n  list:\n  - a: 1\n  - ¦", "a b"},
	{"spec:\n  list:\n    ¦", "a b"},
	{"spec:\n  list:\n  - a: 1\n  ¦", "map! mood name"},
	{"spec:\n  map:\n    any:\n      ¦", "a b"},
	{"spec:\n  \"map\":\n    'any': # why\n      ¦", "a b"},
	{"spec:\n  name: |\n    ¦", ""},
	{"spec:\n  name: |\n    mood: x\n  ¦", "list map! mood"},
	{"spec:\n  name: \"a\n    ¦", ""},
	{"spec: {¦", ""},
	{"spec: {name: a,\n  ¦", ""},
	{"spec: # ¦", ""},
	{"spec:\n  other:\n    ¦", ""},
}

// unknownCases are texts, and their fields that the schema does not know.
var unknownCases = []struct{ text, want string }{
	{"spec:\n  nam: x\n  list:\n  - a: 1\n    c: 1\n  - {c: 1}\nextra: 1", "1 spec.nam, 4 spec.list[0].c, 6 extra"},
	{"spec:\n  map:\n    any:\n      c: 1\n    more:\n      a: 1\n", "3 spec.map.any.c"},
	{"spec:\n  name: >-\n    nam: x\n   nam: y\n\n  nam: z", "5 spec.nam"},
	{"spec:\n  name: \"x\n    nam: y\"\n  mood: don't # nam: z\n  nam: z", "4 spec.nam"},
	{"spec:\n  list: [{\n    nam: x},\n    {c: \"]\"}]\n  <<: *others\n", ""},
	{"spec:\n  nam:\n    below: 1\nopen:\n  any: {thing: 1}\n  more: 1", "1 spec.nam"},
	{"{\"apiVersion\": \"v1\",\n \"nam\": 1}", ""},
}

// schema is that of the cases.
const schema = `{
	Item: {type: "object", properties: {a: {type: "string"}, b: {type: "string"}}},
	Root: {type: "object", required: ["spec"], properties: {
		apiVersion: {type: "string"},
		size: {type: "integer"},
		open: {type: "object", "x-kubernetes-preserve-unknown-fields": true, properties: {known: {type: "string"}}},
		spec: {allOf: [{$ref: "#/components/schemas/Spec"}], default: {}}}},
	Spec: {type: "object", required: ["map"], properties: {
		list: {type: "array", items: {allOf: [{$ref: "#/components/schemas/Item"}]}},
		map: {type: "object", additionalProperties: {$ref: "#/components/schemas/Item"}},
		mood: {type: "string", enum: ["good", "bad", ""]},
		name: {type: "string"}}},
}`

// TestFieldsOfYAML tests what is completed and marked in YAML by a schema.
func TestFieldsOfYAML(t *testing.T) {
	p := open(t, serve(t).url)
	ask := func(text, expression string) any {
		return p.value(fmt.Sprintf(`(async () => {
			const {fieldsOf, placeAt, spellPath} = await import("/ui/fields.js"), {completions, unknown} = await import("/ui/schema.js");
			const schemas = %s, text = %q;
			window.answer = %s;
		})().catch((err) => window.answer = String(err)) && delete window.answer`, schema, text, expression))
	}
	for _, c := range fieldCases {
		before, after, _ := strings.Cut(c.text, "¦")
		ask(before+after, fmt.Sprintf(`((place) => place ? completions(schemas, schemas.Root, place, `+
			`fieldsOf(text)).map((c) => `+
			`c.label + (c.required ? "!" : "")).join(" ") : "")(placeAt(text, %d, %d))`,
			strings.Count(before, "\n"), len(before)-strings.LastIndex(before, "\n")-1))
		p.sees(`"answer" in window`)
		if got := p.value(`window.answer`); got != c.want {
			t.Errorf("%q: offers %q, want %q", c.text, got, c.want)
		}
	}
	for _, c := range unknownCases {
		ask(c.text, `unknown(schemas, schemas.Root, fieldsOf(text)).map((f) => f.line + " " + spellPath(f.path)).join(", ")`)
		p.sees(`"answer" in window`)
		if got := p.value(`window.answer`); got != c.want {
			t.Errorf("%q: does not know %q, want %q", c.text, got, c.want)
		}
	}
}
