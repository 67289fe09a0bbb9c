package agent

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/pod"
	"monopod/agent/runtime"
	"monopod/agent/runtime/inventory"
	"monopod/agent/source"
	"monopod/apiserver/process/backoff"
)

// loop is the heart: it hands what changed, in the API or the runtime, to the
// worker of the pod it is about, and never waits for a worker.
func (a *Agent) loop(ctx context.Context) {
	events, ok := a.connect(ctx)
	if !ok {
		return
	}
	found, ok := a.firstList(ctx)
	if !ok {
		return
	}
	select {
	case <-ctx.Done():
		return
	case pods := <-a.manifests.Updates():
		a.staticsChanged(ctx, pods, found)
	}
	relist := a.Clock.NewTicker(a.cfg.RelistPeriod)
	defer relist.Stop()
	for {
		var fact func()
		select {
		case <-ctx.Done():
			return
		case u := <-a.source.Updates():
			held := found
			if u.List != nil {
				found = nil
			}
			fact = func() { a.configChanged(ctx, u, held) }
		case pods := <-a.manifests.Updates():
			fact = func() { a.staticsChanged(ctx, pods, found) }
		case <-a.statics.over:
			fact = func() { a.runStatics(ctx, found) }
		case ev, open := <-events:
			if open {
				fact = func() { a.runtimeChanged(ctx, ev) }
				break
			}
			events = nil
			fact = func() { a.reconnect(ctx) }
		case events = <-a.lists.connected:
			fact = func() { a.runtimeChanged(ctx, runtime.Event{Type: runtime.EventResync}) }
		case l := <-a.lists.answer:
			fact = func() { a.listed(ctx, l) }
		case <-relist.C():
			fact = func() { a.relist(ctx) }
		}
		a.guard.Run("loop", fact)
	}
}

// connect waits for the runtime to answer and subscribes to its events.
func (a *Agent) connect(ctx context.Context) (<-chan runtime.Event, bool) {
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		var events <-chan runtime.Event
		err := a.guard.Call("events", func() (err error) {
			if _, err = a.Runtime.Version(ctx); err == nil {
				events, err = a.Runtime.Events(ctx)
			}
			return err
		})
		if err == nil {
			a.pleg.Streaming(true)
			a.node.Poke()
			return events, true
		}
		if delay >= time.Second && ctx.Err() == nil {
			a.log.Warn("container runtime does not answer", zap.Error(err))
		}
		if !a.sleep(ctx, delay) {
			return nil, false
		}
	}
}

func (a *Agent) sleep(ctx context.Context, d time.Duration) bool {
	return backoff.Sleep(ctx, a.Clock, d)
}

func (a *Agent) firstList(ctx context.Context) (map[types.UID]*inventory.Held, bool) {
	for delay := 50 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		var found map[types.UID]*inventory.Held
		err := a.guard.Call("relist", func() error {
			sandboxes, containers, err := a.askRuntime(ctx)
			if err == nil {
				a.placement.Found(containers)
				found = inventory.ByPod(sandboxes, containers)
			}
			return err
		})
		if err == nil {
			return found, true
		}
		a.log.Warn("cannot list the pods of the runtime", zap.Error(err))
		if !a.sleep(ctx, delay) {
			return nil, false
		}
	}
}

// compare looks for workers that are wrong about what the runtime has; they look
// again, and what belongs to nobody is cleared away.
func (a *Agent) compare(ctx context.Context, found map[types.UID]*inventory.Held) {
	for uid, w := range a.all() {
		if r := found[uid]; !r.Matches(w.Seen()) {
			w.Relist()
		}
	}
	if a.knowsPods() { // else those of pods that are still to be listed would end
		a.orphans(ctx, found, nil)
	}
}

// orphans gives a worker, which will end it, to what the runtime runs for a pod
// that no worker has or, being listed, will have.
func (a *Agent) orphans(ctx context.Context, found map[types.UID]*inventory.Held, listed map[types.UID]bool) {
	for uid, r := range found {
		if a.pod(uid) != nil || listed[uid] {
			continue
		}
		object := &corev1.Pod{}
		object.Name, object.Namespace, object.UID = r.Identity.Name, r.Identity.Namespace, uid
		a.log.Info("ending a pod that no longer exists", zap.String("namespace", object.Namespace), zap.String("pod", object.Name), zap.String("uid", string(uid)))
		a.add(ctx, object, letIn, pod.Options{Gone: true, Relist: true})
	}
}

// runtimeChanged hands an event on.
func (a *Agent) runtimeChanged(ctx context.Context, ev runtime.Event) {
	switch ev.Type {
	case runtime.EventLost:
		a.pleg.Streaming(false)
		a.node.Poke()
		return
	case runtime.EventResync:
		a.pleg.Streaming(true)
		a.node.Poke()
		a.relist(ctx)
		for _, w := range a.all() {
			w.Wake() // a step that failed for want of the runtime tries again
		}
		return
	}
	w := a.pod(a.ownerOf(ev))
	if w == nil {
		return
	}
	w.Happened(ev)
}

func (a *Agent) ownerOf(ev runtime.Event) types.UID {
	if ev.PodUID != "" {
		return types.UID(ev.PodUID)
	}
	return a.owners.of(ev.ContainerID, ev.SandboxID)
}

// refresh has pods look anew at what they show.
func (a *Agent) refresh(uses func(*corev1.Pod) bool) {
	for _, w := range a.all() {
		if uses(w.Object()) {
			w.Refresh()
		}
	}
}

// configChanged brings workers in line with the API. found is what the runtime
// held when the agent started, given with the first list only.
func (a *Agent) configChanged(ctx context.Context, u source.Update, found map[types.UID]*inventory.Held) {
	if u.List == nil {
		a.podChanged(ctx, u.Pod, u.Gone, false)
		return
	}
	pods := a.mirrors.Take(ctx, *u.List)
	slices.SortStableFunc(pods, func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	listed := map[types.UID]bool{}
	for _, pod := range pods {
		listed[pod.UID] = true
	}
	a.orphans(ctx, found, listed) // first: a new pod of the name waits for them
	if found != nil {
		a.desk.do(func() { a.settle(pods) })
	}
	for _, pod := range pods {
		a.podChanged(ctx, pod, false, found[pod.UID] != nil)
	}
	for uid, w := range a.all() {
		if !listed[uid] && !w.Static() {
			w.Removed()
		}
	}
	if found != nil {
		a.desk.do(func() { a.guard.Go(&a.beside, "sweep", a.sweep) }) // once all of them are judged
	}
}

func (a *Agent) podChanged(ctx context.Context, object *corev1.Pod, gone, found bool) {
	if a.mirrors.Changed(ctx, object, gone) {
		return
	}
	w := a.pod(object.UID)
	switch {
	case gone && w != nil:
		w.Removed()
	case gone:
	case w != nil:
		w.Changed(object)
	default:
		a.add(ctx, object, a.judge, pod.Options{Relist: found})
	}
}

// add has the node run a pod. It waits until it is judged, for an earlier pod of the name,
// unless it only has to end what is left of one that is gone itself, and for those that
// make room for it.
func (a *Agent) add(ctx context.Context, object *corev1.Pod, judge func(context.Context, *pod.Pod) pod.Verdict, o pod.Options) {
	p := pod.New(ctx, a.podNode, object, o)
	name := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	a.mu.Lock()
	a.pods[object.UID] = p
	switch old := a.names[name]; {
	case old == nil:
		a.names[name] = p
	case !o.Gone:
		p.After(old)
		a.names[name] = p
	}
	a.mu.Unlock()
	a.desk.do(func() { p.Judged(a.verdict(ctx, p, judge)) })
	a.guard.Go(&a.workers, "pod", func() {
		a.guard.Keep(ctx, a.Clock, "pod", func() { p.Run(ctx) })
		a.guard.Well("pod", p.FullName())
		a.drop(p, name)
		a.freeClaims(p.UID())
		if p.Static() && ctx.Err() == nil {
			a.staticOver(p.Object())
		}
	})
}

func (a *Agent) drop(p *pod.Pod, name types.NamespacedName) {
	defer func() { // whatever becomes of the rest: a new pod of the name waits for it
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.pods, p.UID())
		if a.names[name] == p {
			delete(a.names, name)
		}
		p.Ended()
	}()
	a.status.Forget(p.UID())
	a.images.Forget(string(p.UID()))
	a.owners.forget(p.UID())
	a.node.Lacks(string(p.UID()), nil)
}

func (a *Agent) pod(uid types.UID) *pod.Pod {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.pods[uid]
}

// all is a copy of the workers by uid.
func (a *Agent) all() map[types.UID]*pod.Pod {
	a.mu.RLock()
	defer a.mu.RUnlock()
	out := make(map[types.UID]*pod.Pod, len(a.pods))
	for uid, w := range a.pods {
		out[uid] = w
	}
	return out
}
