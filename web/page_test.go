package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver"
	"monopod/apiserver/access/auth"
	"monopod/apiserver/access/rbac"
	"monopod/apiserver/access/rbac/policy"
	"monopod/apiserver/client"
	"monopod/apiserver/registry"
	"monopod/store"
	"monopod/web"
)

const (
	token      = "0123456789abcdef"
	viewToken  = "view-456789abcdef"
	robotToken = "robot-56789abcdef"
	robot      = "robot" // a user without roles
)

// history is the number of changes in the server's history.
const history = 200

// The whole page in a real browser, with the real API: everything that a user sees and does, from the sign-in
// form to the sign-out.
func TestPage(t *testing.T) {
	a := serve(t)
	p := open(t, a.url)

	for _, step := range []struct {
		name string
		play func(page, *api)
	}{
		{"sign in", page.signIn},
		{"WebSocket", page.socket},
		{"node", page.node},
		{"pods live", page.pods},
		{"scale", page.scale},
		{"graceful delete", page.gracefulDelete},
		{"forced delete", page.forcedDelete},
		{"error of the API", page.deleteFails},
		{"events", page.events},
		{"filters", page.filters},
		{"reconnects", page.reconnects},
		{"five hundred pods", page.many},
		{"session ends", page.sessionEnds},
		{"sign out", page.signOut},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.play(p.on(t), a) }) {
			return // the next one starts where this one ends
		}
	}
	p.on(t).clean()
}

// api is a server over a store in memory, with the page.
type api struct {
	url     string
	reg     *registry.Registry
	server  *httptest.Server
	refuses atomic.Bool // no token is valid
	down    atomic.Bool // every response is 503
}

func serve(t *testing.T) *api {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources), History: history}, nil, nil, 0)
	roles := rbac.New(rbac.Config{})
	reg := registry.New(s, resources, registry.Config{Roles: roles})
	for _, err := range []error{reg.Bootstrap(t.Context()), policy.Bootstrap(t.Context(), reg)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- roles.Run(ctx, reg) }()
	a := &api{reg: reg}
	known := auth.Any(auth.Token(token, auth.Admin), auth.Token(viewToken, auth.Viewer), auth.Token(robotToken, auth.User{Name: robot, Groups: []string{auth.Authenticated}}))
	srv, err := apiserver.New(t.Context(), apiserver.Config{
		Registry: reg, Web: web.Handler(), Authorizer: roles,
		Authenticator: auth.Func(func(r *http.Request) (auth.User, bool) {
			u, ok := known.Authenticate(r)
			return u, ok && !a.refuses.Load()
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := srv.Handler()
	a.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.down.Load() {
			http.Error(w, "out for lunch", http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
	}))
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	a.url = a.server.URL
	t.Cleanup(func() {
		a.server.CloseClientConnections()
		a.server.Close()
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return a
}

// --- what the tests create ---

func create[T client.Object](t *testing.T, a *api, obj T) T {
	t.Helper()
	out, err := a.reg.Create(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	return out.(T)
}

func machine() *corev1.Node {
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8148844Ki"),
		corev1.ResourceEphemeralStorage: resource.MustParse("61255492Ki"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "greenhouse-01"},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.7.20"}, {Type: corev1.NodeHostName, Address: "greenhouse-01"}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: "v1.37.2", ContainerRuntimeVersion: "containerd://2.4.2", OSImage: "Debian GNU/Linux 12",
				KernelVersion: "6.1.0-44-arm64", Architecture: "arm64",
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName:   "greenhouse-01",
			Containers: []corev1.Container{{Name: "c", Image: "monopod.local/web:1"}},
		},
	}
}

// runs sets the status of a running pod.
func (a *api) runs(t *testing.T, pod *corev1.Pod, restarts int32) {
	t.Helper()
	_, err := client.Update(t.Context(), a.reg, pod, "status", func(p *corev1.Pod) error {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, "10.88.0.7", []corev1.PodIP{{IP: "10.88.0.7"}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", Ready: true, RestartCount: restarts, Image: "monopod.local/web:1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waits sets the status of a pod that cannot start.
func (a *api) waits(t *testing.T, pod *corev1.Pod, reason, message string) {
	t.Helper()
	_, err := client.Update(t.Context(), a.reg, pod, "status", func(p *corev1.Pod) error {
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func replicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

func event(name, kind, reason, about, message string, at time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: about},
		Type:           kind, Reason: reason, Message: message, Count: 3,
		FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at),
	}
}

// --- what a user sees and does ---

func (p page) signIn(a *api) {
	p.sees(`document.body.dataset.view === "out"`)
	p.sees(`%s.includes("grep token:")`, text(".door"))
	p.fill("#token", "wrong")
	p.click("#sign-in button")
	p.sees(`%s === "Monopod does not know this token."`, text("#sign-in-error"))
	p.fill("#token", token)
	p.click("#sign-in button")
	p.sees(`document.body.dataset.view === "in" && %s === "Live"`, text("#link-text"))
	p.sees(`%s.includes("not registered")`, text("#no-node"))
	p.sees(`%s === "kubernetes-admin"`, text("#user"))
	if got := p.value(`document.cookie + JSON.stringify(localStorage)`); got != "{}" {
		p.t.Errorf("kept beyond this tab: %v", got)
	}
	p.load(a.url) // as after a reload
	p.sees(`document.body.dataset.view === "in" && %s === "Live"`, text("#link-text"))
}

// The page may open a watch over a WebSocket, with the token as a subprotocol.
func (p page) socket(*api) {
	p.value(`{
		const token = btoa(sessionStorage.getItem("monopod-token")).replaceAll("=", "");
		const socket = new WebSocket("/api/v1/namespaces?watch=1", ["base64url.bearer.authorization.k8s.io." + token, "base64.binary.k8s.io"]);
		socket.onmessage = (ev) => { window.heard ??= JSON.parse(ev.data).object.kind + " over " + socket.protocol; socket.close(); };
		true
	}`)
	p.sees(`window.heard === "Namespace over base64.binary.k8s.io"`)
}

func (p page) node(a *api) {
	node := create(p.t, a, machine())
	for _, want := range []string{"greenhouse-01", "Ready", "v1.37.2", "containerd://2.4.2", "192.168.7.20", "7.8 GiB", "of 110 pods"} {
		p.sees(`%s?.includes(%q)`, text("#nodes"), want)
	}
	set := func(status corev1.ConditionStatus) {
		_, err := client.Update(p.t.Context(), a.reg, node, "status", func(n *corev1.Node) error {
			n.Status.Conditions[0].Status = status
			n.Status.Conditions[0].Message = "containerd does not answer"
			return nil
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
	set(corev1.ConditionFalse)
	p.sees(`%s.includes("Not ready") && %[1]s.includes("containerd does not answer")`, text("#nodes"))
	set(corev1.ConditionTrue)
	p.sees(`!%s.includes("Not ready")`, text("#nodes"))
}

func (p page) pods(a *api) {
	pod := create(p.t, a, podNamed("web-1"))
	p.sees(`%s === "Pending"`, cell("pods", "web-1", ".c-status"))
	a.runs(p.t, pod, 2)
	p.sees(`%s === "Running"`, cell("pods", "web-1", ".c-status"))
	for class, want := range map[string]string{".c-ready": "1/1", ".c-ip": "10.88.0.7", ".c-node": "greenhouse-01", ".c-ns": "default"} {
		p.sees(`%s === %q`, cell("pods", "web-1", class), want)
	}
	p.sees(`%s.startsWith("2")`, cell("pods", "web-1", ".c-restarts"))
	p.sees(`/^\d+s$/.test(%s)`, cell("pods", "web-1", ".c-age"))
	before := p.value(cell("pods", "web-1", ".c-age"))
	p.sees(`%s !== %q`, cell("pods", "web-1", ".c-age"), before)
	a.waits(p.t, create(p.t, a, podNamed("web-2")), "CrashLoopBackOff", "back-off 20s restarting failed container")
	p.sees(`%s === "CrashLoopBackOff"`, cell("pods", "web-2", ".c-status"))
	p.sees(`%s === "2"`, text("#pods .count"))
	p.sees(`document.querySelectorAll(".rack [data-mood=ok]").length === 1`)
}

func (p page) scale(a *api) {
	create(p.t, a, replicaSet("web", 2))
	p.sees(`%s?.querySelector("input")?.value === "2"`, row("workloads", "web"))
	p.click("[aria-label='One pod more for web']")
	p.replicas(a, 3)
	p.fill("[aria-label='Pods wanted for web']", "7"+kb.Enter)
	p.replicas(a, 7)
	p.click("[aria-label='One pod less for web']")
	p.replicas(a, 6)
	p.fill("[aria-label='Pods wanted for web']", "-4"+kb.Enter)
	p.sees(`%s?.includes("whole number")`, cell("workloads", "web", ".error"))
	p.replicas(a, 6)
	p.do(chromedp.SendKeys(chromedp.CSS("[aria-label='Pods wanted for web']"), kb.Escape))
	p.sees(`%s.querySelector("input").value === "6"`, row("workloads", "web"))

	// A Deployment is scaled; a ReplicaSet that it scales has no control, and one that it has scaled to zero is
	// not shown.
	shop := replicaSet("shop", 2).Spec
	create(p.t, a, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "default"}, Spec: appsv1.DeploymentSpec{Replicas: shop.Replicas, Selector: shop.Selector, Template: shop.Template}})
	p.sees(`%s === "Deployment"`, cell("workloads", "shop", ".c-kind"))
	p.click("[aria-label='One pod more for shop']")
	p.sees(`%s?.querySelector("input")?.value === "3"`, row("workloads", "shop"))
	owned := replicaSet("owned", 4)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop", UID: "u", Controller: new(true)}}
	retired := replicaSet("retired", 0)
	retired.OwnerReferences = owned.OwnerReferences
	create(p.t, a, retired)
	create(p.t, a, owned)
	p.sees(`%s === "4"`, cell("workloads", "owned", "[data-part=fixed]"))
	p.sees(`document.querySelector("[aria-label='One pod more for owned']")?.checkVisibility() === false`)
	p.sees(`document.querySelector("[title='Set by Deployment shop']")?.checkVisibility()`)
	p.sees(`!%s`, row("workloads", "retired"))
}

// replicas waits until the store and the page show this number.
func (p page) replicas(a *api, want int32) {
	p.t.Helper()
	var got int32
	for begin := time.Now(); got != want && time.Since(begin) < patience; time.Sleep(10 * time.Millisecond) {
		rs, err := client.Get[*appsv1.ReplicaSet](p.t.Context(), a.reg, "default", "web")
		if err != nil {
			p.t.Fatal(err)
		}
		got = *rs.Spec.Replicas
	}
	if got != want {
		p.t.Fatalf("got %d replicas, want %d", got, want)
	}
}

func (p page) gracefulDelete(a *api) {
	p.openDelete("web-1")
	p.sees(`document.querySelector("#delete-grace").value === "30"`)
	p.fill("#delete-grace", "20")
	p.click("#delete-go")
	p.sees(`!document.querySelector("#delete").open`)
	p.sees(`%s.startsWith("Terminating")`, cell("pods", "web-1", ".c-status"))
	pod, err := client.Get[*corev1.Pod](p.t.Context(), a.reg, "default", "web-1")
	if err != nil || pod.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds != 20 {
		p.t.Fatalf("the store has %v, %v", pod, err)
	}
	p.sees(`/^\d+ s left$/.test(%s)`, cell("pods", "web-1", "[data-part=left]"))
	left := p.value(cell("pods", "web-1", "[data-part=left]") + ".match(/\\d+/)[0] | 0")
	p.sees(`parseInt(%s) < %v`, cell("pods", "web-1", "[data-part=left]"), left)
	p.sees(`%s.querySelector("progress").value < 20`, row("pods", "web-1"))
	a.remove(p.t, "web-1")
	p.sees(`!%s`, row("pods", "web-1"))
}

// remove does what the agent does once the containers are dead.
func (a *api) remove(t *testing.T, name string) {
	t.Helper()
	ref := client.Ref{Resource: client.Pods, Namespace: "default", Name: name}
	if _, err := a.reg.Delete(t.Context(), ref, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
}

func (p page) forcedDelete(a *api) {
	p.openDelete("web-2")
	p.click("#delete input[value=force]")
	p.sees(`%s.includes("does not wait to hear that its containers are dead")`, text("#force-warning"))
	p.sees(`document.querySelector("#delete-go").disabled`)
	p.click("#force-sure")
	p.click("#delete-go")
	p.sees(`!%s`, row("pods", "web-2"))
	_, err := client.Get[*corev1.Pod](p.t.Context(), a.reg, "default", "web-2")
	if !apierrors.IsNotFound(err) {
		p.t.Errorf("the pod is still there: %v", err)
	}
}

func (p page) deleteFails(a *api) {
	create(p.t, a, podNamed("gone"))
	p.sees(`%s`, row("pods", "gone"))
	p.openDelete("gone")
	a.remove(p.t, "gone")
	p.sees(`!%s`, row("pods", "gone"))
	p.click("#delete-go")
	p.sees(`%s === 'pods "gone" not found'`, text("#delete-error"))
	p.click("#delete-cancel")
	p.sees(`!document.querySelector("#delete").open`)
}

func (p page) events(a *api) {
	markup := `<img src=x onerror="document.title='broken'"> <b>bold</b> & &amp; <script>document.title='broken'</script>`
	now := time.Now()
	create(p.t, a, event("e1", "Normal", "Started", "older", "Container started", now.Add(-time.Minute)))
	create(p.t, a, event("e2", "Warning", "<i>Failed</i>", "newer", markup, now))
	p.sees(`%s === %q`, cell("events", "pod/newer", ".c-message"), markup)
	p.sees(`%s === "<i>Failed</i>"`, cell("events", "pod/newer", ".c-reason"))
	p.sees(`%s === "Warning"`, cell("events", "pod/newer", ".c-type"))
	p.sees(`%s === "3"`, cell("events", "pod/newer", ".c-count"))
	p.sees(`document.querySelector("#events tbody tr .c-object").innerText === "pod/newer"`)
	pod := podNamed("odd")
	pod.Annotations = map[string]string{"note": markup}
	a.waits(p.t, create(p.t, a, pod), "<b>ErrImagePull</b>", markup)
	p.sees(`%s === "<b>ErrImagePull</b>"`, cell("pods", "odd", ".c-status"))
	p.sees(`%s.querySelector(".mood").title === %q`, row("pods", "odd"), markup)
	if p.value(`document.title !== "Monopod" || document.querySelectorAll("td img, td b, td i, td script").length > 0`) == true {
		p.t.Error("markup in data was rendered as markup of the page")
	}
}

func (p page) filters(a *api) {
	other := podNamed("elsewhere")
	other.Namespace = metav1.NamespaceSystem
	create(p.t, a, other)
	p.sees(`[...document.querySelector("#namespace").options].some((o) => o.value === "kube-system")`)
	p.fill("#filter", "NEWER warning")
	p.sees(`document.querySelectorAll("#events tbody tr").length === 1 && %s === "1 of 2"`, text("#events .count"))
	p.sees(`%s === "Nothing matches the filter."`, text("#pods .empty"))
	p.fill("#filter", "app=web errimage")
	p.sees(`document.querySelectorAll("#pods tbody tr").length === 1 && %s`, row("pods", "odd"))
	p.fill("#filter", " ")
	p.sees(`document.querySelectorAll("#pods tbody tr").length === 2`)
	choose := func(namespace string) {
		p.value(fmt.Sprintf(`{const s = document.querySelector("#namespace"); s.value = %q; s.dispatchEvent(new Event("change")); s.value}`, namespace))
	}
	choose(metav1.NamespaceSystem)
	p.sees(`document.querySelectorAll("#pods tbody tr").length === 1 && %s`, row("pods", "elsewhere"))
	p.sees(`%s === "Nothing matches the filter."`, text("#events .empty"))
	choose("")
	p.sees(`document.querySelectorAll("#pods tbody tr").length === 2`)
}

// The connection breaks; meanwhile more changes happen than the history keeps, so that the page must list again.
func (p page) reconnects(a *api) {
	create(p.t, a, podNamed("before-the-gap"))
	p.sees(`%s`, row("pods", "before-the-gap"))
	a.down.Store(true)
	a.server.CloseClientConnections()
	p.sees(`%s === "out for lunch"`, text("#link-text"))
	a.remove(p.t, "before-the-gap")
	for range history {
		a.remove(p.t, create(p.t, a, podNamed("passing")).Name)
	}
	create(p.t, a, podNamed("after-the-gap"))
	a.down.Store(false)
	p.sees(`%s === "Pending" && !%s`, cell("pods", "after-the-gap", ".c-status"), row("pods", "before-the-gap"))
	p.sees(`%s === "Live"`, text("#link-text"))
}

func (p page) many(a *api) {
	for i := range 500 {
		a.runs(p.t, create(p.t, a, podNamed(fmt.Sprintf("crowd-%03d", i))), 0)
	}
	p.sees(`Number(%s) > 500`, text("#pods .count"))
	p.sees(`document.querySelectorAll("#pods tbody tr").length < 200`)
	p.sees(`document.querySelector("#pods table").ariaRowCount === null ? false : Number(document.querySelector("#pods table").getAttribute("aria-rowcount")) > 500`)
	p.sees(`%s === "Running"`, cell("pods", "crowd-002", ".c-status"))
	p.value(`window.kept = ` + row("pods", "crowd-002"))
	a.remove(p.t, "crowd-000")
	p.sees(`!%s`, row("pods", "crowd-000"))
	if p.value(`window.kept === `+row("pods", "crowd-002")) != true {
		p.t.Error("a row that did not change was created again")
	}
	// Scrolling shows the other rows, and the focused element stays.
	p.value(`{const b = document.querySelector("[aria-label='Delete pod crowd-002']"); b.focus({preventScroll: true}); window.scrollTo(0, document.querySelector("#workloads").offsetTop - innerHeight); true}`)
	p.sees(`%s?.getBoundingClientRect().top < innerHeight`, row("pods", "crowd-499"))
	p.sees(`document.activeElement.ariaLabel === "Delete pod crowd-002" && !%s`, row("pods", "crowd-250"))
	p.value(`window.scrollTo(0, 0) || true`)
	p.sees(`%s?.getBoundingClientRect().top < innerHeight`, row("pods", "crowd-003"))
}

func (p page) sessionEnds(a *api) {
	a.refuses.Store(true)
	a.server.CloseClientConnections()
	p.sees(`document.body.dataset.view === "out" && %s.startsWith("The session has ended")`, text("#sign-in-error"))
	if n := p.value(`document.querySelectorAll("#pods tbody tr").length`); n != 0.0 {
		p.sees(`document.querySelectorAll("#pods tbody tr").length === 0`)
	}
	a.refuses.Store(false)
	p.fill("#token", token+kb.Enter)
	p.sees(`document.body.dataset.view === "in" && Number(%s) > 400`, text("#pods .count"))
}

func (p page) signOut(a *api) {
	p.click("#sign-out")
	p.sees(`document.body.dataset.view === "out" && document.activeElement.id === "token"`)
	p.load(a.url)
	p.sees(`document.body.dataset.view === "out"`)
}
