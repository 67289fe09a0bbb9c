package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/pod"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/placement"
	"monopod/agent/runtime"
	"monopod/agent/runtime/relist"
	"monopod/agent/source"
	"monopod/apiserver/kit/guard"
)

// loop passes changes of the API and the runtime to the pods that they concern, and never waits for a pod.
type loop struct {
	clock     clock.WithTicker
	log       *zap.Logger
	guard     *guard.Guard
	period    time.Duration // of relists
	pods      *pods
	admitter  *admitter
	relister  *relist.Relister
	source    *source.Source
	statics   *statics
	mirrors   *source.Mirrors
	owners    *relist.Owners
	placement *placement.Placement
	sweep     *sweeper
	sweeping  sync.WaitGroup
}

// parts returns the parts that run concurrently with the loop.
func (l *loop) parts() []part {
	return []part{
		{"source", l.source.Run}, {"manifests", l.statics.manifests.Run}, {"mirrors", l.mirrors.Run},
		{"admission", l.admitter.run},
	}
}

// wait waits for the goroutines of the loop. It must be called after run has returned.
func (l *loop) wait() {
	l.relister.Wait()
	l.sweeping.Wait()
}

// run handles changes until ctx ends.
func (l *loop) run(ctx context.Context) {
	events, ok := l.relister.Connect(ctx)
	if !ok {
		return
	}
	found, ok := l.relister.First(ctx)
	if !ok {
		return
	}
	select {
	case <-ctx.Done():
		return
	case files := <-l.statics.manifests.Updates():
		l.staticsChanged(ctx, files, found)
	}
	ticker := l.clock.NewTicker(l.period)
	defer ticker.Stop()
	for {
		var handle func()
		select {
		case <-ctx.Done():
			return
		case u := <-l.source.Updates():
			atStart := found
			if u.List != nil {
				found = nil
			}
			handle = func() { l.configChanged(ctx, u, atStart) }
		case files := <-l.statics.manifests.Updates():
			handle = func() { l.staticsChanged(ctx, files, found) }
		case <-l.statics.wake:
			handle = func() { l.statics.run(ctx, found) }
		case ev, open := <-events:
			if open {
				handle = func() { l.runtimeChanged(ctx, ev) }
				break
			}
			events = nil
			handle = func() { l.relister.Reconnect(ctx) }
		case events = <-l.relister.Connected:
			handle = func() { l.runtimeChanged(ctx, runtime.Event{Type: runtime.EventResync}) }
		case answer := <-l.relister.Answer:
			handle = func() { l.listed(ctx, answer) }
		case <-ticker.C():
			handle = func() { l.relister.Relist(ctx) }
		}
		l.guard.Run("loop", handle)
	}
}

// listed makes pods whose observed state differs from the list observe again. It removes orphaned sandboxes and
// containers.
func (l *loop) listed(ctx context.Context, answer relist.List) {
	found := l.relister.Listed(answer)
	for p := range l.pods.all() {
		if r := found[p.UID()]; !r.Matches(p.Observed()) {
			p.Relist()
		}
	}
	if l.sweep.done() { // before, the API's pods are not listed yet and would count as orphaned
		l.orphans(ctx, found, nil)
	}
	l.relister.Taken(ctx)
}

// orphans stops and removes the sandboxes and containers of pods that are neither on the node nor in listed.
func (l *loop) orphans(ctx context.Context, found map[types.UID]*relist.Held, listed map[types.UID]bool) {
	for uid, r := range found {
		if l.pods.exists(uid) || listed[uid] {
			continue
		}
		object := &corev1.Pod{}
		object.Name, object.Namespace, object.UID = r.Identity.Name, r.Identity.Namespace, uid
		l.log.Info("removing an orphaned pod", zap.String("namespace", object.Namespace), zap.String("pod", object.Name),
			zap.String("uid", string(uid)))
		l.pods.add(ctx, object, pod.Options{Gone: true, Relist: true})
	}
}

// runtimeChanged passes an event to the pod that it concerns.
func (l *loop) runtimeChanged(ctx context.Context, ev runtime.Event) {
	switch ev.Type {
	case runtime.EventLost:
		l.relister.Streaming(false)
		return
	case runtime.EventResync:
		l.relister.Streaming(true)
		l.relister.Relist(ctx)
		for p := range l.pods.all() {
			p.Wake() // a step that failed because of the runtime is retried
		}
		return
	}
	uid := types.UID(ev.PodUID)
	if uid == "" {
		uid = l.owners.Of(ev.ContainerID, ev.SandboxID)
	}
	if p := l.pods.get(uid); p != nil {
		p.HandleEvent(ev)
	}
}

// configChanged adds, updates and ends pods according to the API. found is the state of the runtime when the agent
// started; it is nil after the first list.
func (l *loop) configChanged(ctx context.Context, u source.Update, found map[types.UID]*relist.Held) {
	if u.List == nil {
		l.podChanged(ctx, u.Pod, u.Gone, false)
		return
	}
	objects := l.mirrors.SetList(ctx, *u.List)
	slices.SortStableFunc(objects,
		func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	listed := map[types.UID]bool{}
	for _, object := range objects {
		listed[object.UID] = true
	}
	l.orphans(ctx, found, listed) // first, because a new pod of the same name waits for the orphaned one
	if found != nil {
		l.admitter.enqueue(func() { // release the allocations of pods that were removed while no agent ran
			runs := map[types.UID]bool{}
			for _, object := range objects {
				runs[object.UID] = !status.Finished(object.Status.Phase)
			}
			l.placement.Retain(func(uid types.UID) bool { return runs[uid] || l.pods.exists(uid) })
		})
	}
	for _, object := range objects {
		l.podChanged(ctx, object, false, found[object.UID] != nil)
	}
	for p := range l.pods.all() {
		if !listed[p.UID()] && !p.Static() {
			p.Removed()
		}
	}
	if found != nil {
		l.admitter.enqueue(func() { // after the admission of all pods
			l.guard.Go(&l.sweeping, "sweep", func() { l.sweep.run(ctx) })
		})
	}
}

func (l *loop) podChanged(ctx context.Context, object *corev1.Pod, gone, found bool) {
	if l.mirrors.Changed(ctx, object, gone) {
		return
	}
	p := l.pods.get(object.UID)
	switch {
	case gone && p != nil:
		p.Removed()
	case gone:
	case p != nil:
		p.Changed(object)
	default:
		l.pods.add(ctx, object, pod.Options{Relist: found})
	}
}

// staticsChanged takes over the pods in the folder of static pods.
func (l *loop) staticsChanged(ctx context.Context, files []*corev1.Pod, found map[types.UID]*relist.Held) {
	l.statics.expect(files)
	l.orphans(ctx, l.statics.predecessors(found), nil)
	l.statics.run(ctx, found)
}
