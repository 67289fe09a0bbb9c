package web_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// look is a screen: its address, and an expression that is true when the screen is ready. open opens it, leave cleans
// up.
type look struct {
	name, hash, ready string
	open, leave       func(page)
	rare              bool // without -pictures the test checks it only in the dark theme and the small window
}

// screens returns all screens.
func screens(b *box) []look {
	return append(common(), append(dialogs(b), states(b)...)...)
}

func common() []look {
	return []look{
		{name: "overview", hash: "#/", ready: text("[aria-label='Deployment owned']") + `?.includes("What to do") && ` +
			`document.querySelector("[data-section=Nodes] svg") && ` + text("[data-section=Server]")},
		{name: "pods", hash: "#/pods", ready: rows + ` >= 2 && document.querySelector("td.c-reason")`},
		{name: "events", hash: "#/events", ready: rows + ` > 5`},
		{name: "secrets", hash: "#/secrets", ready: row("door")},
		{name: "pod", hash: "#/pods/default/sick", ready: text("[data-section=Why]") + `?.includes("exit code 3")`},
		{name: "logs", hash: "#/deployments.apps/default/web/logs", ready: text(".log") + `?.includes("listens on")`},
		{name: "terminal", ready: text(".body .hint") + `?.startsWith("Connected to web")`, open: func(p page) {
			p.visit("#/pods?q=web-")
			p.sees(rows + ` === 2`)
			p.value(`location.hash = document.querySelector("tbody th a").getAttribute("href") + "/shell"`)
			p.put("[aria-label=Command]", "cat")
			p.press("main", "Connect")
		}},
		{name: "yaml", hash: "#/deployments.apps/default/web/yaml",
			ready: `document.querySelector(".editor")?.value.includes("replicas")`},
		{name: "review", ready: `document.querySelector(".diff")`, open: func(p page) {
			p.visit("#/deployments.apps/default/web/yaml")
			p.sees(`document.querySelector(".editor")?.value.includes("terminationGracePeriodSeconds: 30")`)
			p.value(`{const e = document.querySelector(".editor"); e.value = e.value.replace("terminationGracePeriodSeconds: ` +
				`30", "terminationGracePeriodSeconds: 20"); true}`)
			p.press(".body", "Review changes")
		}},
		{name: "conflict", ready: `document.querySelector(".conflicts")`, open: func(p page) {
			p.visit("#/deployments.apps/default/owned/yaml")
			p.sees(`document.querySelector(".editor")?.value.includes("name: owned")`)
			p.value(`{const e = document.querySelector(".editor"); e.value = e.value.replace("replicas: 2", ` +
				`"replicas: 3"); true}`)
			p.press(".body", "Review changes")
		}},
		{name: "crash loop", hash: "#/deployments.apps/default/owned",
			ready: `document.querySelector(".state [data-mood=bad]") && document.querySelector(".why code")`},
		{name: "deployments", hash: "#/deployments.apps", ready: row("owned") +
			`?.querySelector(".c-ready [data-mood=wait], .c-ready [data-mood=bad]")`},
		{name: "nobody", hash: "#/pods/default/nobody", ready: text(".empty") + ` === "There is no Pod nobody."`},
		{name: "deployment", hash: "#/deployments.apps/default/web", ready: text(".state") + `?.includes("ready")`},
		{name: "map", hash: "#/deployments.apps/default/web/map", ready: onMap("NetworkPolicy web") + ` && ` + onMap("Pod web-")},
		{name: "map of a namespace", hash: "#/namespaces/-/default/map", ready: onMap("Deployment owned"), open: func(p page) {
			p.visit("#/namespaces/-/default/map")
			p.sees("%s", onMap("Deployment owned")) // not the map before
			p.value(`document.querySelector(".map + * + details").open = true`)
		}},
		{name: "policy", hash: "#/networkpolicies.networking.k8s.io/default/web", ready: text("[data-section=Allows]") + ` && document.querySelector("[data-section='Selected pods'] tbody tr")`},
		{name: "revisions", hash: "#/deployments.apps/default/web/revisions", ready: `document.querySelector(".beside")`},
		{name: "node", hash: "#/nodes/-/greenhouse-01",
			ready: `document.querySelectorAll("[data-section=Use] svg").length >= 2 && document.querySelector(".images ` +
				`table") && ` + text("[data-section=Server]")},
		{name: "secret", hash: "#/secrets/default/door", ready: text("[data-section=Data]") + `?.includes("password")`},
		{name: "create", hash: "#/create", ready: `document.querySelector(".drop")`},
		{name: "completion", ready: `document.querySelector(".cm-completionInfo") && ` +
			`document.querySelector(".cm-lint-marker-warning")`,
			open: func(p page) {
				p.visit("#/create")
				p.types(strings.Replace(begun, "spec:\n", "spec:\n  replica: 1 # one\n  minReadySeconds: \"1\"\n", 1), "im")
			}},
		{name: "search", hash: "#/search?q=web", ready: rows + ` > 3`},
		{name: "who may", hash: "#/access", ready: rows + ` > 0`},
		{name: "releases", hash: "#/helm", ready: rows + ` > 0`},
		{name: "release", hash: "#/helm/default/tower", ready: text("[data-section=History]")},
		{name: "node terminal", hash: "#/nodes/-/greenhouse-01/shell", ready: text(".console") + `?.includes("#")`},
		{name: "missing", hash: "#/nosuchkind", ready: `document.querySelector(".empty")`},
		{name: "help",
			ready: `document.querySelector("dialog dl dt") && document.querySelector(".documents details[open] table")`,
			open: func(p page) {
				p.visit("#/pods")
				p.click("#help")
				p.put("dialog [name=text]", "imagepullbackoff")
				p.sees(`document.querySelector(".documents details")`)
				p.value(`document.querySelectorAll(".documents summary").forEach((s) => s.click()) || true`)
			}},
		{name: "delete", ready: `document.querySelector("dialog [data-go]")`, open: func(p page) {
			p.visit("#/pods/default/sick")
			p.sees(`%s === "sick"`, text("#title"))
			p.press(".bar", "Delete")
		}},
		// The menu does not cover its button.
		{name: "menu", ready: `document.querySelector("#nav a[data-kind='nodes.']")?.checkVisibility() && ` +
			`document.elementFromPoint(40, 20)?.closest(".top")`, open: func(p page) {
			p.visit("#/pods")
			p.sees(rows + ` >= 2`)
			p.value(`{const m = document.querySelector("#menu"); if (m.checkVisibility()) m.click(); true}`)
		}},
	}
}

// dialogs returns the dialogs of actions.
func dialogs(b *box) []look {
	ask := func(name, hash, button, ready string) look {
		return look{name: name, ready: `document.querySelector("dialog [data-go]") && ` + ready, rare: true,
			open: func(p page) {
				p.visit(hash)
				p.sees(`%s === %q`, text("#title"), path.Base(hash))
				p.press(".bar", button)
			}}
	}
	return []look{
		ask("scale", "#/deployments.apps/default/web", "Scale", `document.querySelector("dialog [name=replicas]")`),
		ask("restart", "#/deployments.apps/default/web", "Restart", `true`),
		ask("drain", "#/nodes/-/greenhouse-01", "Drain", `document.querySelector("dialog .warning")`),
		ask("approve", "#/certificatesigningrequests.certificates.k8s.io/-/ann", "Approve", `true`),
		ask("deny", "#/certificatesigningrequests.certificates.k8s.io/-/ann", "Deny", `true`),
		ask("delete deployment", "#/deployments.apps/default/web", "Delete", `document.querySelector("dialog fieldset")`),
		{name: "go to", ready: `document.querySelector("dialog [list=kinds]")`, rare: true, open: func(p page) {
			p.visit("#/pods")
			p.sees(rows + ` >= 2`)
			p.key(":")
		}},
	}
}

// long is an object whose names have the maximum length, with a text without spaces.
var long = strings.ReplaceAll(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "NAME", `+
	`"namespace": "default", "labels": {"LABEL/LABEL": "LABEL"}, "annotations": {"note": "NAMENAMENAMENAME"}}, `+
	`"data": {"NAME": "NAMENAMENAME"}}`, "LABEL", strings.Repeat("l", 63))

// states returns screens that depend on a state of the page, the node or an object.
func states(b *box) []look {
	in := func(token string) func(page) {
		return func(p page) {
			p.click("#sign-out")
			p.enter(token)
		}
	}
	link := func(limit *network.Conditions) func(page) {
		return func(p page) {
			p.limit(limit)
			p.visit("#/services")
		}
	}
	name := strings.Repeat("n", 253)
	return []look{
		{name: "refused", ready: text("#sign-in-error") + `?.startsWith("Monopod does not know")`, rare: true,
			leave: func(p page) { p.enter(b.token) }, open: func(p page) {
				p.click("#sign-out")
				p.fill("#token", "wrong")
				p.click("#sign-in button")
			}},
		{name: "view", ready: text(".empty") + `?.includes("not allowed")`, rare: true, leave: in(b.token),
			open: func(p page) {
				in(b.view)(p)
				p.visit("#/secrets")
			}},
		{name: "viewed pod", ready: text("[data-section=Why]"), rare: true, leave: in(b.token), open: func(p page) {
			in(b.view)(p)
			p.visit("#/pods/default/sick")
		}},
		{name: "gone", ready: text("#link-text") + `?.includes("does not answer")`, rare: true,
			open: link(&network.Conditions{Offline: true, DownloadThroughput: -1, UploadThroughput: -1}), leave: func(p page) {
				link(nil)(p)
				p.sees(`%s === "Live"`, text("#link-text"))
			}},
		{name: "none", hash: "#/ingresses.networking.k8s.io", ready: `document.querySelector(".empty")`, rare: true},
		{name: "no match", hash: "#/pods?q=nothing-is-called-so", ready: `document.querySelector(".empty")`, rare: true},
		{name: "long list", hash: "#/configmaps", ready: row(name), rare: true},
		{name: "long", hash: "#/configmaps/default/" + name, ready: text("[data-section=Data]"), rare: true},
		{name: "rights", hash: "#/clusterrolebindings.rbac.authorization.k8s.io/-/cluster-admin", ready: text("[data-section=Permissions] button"), rare: true},
		{name: "role", hash: "#/clusterroles.rbac.authorization.k8s.io/-/cluster-admin", ready: text("[data-section='Who has it everywhere'] table"), rare: true},
		{name: "cronjob", hash: "#/cronjobs.batch/default/nightly", ready: text("[data-section=Details]"), rare: true},
		{name: "job", ready: text(".state") + `?.includes("Complete")`, rare: true, open: func(p page) {
			p.visit("#/jobs.batch")
			p.sees(rows + ` > 0`)
			p.value(`location.hash = document.querySelector("tbody th a").getAttribute("href")`)
		}},
		{name: "service", hash: "#/services/default/kubernetes", ready: text("[data-section=Ports]"), rare: true},
		{name: "ports", ready: text("[data-section=Ports] .answer"), rare: true, open: func(p page) {
			p.visit("#/pods?q=web-")
			p.sees(rows + ` === 2`)
			p.value(`location.hash = document.querySelector("tbody th a").getAttribute("href")`)
			p.press("[data-section=Ports]", "Send GET")
		}},
		{name: "cordoned", ready: text("[data-section=Conditions]") + `?.includes("Cordoned")`, rare: true,
			open: func(p page) {
				p.visit("#/nodes/-/greenhouse-01")
				p.press(".bar", "Cordon")
			}, leave: func(p page) { p.press(".bar", "Uncordon") }},
		{name: "checked", ready: `document.querySelector(".review .error")`, rare: true, open: func(p page) {
			p.visit("#/create")
			p.put(".editor", kiosk+"---\napiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n---\napiVersion: v1\n"+
				"kind: Pod\nmetadata: {name: empty}\nspec: {containers: []}\n")
			p.press("main", "Check")
		}},
	}
}

const sick = "apiVersion: v1\nkind: Pod\nmetadata: {name: sick, namespace: default, labels: {app: sick, " +
	"team: greenhouse}}\nspec:\n  containers:\n  - {name: app, image: \"monopod.local/web:1\", args: [exit, \"3\"], " +
	"env: [{name: COLOR, value: blue}], ports: [{containerPort: 8080}], volumeMounts: [{name: data, " +
	"mountPath: /data}]}\n  volumes: [{name: data, emptyDir: {}}]\n"

const friends = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: " +
	"default}\nspec:\n" +
	"  podSelector: {matchLabels: {app: web}}\n  ingress:\n  - from: [{podSelector: {matchLabels: {app: shop}}}, " +
	"{ipBlock: {cidr: 10.0.0.0/8}}]\n" +
	"    ports: [{port: 8080}]\n"

// owned is a Deployment that crashes, and that another manager than the page has applied.
const owned = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: owned, namespace: default}\nspec:\n" +
	"  replicas: 2\n  selector: {matchLabels: {app: owned}}\n  template:\n    metadata: {labels: {app: owned}}\n" +
	"    spec:\n      containers:\n      - {name: app, image: \"monopod.local/web:1\", args: [exit, \"3\"]}\n"

func (b *box) own(t *testing.T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch,
		"http://x/apis/apps/v1/namespaces/default/deployments/owned?fieldManager=another-program-with-a-name-that-is-longer-than-a-phone-is-wide", strings.NewReader(owned))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	resp, err := b.HTTP().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatal(resp.Status)
	}
}

// screens checks every screen in both themes and at two widths: axe finds no violation, and nothing is wider than the
// window. With -pictures it also writes screenshots to the folder MONOPOD_SCREENS.
func (p page) screens(b *box) {
	axe := axeCore(p.t)
	b.own(p.t)
	p.apply(sick, "Pod sick")
	p.apply(friends, "NetworkPolicy web")
	p.request("ann")
	p.apply(strings.ReplaceAll(long, "NAME", strings.Repeat("n", 253)), "ConfigMap "+strings.Repeat("n", 253))
	p.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: door, namespace: default}\nstringData: {password: hunter2}\n",
		"Secret door")
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
				Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}
			if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, params); err != nil {
				p.t.Fatal(err)
			}
			height := int64(860)
			if *pictures {
				height = 1500 // to show more of the page
			}
			p.do(chromedp.EmulateViewport(width, height))
			for _, s := range screens(b) {
				if s.rare && !*pictures && (theme != "dark" || width != 390) {
					continue
				}
				p.t.Run(fmt.Sprintf("%s %s %d", s.name, theme, width), func(t *testing.T) {
					p.on(t).screen(axe, s, fmt.Sprintf("%s-%s-%d.png", s.name, theme, width))
				})
			}
		}
	}
	p.do(chromedp.EmulateViewport(1360, 1000))
}

func (p page) screen(axe string, s look, file string) {
	p.t.Helper()
	if s.open != nil {
		s.open(p)
	} else {
		p.visit(s.hash)
	}
	p.sees("%s", s.ready)
	if dir := os.Getenv("MONOPOD_SCREENS"); dir != "" && *pictures {
		data, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	if wide := p.value(`document.documentElement.scrollWidth - innerWidth`); wide.(float64) > 0 {
		p.t.Errorf("%v pixels wider than the window: %v", wide,
			p.value(`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 `+
				`&& e.checkVisibility()).slice(0, 5).map((e) => e.outerHTML.slice(0, 150)).join("\n")`))
	}
	if p.value(`typeof axe`) == "undefined" {
		p.value(axe + `; true`)
	}
	p.value(`(window.found = null, axe.run(document, {resultTypes: ["violations"]}).then((r) => window.found = ` +
		`JSON.stringify(r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + v.help + ": " + n.html.slice(0, ` +
		`200) + " " + (n.any[0]?.message ?? "")))), (err) => window.found = JSON.stringify([String(err)])), true)`)
	p.sees(`window.found`)
	var found []string
	if err := json.Unmarshal([]byte(p.value(`window.found`).(string)), &found); err != nil {
		p.t.Fatal(err)
	}
	for _, v := range found {
		p.t.Error(v)
	}
	p.value(`{document.querySelector("dialog")?.close(); const m = ` +
		`document.querySelector("#menu[aria-expanded=true]"); if (m) m.click(); true}`)
	if s.leave != nil {
		s.leave(p)
	}
}

// axeCore returns the script of axe-core, which checks accessibility.
func axeCore(t *testing.T) string {
	t.Helper()
	f, err := os.Open("testdata/axe.min.js.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
