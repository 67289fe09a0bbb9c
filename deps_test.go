package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The house (README): what each part may know of the others. A part may always
// know its own sub-packages.
var mayKnow = map[string][]string{
	"monopod/store":                         {},
	"monopod/store/bolt":                    {"monopod/store"},
	"monopod/store/etcd":                    {"monopod/store"},
	"monopod/apiserver/client":              {"monopod/store"},
	"monopod/apiserver/registry/kind/table": {"monopod/store"},
	"monopod/apiserver/codec/patch":         {},
	"monopod/apiserver/codec/cbor":          {},
	"monopod/apiserver/codec/bounded":       {"monopod/apiserver/codec/wire"},
	"monopod/apiserver/codec":               {"monopod/apiserver/access", "monopod/apiserver/discovery/openapi/definitions", "monopod/apiserver/client", "monopod/apiserver/registry/kind", "monopod/apiserver/registry/view", "monopod/apiserver/request", "monopod/store"},
	"monopod/apiserver/access":              {"monopod/apiserver/client", "monopod/apiserver/request", "monopod/store"},
	"monopod/apiserver/flow":                {"monopod/apiserver/access", "monopod/apiserver/discovery/openapi/definitions", "monopod/apiserver/client", "monopod/apiserver/codec", "monopod/apiserver/registry/kind", "monopod/apiserver/registry/view", "monopod/apiserver/request", "monopod/store"},
	"monopod/apiserver/request":             {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/store"},
	"monopod/apiserver/process/backoff":     {}, // what every part of the process may use
	"monopod/apiserver/process/burst":       {},
	"monopod/apiserver/process/folder":      {},
	"monopod/apiserver/process/frugal":      {"monopod/apiserver/process/kernelfile"},
	"monopod/apiserver/process/kernelfile":  {},
	"monopod/apiserver/process/guard":       {"monopod/apiserver/process/backoff"},
	"monopod/apiserver/process/health":      {},
	"monopod/apiserver/process/notify":      {},
	"monopod/apiserver/process/pattern":     {},
	"monopod/apiserver/follow":              {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/registry":            {"monopod/apiserver/codec/patch", "monopod/apiserver/codec/quantity", "monopod/apiserver/codec/wire", "monopod/apiserver/discovery/openapi/definitions", "monopod/apiserver/discovery/openapi/kept", "monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/access/auth":         {"monopod/apiserver/client", "monopod/store"},
	"monopod/apiserver/discovery/openapi":   {"monopod/apiserver/codec/quantity", "monopod/apiserver/codec/wire", "monopod/apiserver/access", "monopod/apiserver/registry", "monopod/apiserver/client", "monopod/store"},
	"monopod/apiserver":                     {"monopod/store"},
	"monopod/apiserver/launch":              {"monopod/apiserver", "monopod/store"},
	"monopod/controllers":                   {"monopod/apiserver/client", "monopod/apiserver/follow", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/registry/check":      {}, // checks of fields
	"monopod/apiserver/registry/volume":     {"monopod/apiserver/client", "monopod/apiserver/registry/check", "monopod/store"},
	"monopod/agent":                         {"monopod/apiserver/registry/volume", "monopod/apiserver/registry/check", "monopod/apiserver/process", "monopod/apiserver/follow", "monopod/apiserver/client", "monopod/apiserver/codec/bounded", "monopod/apiserver/codec/wire", "monopod/store"},
	"monopod/agent/runtime/cri":             {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/runtime/containerd":      {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/runtime":                 {},
	"monopod/agent/runtime/fake":            {"monopod/agent/runtime", "monopod/apiserver/process"},
	"monopod/agent/launch":                  {"monopod/agent", "monopod/apiserver/registry/volume", "monopod/apiserver/registry/check", "monopod/apiserver/process", "monopod/apiserver/follow", "monopod/apiserver/client", "monopod/apiserver/codec/bounded", "monopod/apiserver/codec/wire", "monopod/store"},
	"monopod/agent/runtime/runtimetest":     {"monopod/agent/runtime", "monopod/agent/images/image", "monopod/agent/runtime/abilities", "monopod/apiserver/process", "monopod/agent/runtime/cutoff", "monopod/testdata/web"},
	"monopod/agent/network":                 {"monopod/apiserver/client", "monopod/apiserver/follow", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/network/nft":             {"monopod/apiserver/process"},
	"monopod/agent/network/policy":          {"monopod/agent/network/nft", "monopod/apiserver/process"},
	"monopod/agent/network/dump":            {},
	"monopod/agent/network/service":         {"monopod/agent/network/dump", "monopod/agent/network/nft", "monopod/apiserver/process"},
	"monopod/agent/network/cni":             {"monopod/agent/network/dump", "monopod/agent/network/nft", "monopod/apiserver/process"},
	"monopod/agent/network/cni/rules":       {"monopod/agent/network/nft", "monopod/apiserver/process"},
	"monopod/agent/network/cni/subnets":     {"monopod/agent/network/dump"},
	"monopod/agent/network/cni/shape":       {"monopod/agent/network/cni/rtnetlink", "monopod/agent/network/dump"},
	"monopod/agent/network/cni/rtnetlink":   {},
	"monopod/agent/node/inspectcmd":         {"monopod/agent", "monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/node/installcmd":         {"monopod/agent", "monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/node/check":              {"monopod/agent", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/pod/plan":                {"monopod/agent", "monopod/apiserver/process"}, // what decides knows nothing of the API's client
	"monopod/agent/pod/observe":             {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/pod/pace":                {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/pod/resize":              {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/resources/placement":     {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/runtime/inventory":       {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/admission":               {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/pressure/eviction":       {"monopod/agent", "monopod/apiserver/client/claim", "monopod/apiserver/registry/check", "monopod/apiserver/registry/volume", "monopod/apiserver/process"},
	"monopod/agent/images/garbage":          {"monopod/agent", "monopod/apiserver/process"},
	"monopod/agent/images/collector":        {"monopod/agent", "monopod/apiserver/process"},
	"monopod/web":                           {},
	"monopod/controllers/launch":            {"monopod/controllers", "monopod/apiserver/client", "monopod/apiserver/follow", "monopod/apiserver/process", "monopod/store"},
	"monopod/agent/node/nodecmd":            {"monopod/agent", "monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/clientcmd":    {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/launch/statecmd":     {"monopod/apiserver", "monopod/store"},
	"monopod/apiserver/client/record":       {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/why":          {"monopod/apiserver/client", "monopod/apiserver/process/pattern", "monopod/store"},
	"monopod/apiserver/client/spelling":     {},
	"monopod/apiserver/client/local":        {"monopod/apiserver/client/spelling"}, // what the commands reach a server with
	"monopod/apiserver/client/whycmd":       {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/status":       {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process/pattern", "monopod/store"},
	"monopod/apiserver/client/statuscmd":    {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/logscmd":      {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/kubectlcmd":   {"monopod/apiserver/client/local", "monopod/apiserver/client/spelling"},
	"monopod/apiserver/client/dashboardcmd": {"monopod/apiserver/access", "monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/completion":   {"monopod/apiserver/client", "monopod/apiserver/process"},
	"monopod/apiserver/client/images":       {},
	"monopod/apiserver/client/imagescmd":    {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
	"monopod/apiserver/client/archive":      {},
	"monopod/apiserver/client/runcmd":       {"monopod/apiserver/client", "monopod/apiserver/process", "monopod/store"},
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

func TestPartsImportOnlyListedParts(t *testing.T) {
	t.Parallel()
	for part, allowed := range mayKnow {
		for _, dep := range dependencies(t, part) {
			if !below(dep, append(allowed, part)) || below(dep, forbidden[part]) {
				t.Errorf("%s knows %s", part, dep)
			}
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

// dependencies are the packages of ours that pkg needs, tests aside.
func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=Deps", pkg).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", pkg, err)
	}
	var listed struct{ Deps []string }
	if err := json.Unmarshal(out, &listed); err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, d := range listed.Deps {
		if strings.HasPrefix(d, "monopod/") {
			ours = append(ours, d)
		}
	}
	return ours
}

func TestTheProgramContainsNoTestdata(t *testing.T) {
	t.Parallel()
	for _, dep := range dependencies(t, "monopod") {
		if strings.HasPrefix(dep, "monopod/testdata/") {
			t.Errorf("the program contains %s", dep)
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
	modules, _, _ := strings.Cut(string(page), "\nWritten by us instead")
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
