package web_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// screens are all there are; open is done before one is looked at.
func screens() []struct {
	name, hash, ready string
	open              func(page)
} {
	return []struct {
		name, hash, ready string
		open              func(page)
	}{
		{"pods", "#/pods", rows + ` >= 2`, nil},
		{"events", "#/events", rows + ` > 5`, nil},
		{"secrets", "#/secrets", row("door"), nil},
		{"pod", "#/pods/default/sick", text("[data-section=Why]") + `?.includes("exit code 3")`, nil},
		{"logs", "#/deployments.apps/default/web/logs", text(".log") + `?.includes("listens on")`, nil},
		{"terminal", "", text(".body .hint") + `?.startsWith("Connected to web")`, func(p page) {
			p.visit("#/pods?q=web-")
			p.sees(rows + ` === 2`)
			p.value(`location.hash = document.querySelector("tbody th a").getAttribute("href") + "/shell"`)
			p.put("[aria-label=Command]", "cat")
			p.press("main", "Connect")
		}},
		{"yaml", "#/deployments.apps/default/web/yaml", `document.querySelector(".editor")?.value.includes("replicas")`, nil},
		{"review", "", `document.querySelector(".diff")`, func(p page) {
			p.visit("#/deployments.apps/default/web/yaml")
			p.sees(`document.querySelector(".editor")?.value.includes("terminationGracePeriodSeconds: 30")`)
			p.value(`{const e = document.querySelector(".editor"); e.value = e.value.replace("terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 20"); true}`)
			p.press(".body", "Review changes")
		}},
		{"conflict", "", `document.querySelector(".conflicts")`, func(p page) {
			p.visit("#/deployments.apps/default/owned/yaml")
			p.sees(`document.querySelector(".editor")?.value.includes("name: owned")`)
			p.value(`{const e = document.querySelector(".editor"); e.value = e.value.replace("replicas: 2", "replicas: 3"); true}`)
			p.press(".body", "Review changes")
		}},
		{"crash loop", "#/deployments.apps/default/owned", `document.querySelector(".state [data-mood=wait]") && document.querySelector(".why code")`, nil},
		{"deployments", "#/deployments.apps", row("owned") + `?.querySelector(".c-ready [data-mood=wait]")`, nil},
		{"nobody", "#/pods/default/nobody", text(".empty") + ` === "There is no Pod nobody."`, nil},
		{"deployment", "#/deployments.apps/default/web", text(".state") + `?.includes("ready")`, nil},
		{"revisions", "#/deployments.apps/default/web/revisions", `document.querySelector(".beside")`, nil},
		{"node", "#/nodes/-/greenhouse-01", `document.querySelectorAll("[data-section=Use] svg").length >= 2 && document.querySelector(".images table") && ` + text("[data-section=Server]"), nil},
		{"secret", "#/secrets/default/door", text("[data-section=Data]") + `?.includes("password")`, nil},
		{"create", "#/create", `document.querySelector(".drop")`, nil},
		{"missing", "#/nosuchkind", `document.querySelector(".empty")`, nil},
		{"help", "", `document.querySelector("dialog dl dt") && document.querySelector(".documents details[open] table")`, func(p page) {
			p.visit("#/pods")
			p.click("#help")
			p.put("dialog [name=text]", "imagepullbackoff")
			p.sees(`document.querySelector(".documents details")`)
			p.value(`document.querySelectorAll(".documents summary").forEach((s) => s.click()) || true`)
		}},
		{"delete", "", `document.querySelector("dialog [data-go]")`, func(p page) {
			p.visit("#/pods/default/sick")
			p.press(".bar", "Delete")
		}},
		{"menu", "", `document.querySelector("#nav a[data-kind='nodes.']")?.checkVisibility() && document.elementFromPoint(40, 20)?.closest(".top")`, func(p page) { // the menu does not cover its button
			p.visit("#/pods")
			p.sees(rows + ` >= 2`)
			p.value(`{const m = document.querySelector("#menu"); if (m.checkVisibility()) m.click(); true}`)
		}},
	}
}

const sick = "apiVersion: v1\nkind: Pod\nmetadata: {name: sick, namespace: default, labels: {app: sick, team: greenhouse}}\nspec:\n  containers:\n  - {name: app, image: \"monopod.local/web:1\", args: [exit, \"3\"], env: [{name: COLOR, value: blue}], ports: [{containerPort: 8080}], volumeMounts: [{name: data, mountPath: /data}]}\n  volumes: [{name: data, emptyDir: {}}]\n"

// owned is a Deployment that crashes, and whose fields another manager than the page owns.
const owned = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: owned, namespace: default}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: owned}}\n  template:\n    metadata: {labels: {app: owned}}\n    spec:\n      containers:\n      - {name: app, image: \"monopod.local/web:1\", args: [exit, \"3\"]}\n"

func (b *box) own(t *testing.T) {
	t.Helper()
	resp, err := b.HTTP().Post("http://x/apis/apps/v1/namespaces/default/deployments?fieldManager=another-program-with-a-name-that-is-longer-than-a-phone-is-wide", "application/yaml", strings.NewReader(owned))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatal(resp.Status)
	}
}

// Every screen, in both themes and at two widths, has no violation that axe finds, and nothing that is wider than the
// window. With -pictures they are also written to the folder of MONOPOD_SCREENS.
func (p page) screens(b *box) {
	axe := axeCore(p.t)
	b.own(p.t)
	p.apply(sick, "Pod sick")
	p.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: door, namespace: default}\nstringData: {password: hunter2}\n", "Secret door")
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}}
			if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, params); err != nil {
				p.t.Fatal(err)
			}
			p.do(chromedp.EmulateViewport(width, 860))
			for _, s := range screens() {
				p.t.Run(fmt.Sprintf("%s %s %d", s.name, theme, width), func(t *testing.T) {
					p.on(t).screen(axe, s.hash, s.ready, s.open, fmt.Sprintf("%s-%s-%d.png", s.name, theme, width))
				})
			}
		}
	}
	p.do(chromedp.EmulateViewport(1360, 1000))
}

func (p page) screen(axe, hash, ready string, open func(page), file string) {
	p.t.Helper()
	if open != nil {
		open(p)
	} else {
		p.visit(hash)
	}
	p.sees("%s", ready)
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
		p.t.Errorf("%v pixels wider than the window: %v", wide, p.value(`[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && e.checkVisibility()).slice(0, 5).map((e) => e.outerHTML.slice(0, 150)).join("\n")`))
	}
	if p.value(`typeof axe`) == "undefined" {
		p.value(axe + `; true`)
	}
	p.value(`(window.found = null, axe.run(document, {resultTypes: ["violations"]}).then((r) => window.found = JSON.stringify(r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + v.help + ": " + n.html.slice(0, 200) + " " + (n.any[0]?.message ?? "")))), (err) => window.found = JSON.stringify([String(err)])), true)`)
	p.sees(`window.found`)
	var found []string
	if err := json.Unmarshal([]byte(p.value(`window.found`).(string)), &found); err != nil {
		p.t.Fatal(err)
	}
	for _, v := range found {
		p.t.Error(v)
	}
	p.value(`{document.querySelector("dialog")?.close(); const m = document.querySelector("#menu[aria-expanded=true]"); if (m) m.click(); true}`)
}

// axeCore is the text of axe-core, which checks accessibility.
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
