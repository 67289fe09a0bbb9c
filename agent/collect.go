package agent

import (
	"context"
	"iter"

	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/images/collector"
	"monopod/agent/logs"
	"monopod/agent/pod"
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

var _ collector.Pod = (*pod.Pod)(nil)

// written are the files of the containers that run.
func (a *Agent) written() iter.Seq[logs.Written] {
	return func(yield func(logs.Written) bool) {
		for _, w := range a.all() {
			for c := range w.Running() {
				if !yield(logs.Written{Path: a.logs.Path(w.Object(), c), Message: c.MessagePath, Container: c.Name, ID: c.ID, Log: w.Log()}) {
					return
				}
			}
		}
	}
}
