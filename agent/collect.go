package agent

import (
	"context"
	"iter"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/images/collector"
	"monopod/agent/images/garbage"
	"monopod/agent/logs"
	"monopod/agent/pod/status"
)

func (a *Agent) newCollector() (*collector.Collector, error) {
	return collector.New(collector.Deps{
		Runtime: a.Runtime, Clock: a.Clock, Log: a.log, Metrics: a.Metrics, Node: a.node,
		Pods: a.collectable, Known: a.knowsPods, Sweep: a.sweepFolders, Preloaded: a.preload.Names, InUse: a.shownImages, Images: a.imagesAt,
	}, a.cfg.Garbage)
}

func (a *Agent) newRotator() (*logs.Rotator, error) {
	return logs.NewRotator(logs.RotatorDeps{
		Clock: a.Clock, Metrics: a.Metrics, Running: a.written(), Reopen: a.Runtime.ReopenContainerLog, Notify: a.NotifyWrites, Log: a.log, Guard: a.guard,
	}, a.cfg.Logs)
}

// DeleteAllUnusedContainers removes, at once, every dead container that no policy
// keeps, and all of the pods that have ended, whose logs go with them. It is for
// when the disk is full.
func (a *Agent) DeleteAllUnusedContainers(ctx context.Context) error {
	return a.collect.DeadContainers(ctx)
}

// DeleteUnusedImages removes, at once, every image that no container was made
// from, but for those pinned, preloaded or just pulled. It is for when the disk is
// full.
func (a *Agent) DeleteUnusedImages(ctx context.Context) error { return a.collect.UnusedImages(ctx) }

// collectable are all pods.
func (a *Agent) collectable() map[types.UID]collector.Pod {
	out := map[types.UID]collector.Pod{}
	for uid, w := range a.all() {
		out[uid] = w
	}
	return out
}

var _ collector.Pod = (*worker)(nil)

// Garbage is what the collector may look at; false: nothing, because the worker is
// yet to look itself, or because the pod is deleted: it removes all of it then.
func (w *worker) Garbage() (garbage.Pod, bool) {
	seen := w.snapshot.Load()
	return garbage.Pod{UID: w.uid, Seen: seen, Over: w.over.Load()}, seen != nil && w.current.Load().DeletionTimestamp == nil
}

// ContainerRemoved says that a dead container is no more.
func (w *worker) ContainerRemoved(dead *status.Container) {
	w.a.logs.Remove(w.current.Load(), dead)
	_ = os.Remove(w.messagePath(dead.Name, dead.Attempt)) // goes with the pod at the latest
	w.collected(dead.ID)
}

// SandboxRemoved says that a dead sandbox is no more.
func (w *worker) SandboxRemoved(id string) { w.collected(id) }

// collected tells the worker that a container or sandbox is no more, and everyone
// else too.
func (w *worker) collected(id string) {
	for {
		old := w.snapshot.Load()
		next := old.Clone()
		next.Forget(id)
		if w.snapshot.CompareAndSwap(old, &next) {
			break
		}
	}
	w.update(func(in *inbox) { in.collected = append(in.collected, id) })
}

// written are the files of the containers that run.
func (a *Agent) written() iter.Seq[logs.Written] {
	return func(yield func(logs.Written) bool) {
		for _, w := range a.all() {
			for c := range w.running() {
				if !yield(logs.Written{Path: a.logs.Path(w.current.Load(), c), Message: c.MessagePath, Container: c.Name, ID: c.ID, Log: w.log}) {
					return
				}
			}
		}
	}
}
