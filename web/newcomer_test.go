package web_test

import (
	"fmt"

	"github.com/chromedp/chromedp"
)

// kiosk is a Deployment that works.
const kiosk = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: kiosk, namespace: default}\nspec:\n" +
	"  replicas: 1\n  selector: {matchLabels: {app: kiosk}}\n  template:\n    metadata: {labels: {app: kiosk}}\n" +
	"    spec:\n      containers:\n      - {name: web, image: \"monopod.local/web:1\", args: [sleep, 10h]}\n"

// newcomer breaks a Deployment in five ways, reads on the page why it does not work, and fixes it there: by returning
// to a revision, by editing its YAML, and by removing the namespace's label that denies its pods.
func (p page) newcomer(*box) {
	p.apply(kiosk, "Deployment kiosk")
	p.sees(`%s === "1/1 ready"`, text(".state"))

	// An invalid image; the link of the suggested command leads to the revisions.
	p.edit("#/deployments.apps/default/kiosk", "image: monopod.local/web:1", "image: monopod.local/Web:1")
	p.reads(`"monopod.local/Web:1" is not`)
	p.press("[data-section=Why]", "kubectl rollout undo deployment/kiosk")
	p.press(".body", "Return to revision 1")
	p.press("dialog", "Return")
	p.sees(`%s.includes("Revision 3 (now)")`, text(".body"))
	p.reads("1 of 1 replicas are ready")

	// A crash; the link of the suggested command leads to the log of the previous run, and the pod's YAML to that of its
	// Deployment.
	p.edit("#/deployments.apps/default/kiosk", "- sleep\n        - 10h",
		"- do\n        - echo\n        - unknown\n        - flag\n        - then\n        - exit\n        - \"2\"")
	p.visit("#/pods?q=label%3Aapp%3Dkiosk")
	p.sees(`document.querySelector("td.c-status [data-mood=bad]")`)
	p.value(`location.hash = document.querySelector("td.c-status [data-mood=bad]").closest("tr").querySelector("th ` +
		`a").getAttribute("href") || true`)
	p.sees(`%s?.includes('its last line is "unknown flag"')`, text("[data-section=Why]"))
	p.value(`document.querySelector("[data-section=Why] .todo a").click() || true`)
	p.sees(`%s.trim() === "unknown flag" && document.querySelector("[name=previous]").checked`, text(".log"))
	p.press(".tabs", "YAML")
	p.press(".body", "Deployment kiosk")
	p.edit("#/deployments.apps/default/kiosk",
		"- do\n        - echo\n        - unknown\n        - flag\n        - then\n        - exit\n        - \"2\"",
		"- sleep\n        - 10h")
	p.reads("1 of 1 replicas are ready")

	// The memory limit is exceeded.
	p.edit("#/deployments.apps/default/kiosk", "- sleep\n        - 10h", "- alloc\n        - \"64\"")
	p.edit("#/deployments.apps/default/kiosk", "resources: {}", "resources: {limits: {memory: 32Mi}}")
	p.reads("it uses too much memory (OOMKilled, exit code 137): its limit is 32Mi")
	p.edit("#/deployments.apps/default/kiosk", "memory: 32Mi", "memory: 128Mi")
	p.reads("1 of 1 replicas are ready")

	// No node has enough CPU.
	p.edit("#/deployments.apps/default/kiosk", "          limits:", "          requests: {cpu: 640}\n          limits:")
	p.reads("it requests 640 of cpu, and no node has more than")
	p.edit("#/deployments.apps/default/kiosk", "cpu: \"640\"", "cpu: 1m")
	p.reads("1 of 1 replicas are ready")

	// The Pod Security level of the namespace denies the pods.
	p.edit("#/namespaces/-/default", "  labels:\n", "  labels:\n    pod-security.kubernetes.io/enforce: restricted\n")
	p.visit("#/deployments.apps/default/kiosk")
	p.press(".bar", "Restart")
	p.press("dialog", "Restart")
	p.reads("no pod can be created, because the namespace's Pod Security level does not allow it")
	p.edit("#/namespaces/-/default", "    pod-security.kubernetes.io/enforce: restricted\n", "")
	p.visit("#/deployments.apps/default/kiosk")
	p.press(".bar", "Restart")
	p.press("dialog", "Restart")
	p.reads("1 of 1 replicas are ready")
	p.press(".bar", "Delete")
	p.press("dialog", "Delete")
	p.visit("#/pods?q=label%3Aapp%3Dkiosk")
	p.sees(`%s === "No pods."`, text(".empty"))
}

// onPhone does the same in the window of a phone.
func (p page) onPhone(b *box) {
	p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch))
	p.newcomer(b)
	p.do(chromedp.EmulateReset())
	p.do(chromedp.EmulateViewport(1360, 1000))
}

// reads waits until the section Why of the Deployment's page contains words.
func (p page) reads(words string) {
	p.t.Helper()
	p.visit("#/deployments.apps/default/kiosk")
	p.sees(`%s?.includes(%q)`, text("[data-section=Why]"), words)
}

// edit replaces a part of an object's YAML, and applies it.
func (p page) edit(hash, old, with string) {
	p.t.Helper()
	p.visit(hash + "/yaml")
	p.sees(`document.querySelector(".editor")?.value.includes(%q)`, old)
	p.value(fmt.Sprintf(
		`{const e = document.querySelector(".editor"); e.value = e.value.replace(%q, `+
			`%q); e.dispatchEvent(new Event("input")); true}`, old, with))
	p.press(".body", "Review changes")
	p.press(".review", "Apply")
	p.sees(`%s === "Applied."`, text(".review"))
}
