package web_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"monopod/testdata/harness"
)

const workload = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: default}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n      - {name: web, image: \"monopod.local/web:1\"}\n"

const crashing = "apiVersion: v1\nkind: Pod\nmetadata: {name: shop, namespace: default, labels: {app: shop}}\nspec:\n  containers:\n  - {name: app, image: \"monopod.local/web:1\", args: [exit, \"3\"]}\n"

// A monopod with pods, on the fake runtime: logs, a terminal, the node, revisions, and a restart of the server.
func TestPageOfMachine(t *testing.T) {
	browser(t)
	programs := harness.Build(t)
	dir, err := programs.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := harness.NewServer(programs.Monopod(harness.Plain), dir, "--runtime=fake", "--node-name=greenhouse-01",
		"--eviction-hard=memory.available<100Mi") // the disk of this machine may be nearly full
	s.Start()
	t.Cleanup(func() { s.CleanUp(false) })
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(filepath.Join(dir, "pki", "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(string(config), "server: ")
	address, _, _ = strings.Cut(address, "\n")
	p := open(t, address)
	p.enter(strings.TrimSpace(strings.Split(string(secret), ",")[0]))

	p.visit("#/create")
	p.put(".editor", workload)
	p.press("main", "Check")
	p.press(".review", "Create it")
	p.press(".review", "Deployment web")
	p.sees(`%s === "2/2 ready"`, text(".state"))
	p.press(".tabs", "Logs")
	p.sees(`(%s.match(/listens on/g) ?? []).length === 2`, text(".log"))
	p.put(".log-search", "no such line")
	p.sees(`%s === ""`, text(".log"))

	p.visit("#/pods")
	p.sees(rows + ` === 2`)
	p.value(`location.hash = document.querySelector("tbody th a").getAttribute("href") + "/shell"`)
	p.put("[aria-label=Command]", "cat")
	p.press("main", "Connect")
	p.sees(`%s.startsWith("Connected to web (cat)") && document.activeElement.matches(".xterm-helper-textarea")`, text(".body .hint"))
	p.key("hello\r")
	p.sees(`%s?.includes("hello")`, text(".xterm-rows"))

	p.visit("#/create")
	p.put(".editor", crashing)
	p.press("main", "Check")
	p.press(".review", "Create it")
	p.visit("#/pods/default/shop")
	p.sees(`%s?.includes("exit code 3")`, text("[data-section=Why]"))
	p.picture("page")

	p.visit("#/nodes/-/greenhouse-01")
	p.sees(`%s?.includes("cpu") && %[1]s.includes("Requested")`, text("[data-section=Capacity]"))
	p.sees(`%s?.includes("Ready: True")`, text("[data-section=Conditions]"))
	p.press(".bar", "Cordon")
	p.sees(`%s.includes("Cordoned")`, text("[data-section=Conditions]"))
	p.press(".bar", "Uncordon")

	p.visit("#/deployments.apps/default/web")
	p.press(".bar", "Restart")
	p.press("dialog", "Restart")
	p.press(".tabs", "Revisions")
	p.sees(`%s.includes("Revision 2 (now)")`, text(".body"))
	p.press(".body", "Return to revision 1")
	p.press("dialog", "Return")
	p.sees(`%s.includes("Revision 3 (now)")`, text(".body"))

	// The page follows the server across a restart at another process; the address stays.
	p.visit("#/pods")
	p.sees(rows + ` >= 2`)
	for i, arg := range s.Cmd.Args {
		if arg == "127.0.0.1:0" {
			s.Cmd.Args[i] = strings.TrimPrefix(address, "https://")
		}
	}
	s.End(syscall.SIGTERM)
	p.sees(`%s !== "Live"`, text("#link-text"))
	s.Start()
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	p.sees(`%s === "Live" && `+rows+` >= 2`, text("#link-text"))
	p.clean()
}
