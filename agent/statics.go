package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/pod"
	"monopod/agent/pod/spec"
	"monopod/agent/runtime/inventory"
	"monopod/agent/source/mirror"
	"monopod/agent/source/static"
)

// statics are the static pods as the loop, whose goroutine they belong to, has
// them.
type statics struct {
	want map[types.UID]*corev1.Pod
	over chan struct{} // a worker of one is done: who waits for it may begin
}

func newStatics() statics { return statics{over: make(chan struct{}, 1)} }

func (a *Agent) newManifests() *static.Source {
	return static.NewSource(static.Deps{
		Clock: a.Clock, Log: a.log, Node: a.node, Recall: a.mirrors.Recall, Notify: a.Notify,
	}, static.Config{Path: a.cfg.ManifestDir, Node: a.cfg.NodeName, Complete: a.Complete, Now: a.Clock.Now})
}

func (a *Agent) newMirrors() *mirror.Mirrors {
	return mirror.New(mirror.Deps{
		Client: a.Client, Clock: a.Clock, Log: a.log, Runs: a.runsStatic, Again: a.status.Again,
	}, a.cfg.NodeName)
}

// staticOver says that nothing is left of a static pod.
func (a *Agent) staticOver(pod *corev1.Pod) {
	a.mirrors.Ended(pod)
	a.retryStatics()
}

// retryStatics has those that may run now do so.
func (a *Agent) retryStatics() {
	select {
	case a.statics.over <- struct{}{}:
	default:
	}
}

// staticsChanged takes over what the folder holds now.
func (a *Agent) staticsChanged(ctx context.Context, pods []*corev1.Pod, found map[types.UID]*inventory.Held) {
	a.statics.want = map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		a.statics.want[pod.UID] = pod
	}
	a.mirrors.Expect(pods)
	a.orphans(ctx, a.predecessors(found), nil)
	a.runStatics(ctx, found)
}

// predecessors are what the runtime holds of pods that had the name of a static
// pod and are not it: a file changed while no agent ran.
func (a *Agent) predecessors(found map[types.UID]*inventory.Held) map[types.UID]*inventory.Held {
	names := map[types.NamespacedName]bool{}
	for _, pod := range a.statics.want {
		names[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = true
	}
	old := map[types.UID]*inventory.Held{}
	for uid, r := range found {
		if a.statics.want[uid] == nil && names[types.NamespacedName{Namespace: r.Identity.Namespace, Name: r.Identity.Name}] {
			old[uid] = r
		}
	}
	return old
}

// runStatics ends the static pods that nobody wants any more and starts those
// that do not run. One that was ended and is wanted again starts when it is gone.
func (a *Agent) runStatics(ctx context.Context, found map[types.UID]*inventory.Held) {
	again := a.drain.takeAgain()
	for uid, w := range a.all() {
		if w.Static() && (a.statics.want[uid] == nil || again[uid]) && w.Object().DeletionTimestamp == nil {
			w.Changed(a.withdrawn(w.Object()))
		}
	}
	for uid, object := range a.statics.want {
		if a.pod(uid) == nil {
			a.add(ctx, object, a.judge, pod.Options{Static: true, Relist: found[uid] != nil})
		}
	}
}

// withdrawn is a static pod whose file is gone: it ends as one deleted in the API.
func (a *Agent) withdrawn(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = new(metav1.NewTime(a.Clock.Now()))
	pod.DeletionGracePeriodSeconds = new(int64(spec.Grace(pod) / time.Second))
	return pod
}

// runsStatic says whether a worker runs the static pod of that UID and name.
func (a *Agent) runsStatic(uid types.UID, namespace, name string) bool {
	w := a.pod(uid)
	if w == nil || !w.Static() {
		return false
	}
	pod := w.Object()
	return pod.Namespace == namespace && pod.Name == name
}

// configured is false where static pods are asked for and cannot be completed.
func (d Deps) configured(cfg Config) error {
	if cfg.ManifestDir != "" && d.Complete == nil {
		return fmt.Errorf("agent: ManifestDir needs Complete")
	}
	return nil
}
