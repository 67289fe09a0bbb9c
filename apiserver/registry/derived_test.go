package registry_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
)

// The client derives each kind's resource from its Go type.
func TestResourcesFollowTheirTypes(t *testing.T) {
	t.Parallel()
	for _, res := range registry.Resources() {
		if res.Virtual && res.GVR.Group == "metrics.k8s.io" {
			continue // not upstream's types: their TypeMeta has the kind
		}
		if got, ok := client.ResourceOf(res.New()); !ok || got != res.GVR {
			t.Errorf("%s: %v %v, want %v", res.Kind, got, ok, res.GVR)
		}
	}
}

// docs/api.md lists every kind, with its verbs and subresources.
func TestDocsListEveryKind(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 { // three cells, and the text before and after them
			continue
		}
		cells = cells[1:4]
		for _, kind := range strings.FieldsFunc(cells[0], func(c rune) bool { return strings.ContainsRune(" ,()", c) }) {
			rows[kind] = cells
		}
	}
	for _, res := range registry.Resources() {
		row := rows[res.Kind]
		switch {
		case row == nil && res.GVR.Group != "authentication.k8s.io" && res.GVR.Group != "authorization.k8s.io":
			t.Errorf("docs/api.md does not list %s", res.Kind)
			continue
		case row == nil:
			continue // the docs describe reviews in a separate paragraph
		}
		var subs []string
		for _, sub := range res.Subresources {
			subs = append(subs, sub.Name)
		}
		slices.Sort(subs)
		listed := strings.FieldsFunc(row[2], func(c rune) bool { return c == ' ' || c == ',' })
		slices.Sort(listed)
		if !slices.Equal(subs, listed) {
			t.Errorf("docs/api.md: %s has the subresources %v, it lists %v", res.Kind, subs, listed)
		}
		verbs, _, _ := strings.Cut(row[1], ";")
		all := strings.TrimSpace(verbs) == "all"
		for _, verb := range []string{"create", "get", "list", "watch", "update", "patch", "delete"} {
			if said := all || slices.Contains(strings.Fields(strings.ReplaceAll(verbs, ",", " ")), verb); said != res.Can(verb) {
				t.Errorf("docs/api.md: %s, verb %s: %v, want %v", res.Kind, verb, said, res.Can(verb))
			}
		}
	}
}
