package addon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Each rank is applied before what needs it, and the order of the manifests is kept within a rank.
func TestOrder(t *testing.T) {
	t.Parallel()
	var all []planned
	for _, e := range []entry{
		{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration", Name: "hook"},
		{Group: "example.com", Kind: "Widget", Resource: "widgets", Name: "widget"},
		{Group: "example.org", Kind: "Gadget", Resource: "gadgets", Name: "gadget-of-others"},
		{Group: "apps", Kind: "Deployment", Resource: "deployments", Name: "web"},
		{Kind: "Service", Resource: "services", Name: "web"},
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"},
		{Kind: "Namespace", Resource: "namespaces", Name: "shop"},
	} {
		all = append(all, planned{entry: e})
	}
	order(all)
	var got []string
	for _, p := range all {
		got = append(got, p.entry.String())
	}
	want := []string{"Namespace shop", "CustomResourceDefinition widgets.example.com", "Gadget gadget-of-others",
		"Deployment web", "Service web", "Widget widget", "ValidatingWebhookConfiguration hook"}
	if !slices.Equal(got, want) {
		t.Errorf("applied in the order %q, want %q", got, want)
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	at := func(uid, addon, manager string) *metav1.PartialObjectMetadata {
		live := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
		if addon != "" {
			live.Labels = map[string]string{Label: addon}
		}
		if manager != "" {
			live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager}}
		}
		return live
	}
	deleting := at("1", "shop", "")
	deleting.DeletionTimestamp = &metav1.Time{}
	kept := &entry{UID: "1", Kept: true}
	for name, c := range map[string]struct {
		was     *entry // in the inventory; nil: none
		live    *metav1.PartialObjectMetadata
		force   bool
		uid     types.UID
		kept    bool
		problem string
	}{
		"new":                          {},
		"updated":                      {was: &entry{UID: "1"}, live: at("1", "shop", ""), uid: "1"},
		"created before a crash":       {was: &entry{}, live: at("1", "shop", ""), uid: "1"},
		"not created before a crash":   {was: &entry{}},
		"deleted by somebody":          {was: &entry{UID: "1"}},
		"of the addon, inventory lost": {live: at("1", "shop", ""), uid: "1"},
		"of kubectl":                   {live: at("1", "", "kubectl"), problem: "ConfigMap c, written by kubectl"},
		"of kubectl before a crash": {was: &entry{}, live: at("1", "", "kubectl"),
			problem: "ConfigMap c, written by kubectl"},
		"of another addon": {live: at("1", "site", "x"), problem: "ConfigMap c, of the addon site"},
		"replaced":         {was: &entry{UID: "1"}, live: at("2", "", ""), problem: "ConfigMap c"},
		"replaced by a copy": {was: &entry{UID: "1"}, live: at("2", "shop", ""),
			problem: "ConfigMap c, of the addon shop"},
		"being deleted": {live: deleting, force: true,
			problem: "ConfigMap c is being deleted: wait until it is gone"},
		"taken over":                        {live: at("1", "", "kubectl"), force: true, uid: "1", kept: true},
		"taken over before":                 {was: kept, live: at("1", "", "kubectl"), uid: "1", kept: true},
		"taken over before, then recreated": {was: kept},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []planned{{entry: entry{Kind: "ConfigMap", Name: "c"}, live: c.live}}
			var inventory []entry
			if c.was != nil {
				was := *c.was
				was.Kind, was.Name = "ConfigMap", "c"
				inventory = []entry{was}
			}
			stale, problems := adopt("shop", objects, inventory, c.force)
			if got := strings.Join(problems, "; "); got != c.problem || len(stale) > 0 {
				t.Errorf("problems %q, want %q; stale %v", got, c.problem, stale)
			}
			if e := objects[0].entry; e.UID != c.uid || e.Kept != c.kept {
				t.Errorf("UID %q, kept %v, want %q, %v", e.UID, e.Kept, c.uid, c.kept)
			}
		})
	}
}

// What the addon no longer has is stale, whatever the version of its kind.
func TestStale(t *testing.T) {
	t.Parallel()
	objects := []planned{{entry: entry{Group: "example.com", Version: "v2", Kind: "Widget", Name: "a"}}}
	stale, _ := adopt("shop", objects, []entry{
		{Group: "example.com", Version: "v1", Kind: "Widget", Name: "b"},
		{Group: "example.com", Version: "v1", Kind: "Widget", Name: "a"},
	}, false)
	if len(stale) != 1 || stale[0].Name != "b" {
		t.Errorf("stale %v, want b", stale)
	}
}

const manifest = `# one
apiVersion: v1
kind: ConfigMap
metadata: {name: one}
--- # two
# only a comment
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: two}
  spec:
    containers:
    - name: web
      image: web
--- {apiVersion: v1, kind: ConfigMap, metadata: {name: three, labels: {app.kubernetes.io/version: v7}}}
`

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": manifest, "README.md": "no manifest",
		"a.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"zero"}}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := strings.NewReader("apiVersion: v1\r\nkind: ConfigMap\r\nmetadata: {name: four}\r\n---\r\n")
	set, err := Read("shop", []string{dir, "-"}, in)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range set.objects {
		names = append(names, o.GetName())
	}
	if got := strings.Join(names, " "); got != "zero one two three four" {
		t.Errorf("objects %s", got)
	}
	if set.Version != "v7" || set.Source != filepath.Base(dir)+", standard input" {
		t.Errorf("version %q, source %q", set.Version, set.Source)
	}
	file := filepath.Join(dir, "b.yaml")
	for field, line := range map[string]string{"": ":11", "spec.containers[0].image": ":17",
		"spec.containers[0].none": ":16", "metadata.labels[a.b/c]": ":13"} {
		if got := set.objects[2].at(field); got != file+line {
			t.Errorf("%q is at %s, want %s", field, got, line)
		}
	}
	for message, line := range map[string]string{
		`strict decoding error: unknown field "spec.containers[0].image"`:                  ":17",
		`failed to create typed patch object: .spec.containers: expected list, got string`: ":16",
		"forbidden": ":11",
	} {
		if got := set.objects[2].failed(errors.New(message)).Error(); got != file+line+": Pod two: "+message {
			t.Errorf("got %s", got)
		}
	}
	conflict := apierrors.NewApplyConflict(nil, `conflict with "kubectl": .data`)
	if got := set.objects[2].failed(conflict).Error(); !strings.HasSuffix(got, "; --force takes these fields over") {
		t.Errorf("got %s", got)
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                               "standard input contains no objects",
		"# nothing":                      "standard input contains no objects",
		"--- # nothing\n---\na: 1":       "-:3: an object needs apiVersion and kind",
		"- a":                            "-:1: an object is expected",
		"---\napiVersion: v1\nkind: Pod": "-:2: the Pod needs a metadata.name",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nb: {\n":         "line 5",
		"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  name: b\n":        `line 5: key "name" already set in map`,
		"apiVersion: a/b/c\nkind: Pod\nmetadata: {name: a}":                   "-:1: unexpected GroupVersion string",
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n": "-:4: the Pod needs a metadata.name",
		"apiVersion: v1\nkind: List\nitems:\n- a\n":                           "-:4: an object is expected",
	} {
		_, err := Read("shop", []string{"-"}, strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	object := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}"
	for _, name := range []string{"", "Shop", "a.b", "../x", strings.Repeat("a", 64)} {
		if _, err := Read(name, []string{"-"}, strings.NewReader(object)); err == nil {
			t.Errorf("the name %q is accepted", name)
		}
	}
	_, err := Read("shop", []string{t.TempDir()}, nil)
	if err == nil || !strings.Contains(err.Error(), "contains no .yaml") {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestEstablished(t *testing.T) {
	t.Parallel()
	type condition = apiextensionsv1.CustomResourceDefinitionCondition
	names := condition{Type: apiextensionsv1.NamesAccepted, Status: "False", Message: "taken"}
	served := condition{Type: apiextensionsv1.Established, Status: "True"}
	if ok, err := isEstablished(nil); ok || err != nil {
		t.Errorf("without conditions: %v, %v", ok, err)
	}
	if ok, err := isEstablished([]condition{served}); !ok || err != nil {
		t.Errorf("established: %v, %v", ok, err)
	}
	// A definition that was served before keeps being served when a change of its names is refused.
	if _, err := isEstablished([]condition{served, names}); err == nil {
		t.Error("names that another definition has are no error")
	}
}

// The addons in the program are readable, and have the version that they state.
func TestBuiltIn(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		set, err := BuiltIn(name)
		if err != nil || len(set.objects) == 0 {
			t.Fatalf("%s: %d objects, %v", name, len(set.objects), err)
		}
	}
	set, err := BuiltIn("gateway-api")
	if err != nil {
		t.Fatal(err)
	}
	if got := versionOf(set.objects); got != set.Version {
		t.Errorf("gateway-api is %s, and states %s", got, set.Version)
	}
	kinds := defines(set.objects)
	for _, kind := range []string{"GatewayClass", "Gateway", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute",
		"ReferenceGrant", "BackendTLSPolicy", "ListenerSet"} {
		of := kinds[schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: kind}]
		if !slices.Contains(of.versions, "v1") && !slices.Contains(of.versions, "v1beta1") {
			t.Errorf("%s is defined in the versions %v", kind, of.versions)
		}
	}
	_, err = BuiltIn("none")
	if err == nil || !strings.Contains(err.Error(), "--file, or choose gateway-api or metrics") {
		t.Errorf("an unknown addon: %v", err)
	}
	use := Use("metrics", "https://box:6443")
	if !strings.Contains(use, "['box:6443']") || !strings.Contains(use, "open https://box:6443/ ") {
		t.Errorf("how to use metrics:\n%s", use)
	}
}
