package agent

import (
	"cmp"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/node/server"
	"monopod/agent/pod/status"
)

var _ server.Node = (*Agent)(nil)

// newServer makes what answers as a kubelet does.
func (a *Agent) newServer() http.Handler {
	return server.New(server.Config{
		Node: a, Stats: a.stats.Handler(), Metrics: a.Gather, Probes: a.probed,
		Configz: a.cfg.Configz, LogDir: a.logs.Root(), Debugging: !a.cfg.NoDebugging,
	})
}

// ServeHTTP answers as a kubelet does; package server has its paths.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.server.ServeHTTP(w, r) }

// SyncLoop implements server.Node.
func (a *Agent) SyncLoop() error { return a.PLEG() }

// Pods implements server.Node.
func (a *Agent) Pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range a.all() {
		out = append(out, w.Object())
	}
	return byName(out)
}

// RunningPods implements server.Node.
func (a *Agent) RunningPods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range a.all() {
		seen := w.Seen()
		if seen == nil || len(seen.Alive()) == 0 {
			continue
		}
		pod := w.Object()
		running := &corev1.Pod{}
		running.Namespace, running.Name, running.UID = pod.Namespace, pod.Name, pod.UID
		for _, c := range seen.Alive() {
			if c.State == status.Running {
				running.Spec.Containers = append(running.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
			}
		}
		out = append(out, running)
	}
	return byName(out)
}

func byName(pods []*corev1.Pod) []*corev1.Pod {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// Pod implements server.Node.
func (a *Agent) Pod(name types.NamespacedName) (*corev1.Pod, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	w := a.names[name]
	if w == nil {
		return nil, false
	}
	return w.Object(), true
}
