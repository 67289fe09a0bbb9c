package agent

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/node/stats"
	"monopod/agent/pod"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	metricsapi "monopod/apiserver/client/metrics"
)

func newStats(a *Agent) *stats.Source {
	return stats.New(stats.Config{
		Node: a.cfg.NodeName, Labels: map[string]string{spec.LabelInstance: a.cfg.Instance},
		Runtime: a.Runtime, Cgroups: a.cgroups, Clock: a.Clock, Pods: a.measured, Dir: a.cfg.DataDir, ImageRoot: a.cfg.ImageRoot,
	})
}

// measured are the pods with containers that run.
func (a *Agent) measured() []stats.Pod {
	var out []stats.Pod
	for uid, w := range a.all() {
		seen := w.Seen()
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
		if object := w.Object(); len(started) > 0 {
			out = append(out, stats.Pod{Pod: object, Started: started, Instances: instances, LogDir: a.logs.Pod(object), Dir: a.podDir(uid), Claims: mountedClaims(w)})
		}
	}
	return out
}

// Usage is what the node and its pods use now; nil, nil where the runtime cannot
// tell.
func (a *Agent) Usage(ctx context.Context) (*metricsapi.NodeMetrics, []*metricsapi.PodMetrics, error) {
	node, pods, err := a.stats.Metrics(ctx, a.labelsOfNode())
	if errors.Is(err, stats.ErrNone) {
		return nil, nil, nil
	}
	return node, pods, err
}

func (a *Agent) labelsOfNode() map[string]string { return a.node.Current().Labels }

// isStatic says that a pod comes from a file, as the agent itself has marked it.
func (a *Agent) isStatic(pod *corev1.Pod) bool {
	w := a.pod(pod.UID)
	return w != nil && w.Static()
}

// mountedClaims are the claims whose volumes the pod has.
func mountedClaims(p *pod.Pod) []stats.Claim {
	var out []stats.Claim
	for name, v := range p.Volumes() {
		if v.Claim != "" {
			out = append(out, stats.Claim{Volume: name, Name: v.Claim, Dir: v.Dir})
		}
	}
	return out
}
