package web_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"monopod/agent/runtime/oci"
	"monopod/testdata/harness"
)

// box is a monopod process with the fake runtime, so that pods run.
type box struct {
	*harness.Server
	address, token, view string
}

func newBox(t *testing.T) *box {
	t.Helper()
	browser(t)
	programs := harness.Build(t)
	dir, err := programs.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &box{Server: harness.NewServer(programs.Monopod(harness.Plain), dir, "--runtime=fake",
		"--node-name=greenhouse-01", "--node-terminal",
		"--eviction-hard=memory.available<100Mi")} // the disk of this machine may be nearly full
	b.Start()
	t.Cleanup(func() { b.CleanUp(false) })
	if err := b.Ready(); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(string(config), "server: ")
	b.address, _, _ = strings.Cut(address, "\n")
	for name, token := range map[string]*string{"admin": &b.token, "view": &b.view} {
		secret, err := os.ReadFile(filepath.Join(dir, "pki", name+".token"))
		if err != nil {
			t.Fatal(err)
		}
		*token = strings.TrimSpace(strings.Split(string(secret), ",")[0])
	}
	return b
}

// restart starts the server again, at the same address.
func (b *box) restart(t *testing.T) {
	t.Helper()
	for i, arg := range b.Cmd.Args {
		if arg == "127.0.0.1:0" {
			b.Cmd.Args[i] = strings.TrimPrefix(b.address, "https://")
		}
	}
	b.Start()
	if err := b.Ready(); err != nil {
		t.Fatal(err)
	}
}

const workload = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: default}\nspec:\n" +
	"  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n" +
	"      containers:\n      - {name: web, image: \"monopod.local/web:1\", ports: [{containerPort: 8080}]}\n"

const crashing = "apiVersion: v1\nkind: Pod\nmetadata: {name: shop, namespace: default, labels: {app: shop}}\n" +
	"spec:\n  containers:\n  - {name: app, image: \"monopod.local/web:1\", args: [do, echo, first, words, then, exit, " +
	"\"3\"]}\n"

// hostile is a pod with a container that writes markup and escape sequences of a terminal, and one that writes its
// name.
const hostile = `apiVersion: v1
kind: Pod
metadata:
  name: hostile
  namespace: default
  labels: {app: hostile}
  annotations: {"note": "<script>document.title='broken'</script>"}
spec:
  containers:
  - name: app
    image: "monopod.local/web:1"
    args: [do, echo, "<img src=x onerror=document.title='broken'>", "\u001b[31mred\u001b[0m", "\u001b]0;broken\u0007javascript:alert(1)", then, sleep, 10h]
    env: [{name: "LINK", value: "javascript:document.title='broken'"}]
  - name: second
    image: "monopod.local/web:1"
    args: [do, echo, the, second, speaks, then, sleep, 10h]
`

const cronJob = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly, namespace: default}\nspec:\n" +
	"  schedule: 0 3 1 1 *\n  jobTemplate:\n    spec:\n      template:\n        spec:\n          restartPolicy: Never\n" +
	"          containers:\n          - {name: c, image: \"monopod.local/web:1\", args: [echo, done]}\n"

// TestPageOfMachine tests the parts of the page that need a node with running pods, on the fake runtime.
func TestPageOfMachine(t *testing.T) {
	b := newBox(t)
	p := open(t, b.address)
	p.enter(b.token)
	for _, step := range []struct {
		name string
		play func(page, *box)
	}{
		{"first steps", page.firstSteps},
		{"workload", page.workload},
		{"terminal", page.terminal},
		{"ports", page.ports},
		{"why", page.why},
		{"logs", page.logs},
		{"debug container", page.debugContainer},
		{"overview", page.overview},
		{"node", page.node},
		{"images", page.images},
		{"rollout", page.rollout},
		{"stuck rollout", page.stuck},
		{"whole files", page.wholeFiles},
		{"what objects say", page.says},
		{"links", page.linked},
		{"map", page.maps},
		{"what objects mean", page.tells},
		{"use", page.use},
		{"search", page.search},
		{"who may do what", page.access},
		{"Helm", page.helm},
		{"terminal on the node", page.nodeTerminal},
		{"several rows", page.several},
		{"drain", page.drain},
		{"CronJob", page.cronJob},
		{"certificates", page.certificates},
		{"newcomer", page.newcomer},
		{"newcomer with a phone", page.onPhone},
		{"slow network", page.slowNetwork},
		{"screens", page.screens},
		{"restart", page.restart},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.play(p.on(t), b) }) {
			return // the next step continues on this step's page
		}
	}
	p.on(t).clean()
}

// apply creates objects as a user does.
func (p page) apply(yaml, kindAndName string) {
	p.t.Helper()
	p.visit("#/create")
	p.put(".editor", yaml)
	p.press("main", "Check")
	p.press(".review", "Create it")
	p.press(".review", kindAndName)
	p.sees(`document.querySelector("#title") && !document.querySelector(".drop")`)
}

func (p page) workload(*box) {
	p.apply(workload, "Deployment web")
	p.sees(`%s === "2/2 ready" && document.querySelector(".state [data-mood=ok]")`, text(".state"))
	p.press(".tabs", "Logs")
	p.sees(`(%s.match(/listens on/g) ?? []).length === 2`, text(".log"))
	p.put(".log-search", "no such line")
	p.sees(`%s === ""`, text(".log"))
}

// terminal runs a command in a terminal whose size follows the window's.
func (p page) terminal(*box) {
	p.visit("#/pods")
	p.sees(rows + ` === 2`)
	p.value(`{
		const send = WebSocket.prototype.send;
		window.sizes = [];
		WebSocket.prototype.send = function (data) {
			if (data[0] === 4) window.sizes.push(JSON.parse(new TextDecoder().decode(data.subarray(1))).Width);
			return send.call(this, data);
		};
		location.hash = document.querySelector("tbody th a").getAttribute("href") + "/shell";
	}`)
	p.put("[aria-label=Command]", "cat")
	p.press("main", "Connect")
	p.sees(`%s.startsWith("Connected to web (cat)") && document.activeElement.matches(".xterm-helper-textarea")`,
		text(".body .hint"))
	p.key("hello\r")
	p.sees(`%s?.includes("hello")`, text(".xterm-rows"))
	p.sees(`window.sizes.at(-1) > 80`)
	p.do(chromedp.EmulateViewport(700, 700))
	p.sees(`window.sizes.at(-1) < 100`)
	p.do(chromedp.EmulateViewport(1360, 1000))
	p.sees(`window.sizes.at(-1) > 100`)
}

func (p page) debugContainer(*box) {
	p.press(".tabs", "Terminal")
	p.sees(`document.querySelector(".xterm-rows")`)
	p.put("[aria-label=Command]", "no-such-program")
	p.press("main", "Connect")
	p.sees(`%s.includes('There is no program "no-such-program"')`, text(".body .hint"))
	p.sees(`document.querySelector(".xterm-rows")`)
	p.put("[aria-label='Image of the debug container']", "monopod.local/web:1")
	p.press("main", "Debug container")
	p.sees(`/^Connected to debug-/.test(%s)`, text(".body .hint"))
	p.press(".tabs", "Overview")
	p.sees(`[...document.querySelectorAll("[data-container]")].some((c) => c.dataset.container.startsWith("debug-") && ` +
		`c.innerText.includes("Running"))`)
}

// ports sends a request to a port of the pod through the API's proxy, and shows the response.
func (p page) ports(*box) {
	p.press(".tabs", "Overview")
	p.press("[data-section=Ports]", "Send GET")
	p.sees(`%s?.startsWith("200 text/plain") && %[1]s.includes("Hello from web-")`, text("[data-section=Ports] .answer"))
	p.sees(`document.querySelector("[data-section=Ports] a")?.getAttribute("href").endsWith("%%3A8080/proxy/")`)
}

func (p page) why(*box) {
	p.apply(crashing, "Pod shop")
	p.sees(`%s?.includes("exit code 3")`, text("[data-section=Why]"))
	p.picture("page")
}

// logs shows the log of a previous run and of all containers, with times, paused and downloaded. Markup in a log is
// text.
func (p page) logs(*box) {
	p.press(".tabs", "Logs")
	p.click("[name=previous]")
	p.sees(`%s.trim() === "first words"`, text(".log"))
	p.apply(hostile, "Pod hostile")
	p.sees(`%s.includes("javascript:document.title")`, text("[data-section=Environment]"))
	p.sees(`%s.includes("<script>")`, text("[data-section=Details]"))
	p.sees(`document.querySelectorAll("[data-container]").length === 2 && !%s.includes("Waiting")`,
		text("[data-section=Containers]"))
	p.press(".tabs", "Logs")
	p.sees(`%s.includes("app <img src=x onerror=document.title='broken'> red javascript:alert(1)") && `+
		`%[1]s.includes("second the second speaks")`, text(".log"))
	p.click("[name=times]")
	p.sees(`/^\d{4}-\d\d-\d\dT/.test(%s)`, text(".log"))
	p.click("[name=wrap]")
	p.sees(`getComputedStyle(document.querySelector(".log")).whiteSpace === "pre"`)
	p.press("main", "Pause")
	p.sees(`[...document.querySelectorAll("main button")].some((b) => b.textContent === "Continue")`)
	p.press("main", "Continue")
	p.put("[aria-label=Container]", "second")
	p.sees(`%s.includes("the second speaks") && !%[1]s.includes("img")`, text(".log"))
	p.value(`{
		const make = URL.createObjectURL;
		URL.createObjectURL = (blob) => (blob.text().then((t) => window.saved = t), make(blob));
		true
	}`)
	p.press("main", "Download")
	p.sees(`/^\S+Z the second speaks\n$/.test(window.saved)`)
	if p.value(`document.title.includes("broken") || document.querySelectorAll("main img, main script").length > 0`) == true {
		p.t.Error("a log was rendered as markup of the page")
	}
}

func (p page) node(*box) {
	p.visit("#/nodes/-/greenhouse-01")
	p.sees(`%s?.includes("cpu") && %[1]s.includes("Requested")`, text("[data-section=Capacity]"))
	p.sees(`%s?.includes("Ready: True")`, text("[data-section=Conditions]"))
	p.sees(`document.querySelectorAll("[data-section=Use] svg").length >= 2`)
	p.sees(`/one file, [\d.]+ .iB/.test(%s) && /days left/.test(%[1]s)`, text("[data-section=Server]"))
	p.press("[data-section=Server]", "Take a snapshot")
	p.sees(`/\.db, .*now/.test(%s)`, text("[data-section=Server]"))
	p.press(".bar", "Cordon")
	p.sees(`%s.includes("Cordoned") && %s?.includes("is ready and cordoned")`, text("[data-section=Conditions]"),
		text("[data-section=Why]"))
	p.press(".bar", "Uncordon")
	p.sees(`!%s.includes("Cordoned")`, text("[data-section=Conditions]"))
}

// images lists the images of the node, imports one by dropping its archive, and removes it.
func (p page) images(*box) {
	var archive bytes.Buffer
	if err := oci.Archive(&archive,
		oci.Image{Ref: "example.com/dropped:1", Files: []oci.File{{Path: "web", Data: []byte("x")}},
			Entrypoint: []string{"/web"}}); err != nil {
		p.t.Fatal(err)
	}
	p.sees(`%s?.innerText.includes("web-")`, row("monopod.local/web:1"))
	p.value(fmt.Sprintf(`{
		const files = new DataTransfer();
		files.items.add(new File([Uint8Array.from(atob(%q), (c) => c.charCodeAt(0))], "dropped.tar"));
		document.querySelector(".images-drop").dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true}));
		true
	}`, base64.StdEncoding.EncodeToString(archive.Bytes())))
	p.sees(`%s && %s.includes("Imported: example.com/dropped:1")`, row("example.com/dropped:1"), text(".images"))
	p.sees(`!%s.querySelector("button")`, row("monopod.local/web:1")) // in use
	p.value(row("example.com/dropped:1") + `.querySelector("button").click() || true`)
	p.press("dialog", "Remove")
	p.sees(`!%s && %s.includes("Removed.")`, row("example.com/dropped:1"), text(".images"))
	p.value(`{
		const files = new DataTransfer();
		files.items.add(new File(["nonsense"], "nonsense.tar"));
		document.querySelector(".images-drop").dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true}));
		true
	}`)
	p.sees(`%s.length > 10`, text(".images .error"))
}

func (p page) rollout(*box) {
	p.visit("#/deployments.apps/default/web")
	p.press(".bar", "Pause")
	p.sees(`[...document.querySelectorAll(".bar button")].some((b) => b.textContent === "Resume")`)
	p.press(".bar", "Resume")
	p.sees(`[...document.querySelectorAll(".bar button")].some((b) => b.textContent === "Pause")`)
	p.press(".bar", "Restart")
	p.press("dialog", "Restart")
	p.press(".tabs", "Revisions")
	p.sees(`%s.includes("Revision 2 (now)")`, text(".body"))
	p.sees(`[...document.querySelectorAll(".beside ins")].some((e) => e.innerText.includes("restartedAt"))`)
	p.press(".body", "Return to revision 1")
	p.press("dialog", "Return")
	p.sees(`%s.includes("Revision 3 (now)")`, text(".body"))
}

// drain evicts all pods of the node, also one that is scheduled while the dialog is open. The dialog warns about pods
// without a controller.
func (p page) drain(b *box) {
	api := `((verb, path, body) => {
		const ask = new XMLHttpRequest();
		ask.open(verb, "/apis/apps/v1/namespaces/default/deployments/web" + path, false);
		ask.setRequestHeader("Authorization", "Bearer ` + b.token + `");
		ask.setRequestHeader("Content-Type", "application/merge-patch+json");
		ask.send(body);
		return JSON.parse(ask.responseText);
	})`
	p.visit("#/nodes/-/greenhouse-01")
	p.press(".bar", "Drain")
	p.sees(`%s.includes("shop") && %[1]s.includes("hostile") && !%[1]s.includes("web-")`, text("dialog .warning"))
	p.value(api + `("PATCH", "/scale", '{"spec": {"replicas": 3}}')`)
	p.sees(`((d) => d.status.observedGeneration === d.metadata.generation && d.status.updatedReplicas === 3 && `+
		`d.status.readyReplicas === 3)(%s("GET", ""))`, api)
	p.press("dialog", "Drain")
	p.sees(`!document.querySelector("dialog") && %s.includes("Cordoned")`, text("[data-section=Conditions]"))
	p.visit("#/pods")
	p.sees(`[...document.querySelectorAll("td.c-status")].filter((c) => c.innerText === "Pending").length === 3`)
	p.visit("#/nodes/-/greenhouse-01")
	p.press(".bar", "Uncordon")
	p.visit("#/pods")
	p.sees(rows + ` === 3 && [...document.querySelectorAll("td.c-status")].every((c) => c.innerText === "Running")`)
	p.value(api + `("PATCH", "/scale", '{"spec": {"replicas": 2}}')`)
	p.sees(rows + ` === 2`)
}

func (p page) cronJob(*box) {
	p.apply(cronJob, "CronJob nightly")
	p.press(".bar", "Run now")
	p.sees(`location.hash.startsWith("#/jobs.batch/default/nightly-manual-") && %s === "Complete"`, text(".state .mood"))
	p.press(".body", "CronJob nightly")
	p.press(".bar", "Suspend")
	p.sees(`[...document.querySelectorAll(".bar button")].some((b) => b.textContent === "Resume")`)
}

func (p page) certificates(*box) {
	for name, answer := range map[string]string{"joe": "Approve", "eve": "Deny"} {
		p.request(name)
		p.sees(`%s?.includes("waits until somebody approves or denies it")`, text("[data-section=Why]"))
		p.press(".bar", answer)
		p.sees(`%s.includes("kubernetes-admin asks for a certificate") && %[1]s.includes("subject: CN=" + %q)`,
			text("dialog"), name)
		p.press("dialog", answer)
		p.sees(`%s.startsWith(%q)`, text(".state"), map[string]string{"Approve": "Approved", "Deny": "Denied"}[answer])
	}
}

// request creates a CertificateSigningRequest.
func (p page) request(name string) {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		p.t.Fatal(err)
	}
	text64 := base64.StdEncoding.EncodeToString(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}))
	p.apply("apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: "+name+
		"}\nspec: {signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: "+text64+"}\n",
		"CertificateSigningRequest "+name)
}

// slowNetwork loads the page over a network with 400 ms of latency and 40 KB a second, which then fails and recovers.
func (p page) slowNetwork(b *box) {
	if _, err := chromedp.Call(p.ctx, cdp.Command[cdp.Empty, cdp.Empty]{Method: network.CommandEnable},
		cdp.Empty{}); err != nil {
		p.t.Fatal(err)
	}
	p.visit("#/pods")
	p.limit(&network.Conditions{Latency: 400, DownloadThroughput: 40_000, UploadThroughput: 40_000})
	p.load(b.address + "/?again#/pods")
	p.sees(`document.body.dataset.view === "in" && %s === "Live" && `+rows+` === 3`, text("#link-text"))
	p.value(`location.hash = document.querySelector("tbody th a").getAttribute("href") || true`)
	p.sees(`%s?.includes("Pod created")`, text("[data-section=Timeline]"))
	p.limit(&network.Conditions{Offline: true, DownloadThroughput: -1, UploadThroughput: -1})
	p.visit("#/services")
	p.sees(`%s === "Monopod does not answer. Is it running?" && %s === "Monopod does not answer. Is it running?"`,
		text("#link-text"), text(".empty"))
	p.limit(nil)
	p.sees(`%s === "Live" && %s`, text("#link-text"), row("kubernetes"))
}

// limit makes the network slow or offline; nil restores it.
func (p page) limit(c *network.Conditions) {
	p.t.Helper()
	params := network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: []*network.Conditions{}}
	if c != nil {
		params.MatchedNetworkConditions = append(params.MatchedNetworkConditions, c)
	}
	if _, err := chromedp.Call(p.ctx, network.EmulateNetworkConditionsByRule, params); err != nil {
		p.t.Fatal(err)
	}
}

// restart restarts the server at the same address; the page connects again.
func (p page) restart(b *box) {
	p.visit("#/pods")
	p.sees(rows + ` >= 2`)
	b.End(syscall.SIGTERM)
	p.sees(`%s !== "Live"`, text("#link-text"))
	b.restart(p.t)
	p.sees(`%s === "Live" && `+rows+` >= 2`, text("#link-text"))
}
