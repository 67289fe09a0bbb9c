package pod

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/containers"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/images"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/sandbox"
	"monopod/agent/pod/volumes"
	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/guard"
)

// worker brings one pod to its desired state. Only run's goroutine uses it.
type worker struct {
	pod  *Pod
	node *Node
	id   *identity.Pod

	desired  *desired
	observer *observe.Observer
	pace     *pace.Pace
	images   *images.Images
	volumes  *volumes.Volumes
	sandbox  *sandbox.Sandbox
	probes   *containers.Probes
	hooks    *containers.Hooks
	stopper  *containers.Stopper
	starter  *containers.Starter
	resizer  *resizer
	devices  *devices
	reporter *reporter
	end      ending
}

func newWorker(p *Pod) *worker {
	node, id, object := p.node, p.id, p.Object()
	w := &worker{pod: p, node: node, id: id, pace: &pace.Pace{}}
	w.desired = newDesired(object, p.Allocated())
	w.observer = observe.New(&node.Observers, id, p.inbox.takeEvents)
	w.images = images.New(&node.Images, id, func(key string, r images.Result) {
		p.inbox.put(func(n *news) {
			if n.pulled == nil {
				n.pulled = map[string]images.Result{}
			}
			n.pulled[key] = r
		})
	})
	w.volumes = volumes.New(&node.Volumes, id)
	w.sandbox = sandbox.New(&node.Sandboxes, id, w.observer, w.pace)
	w.probes = containers.NewProbes(&node.Containers, id, object, w.observer, p.Ending, p.Wake)
	w.hooks = containers.NewHooks(&node.Containers, id, w.observer)
	w.stopper = containers.NewStopper(&node.Containers, id, w.observer, w.hooks, w.probes, w.probed)
	w.reporter = newReporter(node, id, object)
	w.starter = containers.NewStarter(&node.Containers, id, containers.Parts{
		Observer: w.observer, Pace: w.pace, Images: w.images, Volumes: w.volumes, Sandbox: w.sandbox,
		Probes: w.probes, Hooks: w.hooks, Stopper: w.stopper, Stored: w.reporter.last, Wake: p.Wake,
	})
	w.resizer = &resizer{node: node, id: id, observer: w.observer, pace: w.pace, sandbox: w.sandbox,
		report: func() { w.report(false) }}
	w.devices = newDevices(node, id, w.pace)
	return w
}

// run is the life of the pod: it waits for admission, then does one step after the other, each when there are news or
// at a set time, until the pod is gone.
func (w *worker) run(ctx context.Context) {
	defer w.images.Wait()
	defer w.node.Containers.Probes.Forget(w.desired.pod)
	defer w.probes.Stop()
	if !w.pod.awaitStart(ctx) {
		return
	}
	for ctx.Err() == nil {
		done, over := w.acquireStart(ctx), false
		err := guard.Call(func() error { over = w.step(ctx); return nil })
		if p := (*guard.Panic)(nil); errors.As(err, &p) {
			w.panicked(p)
		}
		if done(); over {
			return
		}
		w.pause(ctx)
	}
}

// acquireStart waits until this pod may start, or must end.
func (w *worker) acquireStart(ctx context.Context) (done func()) {
	if w.end.state != syncing || w.observer.Observed().Sandbox() != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.pod.inbox.setInterrupt(cancel) || w.desired.pod.DeletionTimestamp != nil {
		return func() {}
	}
	return w.node.Hooks.AcquireStart(ctx)
}

// step takes the news, observes the pod, and syncs, terminates or removes it according to its state. Then it decides
// when the next step follows. over means that the worker ends.
func (w *worker) step(ctx context.Context) (over bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.pace.Step()
	w.receive(w.pod.inbox.take(cancel))
	began, fresh := time.Now(), w.reporter.awaitsRunning() && w.observer.Observed().Sandbox() == nil
	err := guard.Call(func() (err error) {
		if err := w.observe(ctx); err != nil {
			return err
		}
		if w.decide(); w.end.state == syncing {
			if err := w.sync(ctx); err != nil {
				return err
			}
			w.decide()
		}
		switch w.end.state {
		case terminating:
			over, err = w.terminate(ctx)
		case terminated:
			over, err = w.removePod(ctx)
		}
		return err
	})
	operation := "sync"
	switch {
	case w.end.state != syncing:
		operation = "kill"
	case fresh:
		operation = "create"
	}
	w.node.Hooks.Stepped(operation, time.Since(began))
	w.hooks.ForgetRemoved(w.observer.ForgetRemovedOwners())
	w.observer.Publish()
	if p := (*guard.Panic)(nil); errors.As(err, &p) {
		w.panicked(p)
		return over
	}
	if w.pace.ResetPanics() {
		w.node.Guard.Healthy("pod", w.pod.FullName())
	}
	switch {
	case err == nil:
		w.pace.Succeeded()
		return over
	case errors.Is(err, context.Canceled) || ctx.Err() != nil:
		w.pace.RetryIn(time.Millisecond) // urgent news interrupted the step
		return over
	case grpcstatus.Code(err) == codes.Unavailable:
		w.node.Hooks.Unavailable() // it wakes the worker when the runtime is back
	}
	w.observer.MarkStale()
	w.pace.Failed()
	w.id.Log.Warn("pod step failed", zap.Error(err))
	return over
}

// receive processes the news.
func (w *worker) receive(n news) {
	if n.pod != nil {
		if labelsDiffer(w.desired.pod, n.pod) {
			w.volumes.MarkStale()
		}
		w.setDesired(n.pod)
	} else if w.desired.waitsForResources() {
		w.setDesired(w.desired.requested)
	}
	if n.gone {
		w.desired.gone = true
	}
	if n.relist {
		w.observer.MarkStale()
	}
	if n.refresh {
		w.volumes.MarkStale()
	}
	if n.failure != nil && w.end.state == syncing {
		w.desired.fail(n.failure, n.grace)
	}
	if n.arrived {
		w.images.Recheck()
	}
	for key, r := range n.pulled {
		w.images.Pulled(key, r)
	}
	for _, id := range n.removed {
		w.observer.Forget(id)
	}
	for _, ev := range n.events {
		w.observer.Apply(ev)
	}
}

// setDesired makes object the desired pod. Its containers get the requested resources if the node has them.
func (w *worker) setDesired(object *corev1.Pod) {
	was := w.desired.deferred
	if resized, granted := w.desired.setPod(object, w.node.Hooks.CheckResize); resized {
		w.resizer.retry()
		if why := w.desired.deferred; why != nil && (was == nil || *was != *why) {
			w.resizer.pending(object, why)
		}
		if granted {
			w.resizer.granted(object)
			w.volumes.MarkStale() // downward API volumes may contain the resources
		}
	}
	w.pod.allocated.Store(w.desired.pod)
}

// observe reads the pod from the runtime, if necessary, and adopts running containers: it starts their probes. The
// first time it also adopts the cgroup, and refreshes the volumes, whose sources may have changed while no agent ran.
func (w *worker) observe(ctx context.Context) error {
	fresh, first, err := w.observer.Observe(ctx)
	if err != nil || !fresh {
		return err
	}
	seen := w.observer.Observed()
	if first {
		w.sandbox.AdoptCgroup(w.desired.pod)
		w.resizer.behind = len(seen.Sandboxes) > 0 // the earlier agent may have ended during a resize
		if len(seen.Containers) > 0 {
			w.volumes.MarkStale()
		}
	}
	w.observer.AdoptResources(w.desired.pod)
	for i := range seen.Containers {
		if c := &seen.Containers[i]; c.State == status.Running {
			w.node.Containers.Running()
			w.probes.Watch(w.desired.pod, c, first)
		}
	}
	return nil
}

// decide starts the termination of a pod that must end. It fails a pod that exceeds its activeDeadlineSeconds.
func (w *worker) decide() {
	if w.end.state != syncing {
		return
	}
	limit, start := w.desired.pod.Spec.ActiveDeadlineSeconds, w.reporter.startTime(w.desired.pod)
	if w.desired.failure == nil && limit != nil && !start.IsZero() {
		if rest := start.Add(time.Duration(*limit) * time.Second).Sub(w.node.Clock.Now()); rest > 0 {
			w.pace.RetryIn(rest)
		} else {
			const reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
			w.id.Event("", corev1.EventTypeNormal, reason, message)
			w.desired.fail(&status.Failure{Reason: reason, Message: message}, nil)
		}
	}
	if w.desired.ends() || w.reporter.finished() || w.devices.heldBack {
		w.end.state = terminating
		w.pod.ending.Store(true)
	}
}

// panicked handles a step that panicked. The worker's state may be inconsistent, so the next step observes again, after
// a growing pause that only the end of the pod shortens.
func (w *worker) panicked(p *guard.Panic) {
	w.observer.MarkStale()
	w.pace.Panicked()
	w.pod.panicked("pod", p)
}

// pause waits for news, or until the time of the next step.
func (w *worker) pause(ctx context.Context) {
	wait := w.pace.Retry()
	if wait == 0 {
		half := w.node.SyncFrequency / 2
		wait = half + rand.N(2*half)
	}
	timer := w.node.Clock.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			return
		case <-w.pod.inbox.wake:
			switch {
			case w.pod.inbox.ending():
				return
			case !w.pace.Panicking() && (!w.pace.Failing() || w.pod.inbox.retriesNow()):
				return
			}
		}
	}
}
