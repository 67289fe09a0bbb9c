package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// The house (README): what each part may know of the others. A part may always
// know its own sub-packages.
var mayKnow = map[string][]string{
	"monopod/store":                             {},
	"monopod/store/bolt":                        {"monopod/store"},
	"monopod/store/etcd":                        {"monopod/store"},
	"monopod/apiserver/client":                  {"monopod/store"},
	"monopod/apiserver/registry/kind/table":     {"monopod/store"},
	"monopod/apiserver/codec/patch":             {},
	"monopod/apiserver/codec/cbor":              {},
	"monopod/apiserver/codec/bounded":           {"monopod/apiserver/codec/wire"},
	"monopod/apiserver/codec":                   {"monopod/apiserver/access", "monopod/apiserver/discovery/openapi/definitions", "monopod/apiserver/client", "monopod/apiserver/registry/kind", "monopod/apiserver/registry/view", "monopod/apiserver/request", "monopod/store"},
	"monopod/apiserver/access":                  {"monopod/apiserver/client", "monopod/apiserver/request", "monopod/store"},
	"monopod/apiserver/flow":                    {"monopod/apiserver/access", "monopod/apiserver/discovery/openapi/definitions", "monopod/apiserver/client", "monopod/apiserver/codec", "monopod/apiserver/registry/kind", "monopod/apiserver/registry/view", "monopod/apiserver/request", "monopod/store"},
	"monopod/apiserver/request":                 {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/store"},
	"monopod/apiserver/process/backoff":         {}, // what every part of the process may use
	"monopod/apiserver/process/folder":          {},
	"monopod/apiserver/process/guard":           {"monopod/apiserver/process/backoff"},
	"monopod/apiserver/process/health":          {},
	"monopod/apiserver/process/notify":          {},
	"monopod/apiserver/process/memory":          {},
	"monopod/apiserver/follow":                  {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/registry":                {"monopod/apiserver/codec/bounded", "monopod/apiserver/codec/patch", "monopod/apiserver/codec/quantity", "monopod/apiserver/codec/wire", "monopod/apiserver/discovery/openapi/definitions", "monopod/apiserver/discovery/openapi/kept", "monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/access/auth":             {"monopod/apiserver/client", "monopod/store"},
	"monopod/apiserver/discovery/openapi":       {"monopod/apiserver/codec/patch", "monopod/apiserver/codec/quantity", "monopod/apiserver/codec/wire", "monopod/apiserver/access", "monopod/apiserver/registry", "monopod/apiserver/client", "monopod/store"},
	"monopod/apiserver":                         {"monopod/store"},
	"monopod/apiserver/launch":                  {"monopod/apiserver", "monopod/store"},
	"monopod/controllers":                       {"monopod/apiserver/client", "monopod/apiserver/follow", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/registry/check":          {}, // checks of fields
	"monopod/apiserver/registry/volume":         {"monopod/apiserver/client", "monopod/apiserver/registry/check", "monopod/store"},
	"monopod/agent":                             {"monopod/apiserver/registry/volume", "monopod/apiserver/registry/check", "monopod/apiserver/process", "monopod/apiserver/follow", "monopod/apiserver/client", "monopod/apiserver/codec/bounded", "monopod/apiserver/codec/wire", "monopod/store"},
	"monopod/agent/runtime/cri":                 {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/runtime/containerd":          {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/runtime":                     {},
	"monopod/agent/runtime/fake":                {"monopod/agent/runtime", "monopod/apiserver/process"},
	"monopod/agent/launch":                      {"monopod/agent", "monopod/apiserver/registry/volume", "monopod/apiserver/registry/check", "monopod/apiserver/process", "monopod/apiserver/follow", "monopod/apiserver/client", "monopod/apiserver/codec/bounded", "monopod/apiserver/codec/wire", "monopod/store"},
	"monopod/agent/network":                     {"monopod/apiserver/client", "monopod/apiserver/follow", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/network/nft":                 {"monopod/apiserver/process"},
	"monopod/agent/network/policy":              {"monopod/agent/network/nft", "monopod/apiserver/process"},
	"monopod/agent/network/dump":                {},
	"monopod/agent/network/service":             {"monopod/agent/network/dump", "monopod/agent/network/nft", "monopod/apiserver/process"},
	"monopod/agent/network/cni":                 {"monopod/agent/network/dump", "monopod/agent/network/nft", "monopod/apiserver/process"},
	"monopod/agent/network/cni/rules":           {"monopod/agent/network/dump", "monopod/agent/network/nft", "monopod/apiserver/process"},
	"monopod/agent/network/cni/subnets":         {"monopod/agent/network/dump"},
	"monopod/agent/network/cni/shape":           {"monopod/agent/network/dump"},
	"monopod/agent/node/inspectcmd":             {"monopod/agent", "monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/node/installcmd":             {"monopod/agent", "monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/node/check":                  {"monopod/agent", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/pod/plan":                    {"monopod/agent", "monopod/apiserver/process"}, // what decides knows nothing of the API's client
	"monopod/agent/pod/observe":                 {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/pod/pace":                    {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/pod/resize":                  {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/resources/placement":         {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/runtime/inventory":           {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/admission":                   {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/pressure/eviction":           {"monopod/agent", "monopod/apiserver/client/claim", "monopod/apiserver/registry/check", "monopod/apiserver/registry/volume", "monopod/apiserver/process"},
	"monopod/agent/images/garbage":              {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/images/collector":            {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/runtime/relist":              {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/runtime/containerd/resetcmd": {"monopod/agent", "monopod/apiserver/process", "monopod/store/bolt/flock"},
	"monopod/apiserver/access/admin":            {"monopod/apiserver/access", "monopod/apiserver/codec", "monopod/apiserver/discovery/openapi/definitions", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/apiserver/registry/kind", "monopod/apiserver/registry/view", "monopod/apiserver/request", "monopod/store"},
	"monopod/apiserver/access/entry":            {"monopod/apiserver/access", "monopod/apiserver/codec", "monopod/apiserver/discovery/openapi/definitions", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/apiserver/registry/kind", "monopod/apiserver/registry/view", "monopod/apiserver/request", "monopod/store"},
	"monopod/apiserver/access/node":             {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/follow", "monopod/apiserver/process", "monopod/apiserver/registry/check", "monopod/apiserver/registry/volume", "monopod/store"},
	"monopod/apiserver/access/rbac":             {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/follow", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/flow/configure":          {"monopod/apiserver/access", "monopod/apiserver/flow", "monopod/apiserver/client", "monopod/apiserver/follow", "monopod/apiserver/process", "monopod/store"},
	"monopod/store/bolt/snapshotcmd":            {"monopod/apiserver/process", "monopod/store"},
	"monopod/web":                               {},
	"monopod/controllers/launch":                {"monopod/controllers", "monopod/apiserver/client", "monopod/apiserver/follow", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/node/nodecmd":                {"monopod/agent", "monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/clientcmd":        {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/launch/statecmd":         {"monopod/apiserver", "monopod/store"},
	"monopod/apiserver/client/record":           {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/why":              {"monopod/apiserver/client", "monopod/store"},
	"monopod/apiserver/client/spelling":         {},
	"monopod/apiserver/client/local":            {"monopod/apiserver/client/spelling"}, // what the commands reach a server with
	"monopod/apiserver/client/whycmd":           {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/status":           {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/store"},
	"monopod/apiserver/client/statuscmd":        {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/logscmd":          {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/kubectlcmd":       {"monopod/apiserver/client/local", "monopod/apiserver/client/spelling"},
	"monopod/apiserver/client/dashboardcmd":     {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/completion":       {"monopod/apiserver/client", "monopod/apiserver/process"},
	"monopod/apiserver/client/images":           {},
	"monopod/apiserver/client/imagescmd":        {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/archive":          {},
	"monopod/apiserver/client/runcmd":           {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
}

// forbidden are pairs that the table alone would let through.
var forbidden = map[string][]string{
	"monopod/agent":             {"monopod/agent/runtime/cri", "monopod/agent/runtime/containerd", "monopod/agent/runtime/fake", "monopod/agent/launch"},
	"monopod/agent/runtime/cri": {"monopod/agent/runtime/containerd"},
	// The parts of a pod's worker do not know each other's users.
	"monopod/agent/pod/observe":    {"monopod/agent/pod/images", "monopod/agent/pod/volumes", "monopod/agent/pod/sandbox", "monopod/agent/pod/containers"},
	"monopod/agent/pod/images":     {"monopod/agent/pod/volumes", "monopod/agent/pod/sandbox", "monopod/agent/pod/containers"},
	"monopod/agent/pod/volumes":    {"monopod/agent/pod/sandbox", "monopod/agent/pod/containers"},
	"monopod/agent/pod/sandbox":    {"monopod/agent/pod/images", "monopod/agent/pod/volumes", "monopod/agent/pod/containers"},
	"monopod/agent/pod/containers": {"monopod/agent/launch", "monopod/agent/runtime/cri", "monopod/agent/runtime/containerd", "monopod/agent/runtime/fake"},
	"monopod/store":                {"monopod/store/bolt", "monopod/store/etcd"},
	"monopod/store/bolt":           {"monopod/store/etcd"},
	"monopod/store/etcd":           {"monopod/store/bolt"},
}

// TestPartsImportOnlyListedParts: every package of the program belongs to a part of the list, the
// nearest folder above it that is listed, and needs only what the part may know.
func TestPartsImportOnlyListedParts(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, p := range program(t) {
		part := p.ImportPath
		for ; mayKnow[part] == nil && part != "monopod"; part = path.Dir(part) {
		}
		if listed[part] = true; part == "monopod" {
			if p.ImportPath != "monopod" {
				t.Errorf("%s belongs to no part of the list", p.ImportPath)
			}
			continue
		}
		for _, dep := range p.deps() {
			if !below(dep, append(mayKnow[part], part)) || below(dep, forbidden[p.ImportPath]) {
				t.Errorf("%s knows %s", p.ImportPath, dep)
			}
		}
	}
	for part := range mayKnow {
		if !listed[part] {
			t.Errorf("%s is listed, and has no package", part)
		}
	}
}

func below(pkg string, roots []string) bool {
	for _, r := range roots {
		if pkg == r || strings.HasPrefix(pkg, r+"/") {
			return true
		}
	}
	return false
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

// program returns main and the packages below the top-level folders that are linked into it.
func program(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", ".", "./agent/...", "./apiserver/...", "./controllers/...", "./store/...", "./web/...").Output()
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
	return slices.DeleteFunc(all, func(p pkg) bool { return p.ImportPath != "monopod" && !slices.Contains(linked, p.ImportPath) })
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

// docs/dependencies.md names every module that go.mod requires directly, and no other.
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
