package agent

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host/mount"
	"monopod/agent/logs"
	"monopod/agent/node/server"
	"monopod/agent/pod"
	"monopod/agent/podapi/status"
	"monopod/agent/stats"
	"monopod/agent/storage/provision"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	metricsapi "monopod/apiserver/kit/metrics"
	"monopod/apiserver/kit/record"
)

var _ server.Node = (*Agent)(nil)

// ServeHTTP serves the kubelet's API; see package server.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.server.ServeHTTP(w, r) }

// SyncLoop implements server.Node.
func (a *Agent) SyncLoop() error { return a.PLEG() }

// PLEG returns nil while relists succeed; see relist.Health.
func (a *Agent) PLEG() error { return a.loop.relister.Check() }

// Pods implements server.Node.
func (a *Agent) Pods() []*corev1.Pod { return a.pods.objects() }

// RunningPods implements server.Node.
func (a *Agent) RunningPods() []*corev1.Pod {
	var out []*corev1.Pod
	for p := range a.pods.all() {
		seen := p.Observed()
		if seen == nil || len(seen.Alive()) == 0 {
			continue
		}
		object, running := p.Object(), &corev1.Pod{}
		running.Namespace, running.Name, running.UID = object.Namespace, object.Name, object.UID
		for _, c := range seen.Alive() {
			if c.State == status.Running {
				running.Spec.Containers = append(running.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
			}
		}
		out = append(out, running)
	}
	return byName(out)
}

// Pod implements server.Node.
func (a *Agent) Pod(name types.NamespacedName) (*corev1.Pod, bool) {
	if p := a.pods.named(name); p != nil {
		return p.Object(), true
	}
	return nil, false
}

// Usage returns the current usage of the node and its pods; nil if the runtime has no statistics.
func (a *Agent) Usage(ctx context.Context) (*metricsapi.NodeMetrics, []*metricsapi.PodMetrics, error) {
	node, pods, err := a.upkeep.stats.Metrics(ctx, a.node.Current().Labels)
	if errors.Is(err, stats.ErrNoStatistics) {
		return nil, nil, nil
	}
	return node, pods, err
}

// DeleteAllUnusedContainers removes every dead container that no policy keeps, and all containers and logs of pods that
// have ended. It is called when the disk is full.
func (a *Agent) DeleteAllUnusedContainers(ctx context.Context) error {
	return a.upkeep.collect.DeadContainers(ctx)
}

// DeleteUnusedImages removes every image that no container uses, except those pinned, preloaded or just pulled. It is
// called when the disk is full.
func (a *Agent) DeleteUnusedImages(ctx context.Context) error {
	return a.upkeep.collect.UnusedImages(ctx)
}

// statsPods returns the pods with running containers, for package stats.
func (a *Agent) statsPods() []stats.Pod {
	var out []stats.Pod
	for p := range a.pods.all() {
		seen := p.Observed()
		if seen == nil {
			continue
		}
		started := map[string]time.Time{}
		var instances []stats.Instance
		if s := seen.Sandbox(); s != nil && s.Ready {
			instances = append(instances, stats.Instance{ID: s.ID, Image: a.cfg.SandboxImage, Started: s.CreatedAt})
		}
		for _, c := range seen.Alive() {
			if c.State == status.Running {
				started[c.ID] = c.StartedAt
				instances = append(instances, stats.Instance{ID: c.ID, Name: c.Name, Image: c.Image, Started: c.StartedAt})
			}
		}
		if object := p.Object(); len(started) > 0 {
			out = append(out, stats.Pod{
				Pod: object, Started: started, Instances: instances, LogDir: a.logs.Pod(object), Dir: a.cfg.podDir(p.UID()),
				Claims: mountedClaims(p),
			})
		}
	}
	return out
}

// mountedClaims returns the claims whose volumes the pod has mounted.
func mountedClaims(p *pod.Pod) []stats.Claim {
	var out []stats.Claim
	for name, v := range p.Volumes() {
		if v.Claim != "" {
			out = append(out, stats.Claim{Volume: name, Name: v.Claim, Dir: v.Dir})
		}
	}
	return out
}

// containerFiles returns the files that running containers write through the runtime.
func (a *Agent) containerFiles() iter.Seq[logs.ContainerFiles] {
	return func(yield func(logs.ContainerFiles) bool) {
		for p := range a.pods.all() {
			for c := range p.Running() {
				files := logs.ContainerFiles{
					Path: a.logs.Path(p.Object(), c), Message: c.MessagePath, Container: c.Name, ID: c.ID, Log: p.Log(),
				}
				if !yield(files) {
					return
				}
			}
		}
	}
}

// provideVolumes provisions and deletes local volumes, and wakes pods whose PersistentVolumeClaims are bound, until ctx
// ends.
func (a *Agent) provideVolumes(ctx context.Context) {
	d, cfg := &a.deps, &a.cfg
	metrics, err := follow.NewMetrics(d.Metrics)
	if err != nil {
		d.Log.Error("local volumes are not provisioned", zap.Error(err))
		return
	}
	guard.Raise(provision.New(provision.Deps{
		Client: d.Client, Clock: d.Clock, Log: d.Log.Named("volumes"), Metrics: metrics, Busy: a.pods.usesClaim,
		Bound: a.pods.wakeForClaim,
		Event: func(obj client.Object, eventType, reason, format string, args ...any) {
			d.Recorder.Reference(record.ReferenceTo(obj), eventType, reason, format, args...)
		},
		Remove: func(path string) error { return mount.RemoveAll(path, d.Mounter) },
	}, provision.Config{Dir: cfg.volumesDir(), Node: cfg.NodeName}).Run(ctx))
}
