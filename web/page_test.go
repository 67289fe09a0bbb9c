package web_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

// TestPage tests the page in a real browser with the real API, from the sign-in form to the sign-out.
func TestPage(t *testing.T) {
	a := serve(t)
	p := open(t, a.url)

	for _, step := range []struct {
		name string
		play func(page, *api)
	}{
		{"sign in", page.signIn},
		{"first visit", page.firstVisit},
		{"broken load", page.brokenLoad},
		{"WebSocket", page.socket},
		{"pods live", page.pods},
		{"object", page.object},
		{"scale", page.scale},
		{"graceful delete", page.gracefulDelete},
		{"forced delete", page.forcedDelete},
		{"error of the API", page.deleteFails},
		{"events", page.events},
		{"filters", page.filters},
		{"keyboard", page.keyboard},
		{"YAML", page.yaml},
		{"edits", page.edits},
		{"editor", page.editor},
		{"editor without CodeMirror", page.plainEditor},
		{"create", page.create},
		{"secrets", page.secrets},
		{"reconnects", page.reconnects},
		{"five hundred pods", page.many},
		{"session ends", page.sessionEnds},
		{"sign out", page.signOut},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.play(p.on(t), a) }) {
			return // the next step continues on this step's page
		}
	}
	p.on(t).clean()
}

func (p page) signIn(a *api) {
	p.sees(`document.body.dataset.view === "out"`)
	p.sees(`%s.includes("grep token:")`, text(".door"))
	p.fill("#token", "wrong")
	p.click("#sign-in button")
	p.sees(`%s === "Monopod does not know this token."`, text("#sign-in-error"))
	p.enter(token)
	p.sees(`%s === "Overview"`, text("#title"))
	p.visit("#/pods")
	p.sees(`%s === "No pods."`, text(".empty"))
	p.sees(`%s === "kubernetes-admin"`, text("#user"))
	if got := p.value(`document.cookie + JSON.stringify(localStorage)`); got != "{}" {
		p.t.Errorf("stored beyond this tab: %v", got)
	}
}

// firstVisit: the first screen of a user who is signed in needs at most 30 requests and 150 KB of compressed bodies,
// and requests nothing that it does not show, no table of another language for instance. The browser aborts requests
// when the network of the machine changes, for example while other tests create pods; repeated requests count once.
func (p page) firstVisit(a *api) {
	p.value(`performance.setResourceTimingBufferSize(500) || true`)
	if _, err := chromedp.Call(p.ctx, network.ClearBrowserCache, cdp.Empty{}); err != nil { // revalidated files have no body
		p.t.Fatal(err)
	}
	p.load(a.url)
	p.sees(`document.body.dataset.view === "in" && %s === "Live"`, text("#link-text"))
	const all = `[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]`
	requests := p.value(`new Set(` + all + `.map((e) => e.name)).size`)
	size := p.value(all + `.reduce((sum, e) => sum + e.encodedBodySize, 0)`)
	p.t.Logf("%v requests, %v bytes", requests, size)
	if n, _ := requests.(float64); n < 5 || n > 30 {
		p.t.Errorf("%v requests, want at most 30: %v", requests, p.value(all+`.map((e) => e.name).join(" ")`))
	}
	if n, _ := size.(float64); n < 10_000 || n > 150_000 {
		p.t.Errorf("%v bytes, want at most 150,000", size)
	}
	if tables := p.value(all + `.filter((e) => /text\.\w+\.js/.test(e.name)).length`); tables != 0.0 {
		p.t.Errorf("%v tables of languages are requested", tables)
	}
	if p.value(all+`.some((e) => /codemirror|editor/.test(e.name))`) != false {
		p.t.Error("the editor was loaded")
	}
}

// brokenLoad: if the scripts of the page fail to load, the page loads itself again.
func (p page) brokenLoad(a *api) {
	a.breaks.Store(true)
	p.load(a.url)
	p.sees(`document.body.dataset.view === "in" && %s === "Live"`, text("#link-text"))
	if a.breaks.Load() {
		p.t.Error("the connection did not break")
	}
}

// socket: the page may open a watch over a WebSocket, with the token as a subprotocol.
func (p page) socket(*api) {
	p.value(`{
		const token = btoa(sessionStorage.getItem("monopod-token")).replaceAll("=", "");
		const socket = new WebSocket("/api/v1/namespaces?watch=1", ["base64url.bearer.authorization.k8s.io." + token, "base64.binary.k8s.io"]);
		socket.onmessage = (ev) => { window.heard ??= JSON.parse(ev.data).object.kind + " over " + socket.protocol; socket.close(); };
		true
	}`)
	p.sees(`window.heard === "Namespace over base64.binary.k8s.io"`)
}

func (p page) pods(a *api) {
	p.visit("#/pods")
	pod := create(p.t, a, podNamed("web-1"))
	p.sees(`%s === "Pending"`, cell("web-1", ".c-status"))
	a.runs(p.t, pod, 2)
	p.sees(`%s === "Running"`, cell("web-1", ".c-status"))
	p.click("#wide")
	for class, want := range map[string]string{".c-ready": "1/1", ".c-ip": "10.88.0.7", ".c-node": "greenhouse-01",
		".c-namespace": "default"} {
		p.sees(`%s === %q`, cell("web-1", class), want)
	}
	p.sees(`location.hash.includes("wide=1")`)
	p.sees(`%s.startsWith("2")`, cell("web-1", ".c-restarts"))
	p.sees(`/^\d+s$/.test(%s)`, cell("web-1", ".c-age"))
	before := p.value(cell("web-1", ".c-age"))
	p.sees(`%s !== %q`, cell("web-1", ".c-age"), before)
	a.waits(p.t, create(p.t, a, podNamed("web-2")), "CrashLoopBackOff", "back-off 20s restarting failed container")
	p.sees(`%s === "CrashLoopBackOff"`, cell("web-2", ".c-status"))
	p.sees(`%s === "2"`, text(".count"))
	p.press("thead", "Status") // ascending, then descending
	p.sees(`document.querySelector("tbody th").innerText === "web-2" && ` +
		`document.querySelector("th[aria-sort=ascending]").innerText.includes("Status")`)
	p.press("thead", "Status")
	p.sees(`document.querySelector("tbody th").innerText === "web-1" && location.hash.includes("sort=Status%%2Cdown")`)
}

// object: the page of an object shows its state in words, and links to related objects.
func (p page) object(a *api) {
	create(p.t, a, machine())
	pod := podNamed("crashed")
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u",
		Controller: new(true)}}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "COLOR", Value: "<b>blue</b>"}}
	pod = create(p.t, a, pod)
	_, err := client.Update(p.t.Context(), a.reg, pod, "status", func(p *corev1.Pod) error {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", RestartCount: 4,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
				Message: "back-off 1m20s"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137,
				Reason: "OOMKilled", FinishedAt: metav1.Now()}},
		}}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.visit("#/pods/default/crashed")
	p.sees(`%s === "crashed" && %s.includes("CrashLoopBackOff")`, text("#title"), text(".state"))
	p.sees(`%s.includes("OOMKilled")`, text(".why .sentence"))
	p.sees(`%s.includes("exit code 137, SIGKILL: it used more memory than its limit (OOMKilled)")`,
		text("[data-section=Containers]"))
	p.sees(`%s.includes("Last end") && %[1]s.includes("monopod.local/web:1")`, text("[data-section=Containers]"))
	p.sees(`%s.includes("Container ended") && %[1]s.includes("Pod created")`, text("[data-section=Timeline]"))
	p.sees(`%s.includes("<b>blue</b>")`, text("[data-section=Environment]"))
	p.sees(`document.querySelector("a[href='#/replicasets.apps/default/web']")?.innerText === "ReplicaSet web"`)
	p.press(".bar", "Delete")
	p.sees(`document.querySelector("dialog")`)
	// Navigates like the browser's back button, which a dialog does not cover.
	p.value(`document.querySelector(".crumb a").click() || true`)
	p.sees(`!document.querySelector("dialog") && %s`, row("web-1"))
	a.remove(p.t, "crashed")
	p.visit("#/pods/default/no-such-pod")
	p.sees(`%s === "There is no Pod no-such-pod."`, text(".body"))
	p.visit("#/nosuchkind")
	p.sees(`%s.includes("no kind")`, text(".empty"))
	p.visit("#/pods")
	p.sees(`%s`, row("web-1"))
}

func (p page) scale(a *api) {
	create(p.t, a, replicaSet("web", 2))
	p.visit("#/replicasets.apps/default/web")
	p.press(".bar", "Scale")
	p.put("dialog [name=replicas]", "7")
	p.press("dialog", "Scale")
	p.sees(`!document.querySelector("dialog") && /Desired\s+7/.test(%s)`, text("[data-section=Details]"))
	p.visit("#/pods")
}

func (p page) openDelete(name string) {
	p.t.Helper()
	p.visit("#/pods/default/" + name)
	p.press(".bar", "Delete")
	p.sees(`document.querySelector("dialog")?.open && %s.startsWith(%q)`, text("dialog .what"), name)
}

func (p page) gracefulDelete(a *api) {
	p.openDelete("web-1")
	p.sees(`document.querySelector("dialog [name=grace]").value === "30"`)
	p.put("dialog [name=grace]", "20")
	p.press("dialog", "Delete")
	p.sees(`!document.querySelector("dialog")`)
	p.sees(`%s.startsWith("Terminating")`, text(".state"))
	pod, err := client.Get[*corev1.Pod](p.t.Context(), a.reg, "default", "web-1")
	if err != nil || pod.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds != 20 {
		p.t.Fatalf("the store has %v, %v", pod, err)
	}
	p.sees(`document.querySelector(".state progress").value < 20`)
	p.visit("#/pods")
	p.sees(`/^\d+ s left$/.test(%s)`, cell("web-1", ".left"))
	left := p.value(cell("web-1", ".left") + ".match(/\\d+/)[0] | 0")
	p.sees(`parseInt(%s) < %v`, cell("web-1", ".left"), left)
	a.remove(p.t, "web-1")
	p.sees(`!%s`, row("web-1"))
}

func (p page) forcedDelete(a *api) {
	p.openDelete("web-2")
	p.click("dialog input[value=force]")
	p.sees(`%s.includes("does not wait to hear that its containers are dead")`, text("dialog .warning"))
	p.sees(`document.querySelector("dialog [data-go]").disabled`)
	p.click("dialog [name=sure]")
	p.press("dialog", "Delete by force")
	p.sees(`%s.includes("any more")`, text(".state"))
	_, err := client.Get[*corev1.Pod](p.t.Context(), a.reg, "default", "web-2")
	if !apierrors.IsNotFound(err) {
		p.t.Errorf("the pod still exists: %v", err)
	}
}

func (p page) deleteFails(a *api) {
	create(p.t, a, podNamed("gone"))
	p.openDelete("gone")
	a.remove(p.t, "gone")
	p.press("dialog", "Delete")
	p.sees(`%s === 'pods "gone" not found'`, text("dialog .error"))
	p.press("dialog", "Keep it")
	p.sees(`!document.querySelector("dialog")`)
}

// events: markup in names, messages and labels is shown as text.
func (p page) events(a *api) {
	markup := `<img src=x onerror="document.title='broken'"> <b>bold</b> & &amp; <script>document.title='broken'</script>`
	now := time.Now()
	create(p.t, a, event("e1", "Normal", "Started", "older", "Container started", now.Add(-time.Minute)))
	create(p.t, a, event("e2", "Warning", "<i>Failed</i>", "newer", markup, now))
	p.visit("#/events")
	p.sees(`document.querySelector("tbody tr .c-message")?.innerText === %q`, markup)
	p.sees(`document.querySelector("tbody tr .c-reason").innerText === "<i>Failed</i>" && ` +
		`document.querySelector("tbody tr .c-type").innerText === "Warning"`)
	p.sees(`document.querySelector("tbody tr a[href='#/pods/default/newer']")?.innerText === "pod/newer"`)
	pod := podNamed("odd")
	pod.Annotations = map[string]string{"note": markup}
	a.waits(p.t, create(p.t, a, pod), "<b>ErrImagePull</b>", markup)
	p.visit("#/pods/default/odd")
	p.sees(`%s.includes("<b>ErrImagePull</b>")`, text(".state"))
	p.sees(`%s.includes(%q)`, text("[data-section=Containers]"), markup)
	p.sees(`%s.includes(%q)`, text("[data-section=Details]"), markup)
	if p.value(`document.title.includes("broken") || document.querySelectorAll("main img, main b, main i, `+
		`main script").length > 0`) == true {
		p.t.Error("markup in data was rendered as markup of the page")
	}
}

func (p page) filters(a *api) {
	other := podNamed("elsewhere")
	other.Namespace, other.Labels = metav1.NamespaceSystem, map[string]string{"app": "other"}
	create(p.t, a, other)
	p.visit("#/pods")
	p.sees(`%s && %s`, row("odd"), row("elsewhere"))
	p.put("#filter", "APP=web errimage")
	p.sees(rows+` === 1 && %s && %s === "1 of 2"`, row("odd"), text(".count"))
	p.put("#filter", "nothing like it")
	p.sees(`%s === "Nothing matches the filter."`, text(".empty"))
	p.put("#filter", "label:app=other")
	p.sees(rows+` === 1 && %s && %s === "1"`, row("elsewhere"), text(".count"))
	p.put("#filter", "f:metadata.name=odd")
	p.sees(rows+` === 1 && %s`, row("odd"))
	p.put("#filter", "f:no.such=field")
	p.sees(`%s.includes("no.such")`, text(".empty"))
	p.load(a.url + "/#/pods?q=label%3Aapp%3Dother") // an address that was shared
	p.value(`(window.former = true, location.reload(), true)`)
	p.sees(`!window.former && document.querySelector("#filter")?.value === "label:app=other" && ` + rows + ` === 1`)
	p.put("#filter", "")
	p.sees(rows + ` === 2`)
	p.value(`document.querySelector("#namespace").focus() || true`)
	p.sees(`[...document.querySelector("#namespace").options].some((o) => o.value === "kube-system")`)
	p.put("#namespace", metav1.NamespaceSystem)
	p.sees(rows+` === 1 && %s && location.hash.includes("ns=kube-system")`, row("elsewhere"))
	p.put("#namespace", "")
	p.sees(rows + ` === 2`)
}

func (p page) keyboard(a *api) {
	p.visit("#/pods")
	p.sees(rows + ` === 2`)
	p.value(`document.activeElement.blur() || true`)
	p.key("j")
	p.sees(`document.activeElement.innerText === "odd"`)
	p.key("j")
	p.sees(`document.activeElement.innerText === "elsewhere"`)
	p.key("k")
	p.key("d")
	p.sees(`location.hash === "#/pods/default/odd" && %s === "odd"`, text("#title"))
	p.key("y")
	p.sees(`location.hash === "#/pods/default/odd/yaml" && document.querySelector(".editor")`)
	p.key(kb.Escape)
	p.sees(`location.hash === "#/pods/default/odd"`)
	p.key(kb.Escape)
	p.sees(`location.hash === "#/pods" && ` + rows + ` === 2`)
	p.key("/")
	p.sees(`document.activeElement.id === "filter"`)
	p.value(`document.activeElement.blur() || true`)
	p.key(":")
	p.sees(`document.activeElement.name === "text"`)
	p.put("dialog [name=text]", "rs default")
	p.press("dialog", "Go")
	p.sees(`location.hash === "#/replicasets.apps?ns=default" && %s`, row("web"))
	p.key("?")
	p.put("dialog [name=text]", "") // the browser's driver also types the key
	p.sees(`%s.includes("Exit codes")`, text("dialog"))
	p.put("dialog [name=text]", "sigkill")
	p.sees(`document.querySelectorAll("dialog dt").length === 1`)
	p.put("dialog [name=text]", "cgroup_enable") // only the documents contain it
	p.sees(`%s?.includes("raspberry-pi.md") && document.querySelectorAll("dialog dt").length === 0`, text(".documents"))
	p.value(`document.querySelectorAll(".documents summary").forEach((s) => s.click()) || true`)
	p.sees(`[...document.querySelectorAll(".documents details[open] code")].some((c) => c.innerText === ` +
		`"cgroup_enable=memory cgroup_memory=1")`)
	p.put("dialog [name=text]", "StateRestored event") // a link leads to the section that it names, and back
	p.sees(`%s?.includes("troubleshooting.md")`, text(".documents"))
	p.value(`document.querySelectorAll(".documents summary").forEach((s) => s.click()) || true`)
	p.press(".documents", "When the disk fails")
	p.sees(`[...document.querySelectorAll(".documents details")].map((d) => d.open + ` +
		`d.querySelector("strong").innerText).join().startsWith("trueThe state › When the disk fails")`)
	p.press(".documents", "Back to what was found")
	p.sees(`%s?.includes("troubleshooting.md")`, text(".documents"))
	p.put("dialog [name=text]", "xyzzy") // no document contains it
	p.sees(`%s.includes("Nothing found.") && !document.querySelector(".documents details")`, text("dialog"))
	p.press("dialog", "Close")
	p.visit("#/pods")
	p.sees(rows + ` === 2`)
	p.value(`document.activeElement.blur() || true`)
	p.key("j")
	p.sees(`document.activeElement.innerText === "odd"`)
	p.value(`document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: "d", ctrlKey: true, bubbles: true}))`)
	p.sees(`%s.startsWith("odd")`, text("dialog .what"))
	p.press("dialog", "Keep it")
}

// yaml: the page changes an object by server-side apply, after a dry run, and lists the fields that another manager
// owns.
func (p page) yaml(a *api) {
	p.visit("#/create")
	p.sees(`document.querySelector(".editor")`)
	p.put(".editor", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: colors\ndata:\n  sky: blue\n  grass: green\n"+
		"---\napiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n")
	p.press("main", "Check")
	p.sees(`%s.includes("would be created") && %[1]s.includes("no kind Nonsense") && %[1]s.includes("1 of 2 are refused")`,
		text(".review"))
	p.put(".editor", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: colors}\ndata: {sky: blue, grass: green}\n")
	p.press("main", "Check")
	p.press(".review", "Create it")
	p.press(".review", "ConfigMap colors")
	p.sees(`%s.includes("blue")`, text("[data-section=Data]"))
	ref := client.Ref{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace: "default", Name: "colors"}
	got := func() map[string]string {
		obj, err := a.reg.Get(p.t.Context(), ref)
		if err != nil {
			p.t.Fatal(err)
		}
		return obj.(*corev1.ConfigMap).Data
	}

	p.press(".tabs", "YAML")
	p.sees(`document.querySelector(".editor")?.value.includes("sky: blue")`)
	p.put(".editor", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: colors\n  namespace: default\ndata:\n"+
		"  sky: grey\n  grass: green\n")
	p.press(".body", "Review changes")
	p.sees(`%s.includes("- data") === false && document.querySelector(".diff del")?.innerText.includes("sky: blue") && `+
		`document.querySelector(".diff ins")?.innerText.includes("sky: grey")`, text(".diff"))
	if got()["sky"] != "blue" {
		p.t.Error("the dry run changed the object")
	}
	p.press(".review", "Apply")
	p.sees(`%s === "Applied."`, text(".review"))
	if got()["sky"] != "grey" {
		p.t.Errorf("got %v", got())
	}

	// Another manager owns the field that it applied.
	p.value(`fetch("/api/v1/namespaces/default/configmaps/colors?fieldManager=other&force=true", {method: "PATCH", ` +
		`headers: {Authorization: "Bearer " + sessionStorage.getItem("monopod-token"), ` +
		`"Content-Type": "application/apply-patch+yaml"}, body: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ` +
		`colors\ndata:\n  sky: red\n"}).then((r) => window.applied = r.status) && true`)
	p.sees(`window.applied === 200 && %s.includes("changed since")`, text(".tools"))
	p.press(".body", "Review changes")
	p.sees(`%s === "The server would change nothing."`, text(".review"))
	p.changes("sky: grey", "sky: black")
	p.press(".body", "Review changes")
	p.sees(`%s.includes(".data.sky") && %[1]s.includes('"other"')`, text(".conflicts"))
	p.press(".review", "Take over these fields")
	p.press(".review", "Apply and take over")
	p.sees(`%s === "Applied."`, text(".review"))
	if got()["sky"] != "black" {
		p.t.Errorf("got %v", got())
	}
}

func (p page) create(*api) {
	p.visit("#/create")
	p.sees(`document.querySelector(".drop")`)
	// The page checks a dropped file at once.
	p.value(`{
		const files = new DataTransfer();
		files.items.add(new File(['{"apiVersion":"v1","kind":"Secret","metadata":{"name":"door"},"stringData":{"password":"hunter2"}}'], "door.json"));
		document.querySelector(".drop").dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true}));
		true
	}`)
	p.press(".review", "Create it")
	p.press(".review", "Secret door")
}

func (p page) secrets(*api) {
	p.sees(`%s?.includes("password") && !%[1]s.includes("hunter2")`, text("[data-section=Data]"))
	p.press("[data-section=Data]", "Show")
	p.sees(`%s.includes("hunter2")`, text("[data-section=Data]"))
	p.press(".tabs", "YAML")
	p.sees(`!document.querySelector(".editor") && %s.includes("Show it with its values")`, text(".body"))
	p.visit("#/secrets")
	p.sees(`%s === "Opaque" && !document.querySelector("[data-mood]")`, cell("door", ".c-type")) // a type is not a state
	p.visit("#/pods")
	p.sees(rows + ` === 2`)
}

// reconnects: the connection breaks, and more changes happen than the history keeps, so the page must list again.
func (p page) reconnects(a *api) {
	create(p.t, a, podNamed("before-the-gap"))
	p.sees(`%s`, row("before-the-gap"))
	a.down.Store(true)
	a.server.CloseClientConnections()
	p.sees(`%s === "out for lunch"`, text("#link-text"))
	a.remove(p.t, "before-the-gap")
	for range history {
		a.remove(p.t, create(p.t, a, podNamed("passing")).Name)
	}
	create(p.t, a, podNamed("after-the-gap"))
	a.down.Store(false)
	p.sees(`%s === "Pending" && !%s`, cell("after-the-gap", ".c-status"), row("before-the-gap"))
	p.sees(`%s === "Live"`, text("#link-text"))
}

func (p page) many(a *api) {
	for i := range 500 {
		a.runs(p.t, create(p.t, a, podNamed(fmt.Sprintf("crowd-%03d", i))), 0)
	}
	p.sees(`Number(%s) > 500`, text(".count"))
	p.sees(rows + ` < 200`)
	p.sees(`Number(document.querySelector("table.rows").getAttribute("aria-rowcount")) > 500`)
	p.sees(`%s === "Running"`, cell("crowd-002", ".c-status"))
	p.value(`window.kept = ` + row("crowd-002"))
	a.remove(p.t, "crowd-000")
	p.sees(`!%s`, row("crowd-000"))
	if p.value(`window.kept === `+row("crowd-002")) != true {
		p.t.Error("a row that did not change was created again")
	}
	// Scrolling shows other rows and keeps the focused element.
	p.value(row("crowd-002") + `.querySelector("a").focus({preventScroll: true}) || true`)
	p.value(`window.scrollTo(0, document.body.scrollHeight) || true`)
	p.sees(`%s`, row("elsewhere"))
	p.sees(`document.activeElement.innerText === "crowd-002" && !%s`, row("crowd-250"))
	p.value(`window.scrollTo(0, 0) || true`)
	p.sees(`%s?.getBoundingClientRect().top < innerHeight`, row("crowd-003"))
	p.key("G")
	p.sees(`document.activeElement.innerText === "elsewhere"`)
}

func (p page) sessionEnds(a *api) {
	a.refuses.Store(true)
	a.server.CloseClientConnections()
	p.sees(`document.body.dataset.view === "out" && %s.startsWith("The session has ended")`, text("#sign-in-error"))
	if n := p.value(rows); n != 0.0 {
		p.t.Errorf("%v rows are still in the document", n)
	}
	a.refuses.Store(false)
	a.cuts.Store(true) // signing in requests the user again
	p.fill("#token", token+kb.Enter)
	p.sees(`document.body.dataset.view === "in" && Number(%s) > 400`, text(".count"))
	if a.cuts.Load() {
		p.t.Error("the connection did not break")
	}
}

func (p page) signOut(a *api) {
	p.click("#sign-out")
	p.sees(`document.body.dataset.view === "out" && document.activeElement.id === "token"`)
	p.load(a.url)
	p.sees(`document.body.dataset.view === "out"`)
}
