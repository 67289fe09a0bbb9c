package main_test

import (
	"slices"
	"strings"
	"testing"
)

// mutual are the pairs of folders on one floor that import each other today. The list only
// shrinks: a pair that no longer does is an error.
var mutual = [][2]string{
	{"monopod/agent/admission", "monopod/agent/pod"},
	{"monopod/agent/images", "monopod/agent/pod"},
	{"monopod/agent/images", "monopod/agent/runtime"},
	{"monopod/agent/logs", "monopod/agent/pod"},
	{"monopod/agent/node", "monopod/agent/pod"},
	{"monopod/agent/node", "monopod/agent/pressure"},
	{"monopod/agent/node", "monopod/agent/resources"},
	{"monopod/agent/pod", "monopod/agent/resources"},
	{"monopod/agent/pod", "monopod/agent/runtime"},
	{"monopod/agent/pod", "monopod/agent/source"},
	{"monopod/agent/pod", "monopod/agent/storage"},
	{"monopod/apiserver", "monopod/store"},
	{"monopod/apiserver/access", "monopod/apiserver/kit/client"},
	{"monopod/apiserver/access", "monopod/apiserver/codec"},
	{"monopod/apiserver/access", "monopod/apiserver/registry"},
	{"monopod/apiserver/access", "monopod/apiserver/request"},
	{"monopod/apiserver/codec", "monopod/apiserver/registry"},
	{"monopod/apiserver/connect", "monopod/apiserver/discovery"},
	{"monopod/apiserver/discovery", "monopod/apiserver/registry"},
}

// TestFoldersDependInOneDirection: of two folders below the same folder, at most one imports
// the other, with all that is in them.
func TestFoldersDependInOneDirection(t *testing.T) {
	t.Parallel()
	examples := map[[2]string]string{} // importing folder, imported folder: one import
	for _, p := range program(t) {
		for _, dep := range p.imports() {
			from, to, ok := siblings(p.ImportPath, dep)
			if ok && examples[[2]string{from, to}] == "" {
				examples[[2]string{from, to}] = p.ImportPath + " imports " + dep
			}
		}
	}
	var found [][2]string
	for pair, example := range examples {
		back, both := examples[[2]string{pair[1], pair[0]}]
		if !both || pair[0] > pair[1] {
			continue
		}
		found = append(found, pair)
		if !slices.Contains(mutual, pair) {
			t.Errorf("%s and %s import each other: %s, %s", pair[0], pair[1], example, back)
		}
	}
	for _, pair := range mutual {
		if !slices.Contains(found, pair) {
			t.Errorf("%s and %s no longer import each other: remove them from the list", pair[0], pair[1])
		}
	}
}

// siblings returns the folders, below the last folder that both packages are in, that contain
// them. ok is false if one package is below the other.
func siblings(a, b string) (from, to string, ok bool) {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return strings.Join(as[:i+1], "/"), strings.Join(bs[:i+1], "/"), true
		}
	}
	return "", "", false
}
