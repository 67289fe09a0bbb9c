package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// allRooms lists the rooms of the program. A room is a folder with all packages below it that do not belong to another
// room. Its packages import packages of the room itself, and of the rooms in imports, which precede it in the list.
var allRooms = []struct{ room, imports string }{
	{"store", ""},
	{"store/bolt", "store"},
	{"store/etcd", "store"},
	{"store/state", "store store/bolt store/etcd"},
	{"store/datadir", ""},

	{"apiserver/kit", "store"},
	{"apiserver/patch", ""},
	{"apiserver/auth", ""},
	{"apiserver/audit", "apiserver/auth"},
	{"apiserver/request", "apiserver/auth apiserver/kit"},
	{"apiserver/registry", "apiserver/audit apiserver/auth apiserver/kit apiserver/patch store"},
	{"apiserver/codec", "apiserver/audit apiserver/kit apiserver/registry apiserver/request store"},
	{"apiserver/access", "apiserver/audit apiserver/auth apiserver/codec apiserver/kit apiserver/request"},
	{"apiserver/flow", "apiserver/auth apiserver/codec apiserver/kit apiserver/request"},
	{"apiserver/connect",
		"apiserver/auth apiserver/codec apiserver/flow apiserver/kit apiserver/registry apiserver/request store"},
	{"apiserver/aggregate", "apiserver/auth apiserver/codec apiserver/connect apiserver/kit apiserver/registry"},
	{"apiserver/discovery",
		"apiserver/aggregate apiserver/codec apiserver/kit apiserver/patch apiserver/registry apiserver/request"},
	{"apiserver/why", "apiserver/kit"},
	{"apiserver/status", "apiserver/auth apiserver/kit apiserver/why"},
	{"apiserver/admin", "apiserver/access apiserver/auth apiserver/codec apiserver/request apiserver/status"},
	{"apiserver/virtual",
		"apiserver/access apiserver/auth apiserver/codec apiserver/flow apiserver/kit apiserver/registry " +
			"apiserver/request apiserver/why"},
	{"apiserver",
		"apiserver/access apiserver/admin apiserver/aggregate apiserver/audit apiserver/auth apiserver/codec " +
			"apiserver/connect apiserver/discovery " +
			"apiserver/flow apiserver/kit apiserver/patch apiserver/registry apiserver/request apiserver/status " +
			"apiserver/virtual apiserver/why store"},
	{"apiserver/setup",
		"apiserver apiserver/access apiserver/aggregate apiserver/audit apiserver/auth apiserver/connect apiserver/flow " +
			"apiserver/kit " +
			"apiserver/registry apiserver/status apiserver/virtual store store/state"},

	{"controllers", "apiserver/kit"},

	{"agent/host", "apiserver/kit"},
	{"agent/podapi", "agent/host"},
	{"agent/network", "apiserver/kit"},
	{"agent/network/nodes", "agent/network apiserver/kit"},
	{"agent/logs", "agent/host agent/podapi apiserver/kit"},
	{"agent/resources", "agent/host agent/podapi apiserver/kit"},
	{"agent/storage", "agent/host agent/podapi agent/resources apiserver/kit"},
	{"agent/source", "agent/podapi apiserver/kit"},
	{"agent/predicates", "agent/podapi agent/resources"},
	{"agent/stats", "agent/host agent/podapi agent/resources agent/storage apiserver/kit"},
	{"agent/pressure", "agent/host agent/podapi agent/stats apiserver/kit"},
	{"agent/runtime", "agent/host agent/network agent/podapi agent/resources apiserver/kit"},
	{"agent/images", "agent/host agent/podapi agent/runtime apiserver/kit"},
	{"agent/pod",
		"agent/host agent/images agent/logs agent/podapi agent/predicates agent/resources agent/runtime agent/source " +
			"agent/storage apiserver/kit"},
	{"agent/node", "agent/host agent/logs agent/podapi agent/predicates agent/pressure agent/runtime apiserver/kit"},
	{"agent/join", "apiserver/auth apiserver/kit"},
	{"agent/offline", "apiserver/auth apiserver/kit"},
	{"agent", "agent/host agent/images agent/logs agent/network agent/network/nodes agent/node agent/pod " +
		"agent/podapi agent/predicates agent/pressure agent/resources " +
		"agent/runtime agent/source agent/stats agent/storage apiserver/kit"},
	{"agent/cmd",
		"agent agent/host agent/join agent/node agent/offline agent/resources agent/runtime apiserver/admin apiserver/auth " +
			"apiserver/kit apiserver/setup " +
			"apiserver/status " +
			"apiserver/why store store/bolt store/datadir store/etcd store/state"},

	{"web", ""},
	{"", "agent agent/cmd agent/host agent/network apiserver apiserver/admin apiserver/kit apiserver/setup " +
		"apiserver/status controllers store/datadir web"},
}

// TestRooms tests that allRooms contains exactly the imports between rooms, and that a room imports only earlier rooms.
func TestRooms(t *testing.T) {
	t.Parallel()
	all := program(t)
	imports := map[string]map[string]string{} // importing room, imported room: an example
	for _, p := range all {
		from := roomOf(p.ImportPath)
		if imports[from] == nil {
			imports[from] = map[string]string{}
		}
		for _, dep := range p.imports() {
			if to := roomOf(dep); to != from {
				imports[from][to] = p.ImportPath + " imports " + dep
			}
		}
	}
	var before []string
	for _, h := range allRooms {
		listed := strings.Fields(h.imports)
		for to, example := range imports[h.room] {
			if !slices.Contains(listed, to) {
				t.Errorf("room %q may not import %q: %s", h.room, to, example)
			}
		}
		for _, to := range listed {
			if !slices.Contains(before, to) {
				t.Errorf("room %q imports %q, which does not precede it", h.room, to)
			}
			if imports[h.room][to] == "" {
				t.Errorf("room %q no longer imports %q: remove it from the list", h.room, to)
			}
		}
		before = append(before, h.room)
		if imports[h.room] == nil {
			t.Errorf("room %q has no package: remove it from the list", h.room)
		}
	}
	for from := range imports {
		if !slices.Contains(before, from) {
			t.Errorf("room %q is not listed", from)
		}
	}
}

// roomOf returns the room of a package: the longest listed folder that contains it.
func roomOf(path string) (room string) {
	path = strings.TrimPrefix(strings.TrimPrefix(path, "monopod"), "/")
	for _, h := range allRooms {
		if (path == h.room || strings.HasPrefix(path, h.room+"/")) && len(h.room) > len(room) {
			room = h.room
		}
	}
	if room == "" && path != "" {
		return path
	}
	return room
}

// TestFoldersImportInOneDirection tests that of two folders in the same folder, including their subfolders, at most one
// imports the other.
func TestFoldersImportInOneDirection(t *testing.T) {
	t.Parallel()
	examples := map[[2]string]string{} // importing folder, imported folder: an example
	for _, p := range program(t) {
		for _, dep := range p.imports() {
			if from, to, ok := siblings(p.ImportPath, dep); ok {
				examples[[2]string{from, to}] = p.ImportPath + " imports " + dep
			}
		}
	}
	for pair, example := range examples {
		if back, both := examples[[2]string{pair[1], pair[0]}]; both && pair[0] < pair[1] {
			t.Errorf("%s and %s import each other: %s, %s", pair[0], pair[1], example, back)
		}
	}
}

// siblings returns the two folders that contain one of the packages each and have the same parent. ok is false if one
// package is below the other.
func siblings(a, b string) (from, to string, ok bool) {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return strings.Join(as[:i+1], "/"), strings.Join(bs[:i+1], "/"), true
		}
	}
	return "", "", false
}

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath    string
	Imports, Deps []string
}

func (p pkg) imports() []string { return ours(p.Imports) }
func (p pkg) deps() []string    { return ours(p.Deps) }

func ours(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(d string) bool { return !strings.HasPrefix(d, "monopod/") })
}

// program returns package main and the packages of monopod that are linked into it.
func program(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", ".", "./agent/...", "./apiserver/...",
		"./controllers/...", "./store/...", "./web/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	linked := all[slices.IndexFunc(all, func(p pkg) bool { return p.ImportPath == "monopod" })].Deps
	return slices.DeleteFunc(all,
		func(p pkg) bool { return p.ImportPath != "monopod" && !slices.Contains(linked, p.ImportPath) })
}

func TestTheProgramContainsNoTestdata(t *testing.T) {
	t.Parallel()
	for _, p := range program(t) {
		if p.ImportPath != "monopod" {
			continue
		}
		for _, dep := range p.deps() {
			if strings.HasPrefix(dep, "monopod/testdata/") {
				t.Errorf("the program contains %s", dep)
			}
		}
	}
}

// docs/dependencies.md names every direct requirement of go.mod, and no module that go.mod does not require.
func TestDocsListEveryDependency(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	modules, _, _ := strings.Cut(string(page), "\n## Written by us")
	var listed []string
	for _, word := range strings.FieldsFunc(modules, func(c rune) bool { return strings.ContainsRune(" \n,|()`", c) }) {
		if host, _, ok := strings.Cut(word, "/"); ok && strings.Contains(host, ".") {
			listed = append(listed, strings.TrimSuffix(word, "."))
		}
	}
	used := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		module, version, ok := strings.Cut(strings.TrimSpace(line), " v")
		if !ok || !strings.Contains(module, "/") {
			continue
		}
		found := false
		for _, name := range listed {
			if name == module || strings.HasPrefix(module, name+"/v") || strings.HasPrefix(name, module+"/") {
				found, used[name] = true, true
			}
		}
		if !found && !strings.HasSuffix(strings.TrimSpace(version), "// indirect") {
			t.Errorf("docs/dependencies.md does not name %s", module)
		}
	}
	for _, name := range listed {
		if !used[name] {
			t.Errorf("docs/dependencies.md names %s, which go.mod does not require", name)
		}
	}
}
