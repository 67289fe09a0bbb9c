package web_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestLanguages: the page has the language of the browser, and then fits a phone as well.
func TestLanguages(t *testing.T) {
	t.Parallel()
	a := serve(t)
	create(t, a, machine())
	a.waits(t, create(t, a, podNamed("web-1")), "CrashLoopBackOff", "back-off 20s restarting failed container")
	create(t, a, event("web-1.1", "Warning", "BackOff", "web-1", "Back-off restarting failed container", time.Now()))
	p := open(t, a.url)

	p.speaks(a.url, "de-CH,en")
	p.sees(`%s === "Anmelden" && document.documentElement.lang === "de"`, text("#door-title"))
	p.sees(`%s.includes("Andernfalls das Token")`, text("#token-hint"))
	p.fill("#token", "wrong")
	p.click("#sign-in button")
	p.sees(`%s === "Monopod kennt dieses Token nicht."`, text("#sign-in-error"))
	p.enter(token)
	p.sees(`document.querySelector("#nav [data-group=Network] summary").textContent === "Netzwerk"`)
	p.visit("#/jobs.batch")
	p.sees(`%s === "Keine jobs."`, text(".empty"))
	p.sees(`document.querySelector("#filter").placeholder.startsWith("Wörter, label:")`)
	p.visit("#/pods/default/web-1")
	p.sees(`/Pod erstellt/.test(%s) && /vor \d+s/.test(%[1]s)`, text("main"))
	p.press(".bar", "Löschen")
	p.sees(`%s === "Pod löschen"`, text("dialog h2"))
	p.press("dialog", "Behalten")
	p.sees(`performance.getEntriesByType("resource").filter((e) => /text\.\w+\.js/.test(e.name)).length === 1`)

	axe := axeCore(t)
	p.do(chromedp.EmulateViewport(390, 860))
	for language, title := range map[string]string{"de": "Übersicht", "fr": "Aperçu", "ja": "概要", "zh": "概览"} {
		p.speaks(a.url, language)
		p.sees(`%s === %q && document.documentElement.lang === %q`, text("#title"), title, language)
		for _, s := range []look{
			{name: "pods", hash: "#/pods", ready: rows + ` === 1`},
			{name: "pod", hash: "#/pods/default/web-1", ready: `document.querySelector(".timeline")`},
			{name: "delete", ready: `document.querySelector("dialog [data-go]")`, open: func(p page) {
				p.click(".bar [data-action=delete]")
			}},
			{name: "help", ready: `document.querySelector("dialog dt")`, open: func(p page) { p.click("#help") }},
			{name: "map", hash: "#/pods/default/web-1/map", ready: `document.querySelector(".map svg")`},
			{name: "yaml", hash: "#/pods/default/web-1/yaml", ready: `document.querySelector(".editor .cm-content")`},
			{name: "create", hash: "#/create", ready: `document.querySelector(".editor .cm-content")`},
			{name: "node", hash: "#/nodes/-/greenhouse-01", ready: text("[data-action=drain]")},
			{name: "drain", ready: `document.querySelector("dialog [data-go]")`, open: func(p page) {
				p.click(".bar [data-action=drain]")
			}},
			{name: "access", hash: "#/access", ready: rows + ` > 0`},
			{name: "overview", hash: "#/", ready: text(".overview") + `?.includes("BackOff")`},
		} {
			p.screen(axe, s, fmt.Sprintf("%s-%s.png", language, s.name))
		}
	}
	p.clean()
}

// speaks loads the page again, in a browser with these languages.
func (p page) speaks(url, languages string) {
	p.t.Helper()
	agent, _ := p.value(`navigator.userAgent`).(string)
	params := emulation.SetUserAgentOverrideParams{UserAgent: agent, AcceptLanguage: languages}
	if _, err := chromedp.Call(p.ctx, emulation.SetUserAgentOverride, params); err != nil {
		p.t.Fatal(err)
	}
	p.load(url)
}
