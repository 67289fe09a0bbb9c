package kindtest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/kind"
)

// Of returns the resource of a kind.
func Of(t *testing.T, resources []kind.Resource, name string) kind.Resource {
	t.Helper()
	for _, r := range resources {
		if r.Kind == name {
			return r
		}
	}
	t.Fatalf("no kind %s", name)
	return kind.Resource{}
}

// With replaces one part of text. It fails the test if text does not contain old.
func With(t *testing.T, text, old, new string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("no %q in %s", old, text)
	}
	return strings.Replace(text, old, new, 1)
}

// Case is an object of a kind with the wanted result.
type Case = struct{ Kind, Object, Want string }

// CheckDefaults creates objects and compares them, without metadata, with the wanted YAML.
func CheckDefaults(t *testing.T, resources []kind.Resource, cases []Case) {
	t.Helper()
	for _, c := range cases {
		obj := Create(t, Of(t, resources, c.Kind), c.Object)
		obj.SetGeneration(0)
		text, err := yaml.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.Want, strings.Replace(string(text), "metadata: {}\n", "", 1)); diff != "" {
			t.Errorf("%s %s: %s", c.Kind, c.Object, diff)
		}
	}
}

// CheckWarnings creates objects and compares their warnings, one for each line.
func CheckWarnings(t *testing.T, resources []kind.Resource, cases []Case) {
	t.Helper()
	for _, c := range cases {
		r := Of(t, resources, c.Kind)
		if diff := cmp.Diff(c.Want, strings.Join(r.Warnings(Create(t, r, c.Object), nil), "\n")); diff != "" {
			t.Errorf("%s %s: %s", c.Kind, c.Object, diff)
		}
	}
}

// CheckColumns compares the headings of all kinds, and the rows of objects as Row prints them.
func CheckColumns(t *testing.T, resources []kind.Resource, headings map[string]string, cases []Case) {
	t.Helper()
	for _, r := range resources {
		if diff := cmp.Diff(headings[r.Kind], Headings(r.Columns)); diff != "" {
			t.Errorf("%s: %s", r.Kind, diff)
		}
	}
	for _, c := range cases {
		r := Of(t, resources, c.Kind)
		obj := r.New()
		if err := yaml.UnmarshalStrict([]byte(c.Object), obj); err != nil {
			t.Fatal(err)
		}
		if got := Row(t, r.Columns, obj); got != c.Want {
			t.Errorf("%s:\n got %s\nwant %s", c.Kind, got, c.Want)
		}
	}
}
