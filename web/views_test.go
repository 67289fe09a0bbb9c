package web_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"monopod/testdata/harness"
)

// search finds objects of every kind by names and labels.
func (p page) search(*box) {
	p.visit("#/")
	p.sees(`%s === "Overview"`, text("#title"))
	p.key("/")
	p.sees(`location.hash.startsWith("#/search") && document.activeElement.id === "filter"`)
	p.put("#filter", "app=web replicas")
	p.sees(`[...document.querySelectorAll("#main tbody tr")].every((tr) => tr.cells[1].innerText === "ReplicaSet" && `+
		`tr.cells[3].innerText.includes("app=web")) && %s > 0`, rows)
	p.sees(`location.hash.includes("q=app%%3Dweb+replicas")`)
	p.put("#filter", "<img src=x>")
	p.sees(`%s === "Nothing found."`, text("#main [role=status]"))

	// The object with this name comes before others.
	p.put("#filter", "shop")
	p.sees(`%s === "shop"`, text("#main tbody th a"))
	p.key("\r")
	p.value(`document.activeElement.click() || true`)
	p.sees(`location.hash === "#/pods/default/shop"`)
}

// access: who may do something, by which binding and role.
func (p page) access(*box) {
	p.visit("#/access?verb=create&resource=pods/exec&ns=default")
	p.sees(`%s === "Who may do what" && document.querySelector("#nav [data-word=access][aria-current]")`, text("#title"))
	p.sees(`[...document.querySelectorAll("#main tbody tr")].some((tr) => tr.innerText.includes("cluster-admin"))`)
	p.put("input[name=verb]", "get")
	p.put("input[name=resource]", "deploy")
	p.press("#main", "Show who may")
	p.sees(`[...document.querySelectorAll("#main tbody tr")].some((tr) => tr.cells[0].innerText === ` +
		`"system:monopod:viewers")`)
	p.put("input[name=resource]", "secrets")
	p.press("#main", "Show who may")
	p.sees(`%s > 0 && ![...document.querySelectorAll("#main tbody tr")].some((tr) => `+
		`tr.cells[0].innerText === "system:monopod:viewers")`, rows)
	p.press("#main tbody tr:first-child", "cluster-admin")
	p.sees(`location.hash.startsWith("#/cluster")`)
}

// chart is a chart of Helm with a ConfigMap, and a Service if it is asked for.
var chart = map[string]string{
	"Chart.yaml":          "apiVersion: v2\nname: lamp\nversion: 1.2.3\nappVersion: \"7\"\n",
	"values.yaml":         "color: white\nserved: true\n",
	"templates/NOTES.txt": "The lamp is {{ .Values.color }} <b>now</b>.\n",
	"templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n" +
		"  color: {{ .Values.color }}\n{{ if eq .Values.color \"blue\" }}  blue: \"yes\"\n{{ end }}",
	"templates/service.yaml": "{{ if .Values.served }}apiVersion: v1\nkind: Service\nmetadata:\n" +
		"  name: {{ .Release.Name }}\nspec:\n  ports: [{port: 80}]\n{{ end }}",
}

// helm: what Helm has installed, and the return to an earlier revision, from which Helm goes on.
func (p page) helm(b *box) {
	programs := harness.Build(p.t)
	programs.BuildHelm(p.t)
	dir := p.t.TempDir()
	for name, content := range chart {
		file := filepath.Join(dir, "lamp", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	helm := func(args ...string) string {
		p.t.Helper()
		cmd := exec.Command(programs.Path("helm"), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(b.Dir, "admin.kubeconfig"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			p.t.Fatalf("helm %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	helm("install", "desk", "lamp", "color=red")
	helm("upgrade", "desk", "lamp", "color=blue", "served=false")

	p.visit("#/helm")
	p.sees(`%s?.includes("desk") && %[1]s.includes("deployed") && %[1]s.includes("lamp 1.2.3")`, text("#main tbody tr"))
	p.press("#main tbody", "desk")
	p.sees(`%s === "The lamp is blue <b>now</b>."`, trimmed("[data-section=Notes] pre"))
	p.sees(`%s === "color: blue\nserved: false"`, trimmed("[data-section=Values] > pre"))
	p.press("[data-section=History]", "Return to revision 1")
	p.press("dialog", "Return")
	p.sees(`%s?.includes("Rollback to 1")`, text("[data-section=Release]"))
	p.sees(`%s === "color: red"`, trimmed("[data-section=Values] > pre"))
	p.sees(`[...document.querySelectorAll("[data-section=History] tbody tr")].map((tr) => ` +
		`tr.cells[1].innerText).join() === ` +
		`"deployed,superseded,superseded"`)
	p.press("[data-section=Objects]", "desk")
	p.sees(`%s?.includes("red") && !%[1]s.includes("blue")`, text("[data-section=Data]"))
	p.visit("#/services/default/desk")
	p.sees(`%s === "desk" && document.querySelector("[data-section=Ports]")`, text("#title"))
	if out := helm("status", "desk"); !strings.Contains(out, "deployed") {
		p.t.Errorf("helm status: %s", out)
	}
	helm("upgrade", "desk", "lamp", "color=green")
	helm("rollback", "desk")
	helm("uninstall", "desk")
	p.visit("#/helm")
	p.sees(`%s?.startsWith("No release is installed.")`, text("#main .empty"))
	helm("install", "tower", "lamp", "color=blue") // which the screens show
}

// nodeTerminal runs a command on the node, which only admins may.
func (p page) nodeTerminal(b *box) {
	p.visit("#/nodes/-/greenhouse-01")
	p.press(".tabs", "Terminal")
	p.sees(`%s?.startsWith("Connected to greenhouse-01")`, text("#main .hint"))
	p.key("echo $((6*7))-$(tty); exit 3\r")
	p.sees(`%s?.includes("42-/dev/pts/")`, text(".console"))
	p.sees(`%s?.startsWith("The shell has ended: command terminated with")`, text("#main .hint"))
	for token, want := range map[string]float64{b.token: 200, b.view: 403} {
		p.value(fmt.Sprintf(`(window.code = 0, fetch("/api/v1/nodes/greenhouse-01/proxy/monopod/terminal", `+
			`{headers: {Authorization: "Bearer %s"}}).then((r) => window.code = r.status), true)`, token))
		p.sees(`window.code`)
		if code := p.value(`window.code`); code != want {
			p.t.Errorf("got status %v, want %v", code, want)
		}
	}
}

func trimmed(selector string) string {
	return fmt.Sprintf("document.querySelector(%q)?.textContent.trim()", selector)
}
