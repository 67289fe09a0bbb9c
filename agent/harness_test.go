package agent_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/agent"
	"monopod/agent/host/mount"
	"monopod/agent/pressure/eviction"
	"monopod/agent/runtime/fake"
	"monopod/agent/storage/volume"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// latency is the duration of each call of the runtime.
const latency = time.Millisecond

// world is an API, a runtime and an agent, in one synctest bubble.
type world struct {
	*testing.T
	api  *registry.Registry
	rt   *fake.Runtime
	fail atomic.Pointer[func(op, id string) error]
	hung atomic.Pointer[hung] // nil: every call returns
	dir  string
	stop func() // stops the agent
	a    *agent.Agent

	adjust  func(*agent.Config) // changes the config of the next agent; may be nil
	alter   func(*agent.Deps)   // changes the dependencies of the next agent; may be nil
	mounter volume.Mounter      // of the next agent

	touched chan struct{} // the folder of static pods changed
	changed chan struct{} // a pod changed since it was last read

	panics bool // the test causes panics

	tokens atomic.Int64 // how many were issued

	metrics *prometheus.Registry // of the last agent

	notice func(ctx context.Context, short func()) error // of the next agent; may be nil
	scarce atomic.Pointer[eviction.Observations]         // nil: nothing is scarce
	using  atomic.Pointer[map[string]uint64]             // bytes of memory by pod name; nil: unknown

	mu     sync.Mutex // guards the fields below
	events []string
	calls  map[string]int
	seen   []string // the events that a watcher of pods received
}

// inWorld runs a test with virtual time.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	openWorld(t, test)
}

// openWorld runs a test like inWorld, but without running it in parallel.
func openWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, dir: t.TempDir(), calls: map[string]int{}, touched: make(chan struct{}, 1),
			changed: make(chan struct{}, 1), mounter: noMounts{}}
		w.openAPI()
		w.rt = fake.New(fake.Config{Latency: latency, Fail: w.call, Block: w.block, Stats: w.stats})
		t.Cleanup(func() { w.rt.Close() })
		w.startAgent()
		t.Cleanup(func() { w.stop() })
		test(w)
		if n := w.counted("monopod_panics_total"); n > 0 && !w.panics {
			t.Errorf("%v panics in the agent", n)
		}
	})
}

func (w *world) openAPI() {
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	w.Cleanup(func() { s.Close() })
	w.api = registry.New(s, resources, registry.Config{Tokens: w.issue})
	if err := w.api.Bootstrap(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.create(&corev1.ConfigMap{ // as a controller does
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default",
			Name:      "kube-root-ca.crt",
		}, Data: map[string]string{"ca.crt": "PEM"}})
	pods := client.Selector{Resource: client.Pods}
	_, rev, err := w.api.List(w.Context(), pods)
	if err != nil {
		w.Fatal(err)
	}
	events, err := w.api.Watch(w.Context(), pods, rev)
	if err != nil {
		w.Fatal(err)
	}
	go func() {
		for ev := range events {
			w.mu.Lock()
			w.seen = append(w.seen, describe(ev))
			w.mu.Unlock()
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}()
}

// issue issues tokens that contain their subject and number.
func (w *world) issue(
	_ context.Context,
	_ client.Client,
	account *corev1.ServiceAccount,
	req *authenticationv1.TokenRequest,
) error {
	req.Status.Token = fmt.Sprintf("%s/%s/%d", account.Name, req.Spec.BoundObjectRef.Name, w.tokens.Add(1))
	return nil
}

// describe formats a watch event.
func describe(ev watch.Event) string {
	pod := ev.Object.(*corev1.Pod)
	line := fmt.Sprintf("%s %s %s", ev.Type, pod.Name, pod.Status.Phase)
	if pod.DeletionTimestamp != nil {
		line += " deleting"
	}
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Terminated != nil:
			line += fmt.Sprintf(" %s:exit=%d", s.Name, s.State.Terminated.ExitCode)
		case s.State.Running != nil:
			line += fmt.Sprintf(" %s:running", s.Name)
		case s.State.Waiting != nil:
			line += fmt.Sprintf(" %s:%s", s.Name, s.State.Waiting.Reason)
		}
	}
	return line
}

// called returns the number of calls of the runtime operation op.
func (w *world) called(op string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[op]
}

// counts returns the number of calls of each operation of the runtime.
func (w *world) counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.calls)
}

func (w *world) call(op, id string) error {
	w.mu.Lock()
	w.calls[op]++
	w.mu.Unlock()
	if f := w.fail.Load(); f != nil {
		return (*f)(op, id)
	}
	return nil
}

func (w *world) failing(f func(op, id string) error) { w.fail.Store(&f) }

// Reference records events.
func (w *world) Reference(ref corev1.ObjectReference, eventType, reason, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s %s %s: ", eventType, ref.Name, reason)+fmt.Sprintf(format, args...))
}

// startAgent starts an agent over the same API, runtime and folder.
func (w *world) startAgent() {
	w.Helper()
	log := zap.NewNop()
	if testing.Verbose() {
		log = zaptest.NewLogger(w)
	}
	w.metrics = prometheus.NewRegistry()
	config := agent.Config{NodeName: "n1", DataDir: w.dir, NodeIP: "192.0.2.1"}
	if w.adjust != nil {
		w.adjust(&config)
	}
	deps := agent.Deps{
		Client:      w.api,
		Runtime:     w.rt,
		Log:         log,
		Metrics:     w.metrics,
		Recorder:    w,
		Mounter:     w.mounter,
		Dial:        w.rt.Dial,
		Signals:     w.signals,
		WatchMemory: w.notice,
		Complete:    func(p *corev1.Pod) error { return w.api.Complete(p) },
		Notify:      w.notify,
	}
	if w.alter != nil {
		w.alter(&deps)
	}
	a, err := agent.New(deps, config)
	if err != nil {
		w.Fatal(err)
	}
	w.a = a
	w.stop = runAgent(w, a)
}

// notify replaces inotify, which blocks outside the bubble.
func (w *world) notify(string) (<-chan struct{}, func(), error) { return w.touched, func() {}, nil }

// runAgent starts an agent and returns a function that stops it.
func runAgent(t testing.TB, a *agent.Agent) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// noMounts is a mounter that never has a mount.
type noMounts struct{ mount.Folders }

// pod is a pod of one container that runs the sample program.
func pod(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName:   "n1",
			Containers: []corev1.Container{{Name: "c", Image: "web:1", Args: args}},
		},
	}
}

func (w *world) create(p client.Object) {
	w.Helper()
	if _, err := w.api.Create(w.Context(), p); err != nil {
		w.Fatal(err)
	}
}

func (w *world) delete(name string, grace int64) {
	w.Helper()
	ref := client.Ref{Resource: client.Pods, Namespace: "default", Name: name}
	if _, err := w.api.Delete(w.Context(), ref, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		w.Fatal(err)
	}
}

// get returns the current pod; nil if it does not exist.
func (w *world) get(name string) *corev1.Pod {
	w.Helper()
	p, err := client.Get[*corev1.Pod](w.Context(), w.api, "default", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// after lets virtual time pass, and waits until all goroutines are idle.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until waits until a pod satisfies ok, and returns how long that took. It checks whenever a pod changes, and every
// second, because ok may depend on more than the pod.
func (w *world) until(limit time.Duration, name string, ok func(*corev1.Pod) bool) time.Duration {
	w.Helper()
	start := time.Now()
	for time.Since(start) <= limit {
		synctest.Wait()
		if ok(w.get(name)) {
			return time.Since(start)
		}
		select {
		case <-w.changed:
		case <-time.After(time.Second):
		}
	}
	w.Fatalf(
		"not within %v\nevents:\n%s\nwatch:\n%s",
		limit,
		strings.Join(w.recorded(), "\n"),
		strings.Join(w.watched(), "\n"),
	)
	return 0
}

func ready(p *corev1.Pod) bool {
	return p != nil && p.Status.Phase == corev1.PodRunning && conditionTrue(p, corev1.PodReady)
}

func gone(p *corev1.Pod) bool { return p == nil }

func conditionTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	return slices.ContainsFunc(
		p.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue },
	)
}

func waitingFor(reason string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == reason
	}
}

func restarts(n int32) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount == n
	}
}

// recorded returns the events so far.
func (w *world) recorded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *world) hasEvent(part string) bool {
	return slices.ContainsFunc(w.recorded(), func(e string) bool { return strings.Contains(e, part) })
}

// watched returns the events that a watcher of pods received.
func (w *world) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func (w *world) callCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.calls {
		n += c
	}
	return n
}

// nothingLeft checks that the runtime and the disk have no state of any pod.
func (w *world) nothingLeft() {
	w.Helper()
	w.after(time.Second)
	sandboxes, err1 := w.rt.ListPodSandbox(w.Context(), nil)
	containers, err2 := w.rt.ListContainers(w.Context(), nil)
	if err1 != nil || err2 != nil || len(sandboxes)+len(containers) > 0 {
		w.Errorf("left behind: %v %v %v %v", sandboxes, containers, err1, err2)
	}
	for _, dir := range []string{"pods", "logs/pods"} {
		if left := names(w, dir); len(left) > 0 {
			w.Errorf("left behind in %s: %v", dir, left)
		}
	}
}
