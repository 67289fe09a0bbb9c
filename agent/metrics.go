package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"monopod/agent/status"
)

// metrics have kubelet's names.
type metrics struct {
	startedContainers prometheus.Counter
}

func newMetrics(r prometheus.Registerer, a *Agent) (*metrics, error) {
	m := &metrics{startedContainers: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_started_containers_total", Help: "Containers started.",
	})}
	pods := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_running_pods", Help: "Pods with a running sandbox.",
	}, a.runningPods)
	containers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_running_containers", Help: "Running containers.", ConstLabels: prometheus.Labels{"container_state": "running"},
	}, a.runningContainers)
	for _, c := range []prometheus.Collector{m.startedContainers, pods, containers} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (a *Agent) runningPods() float64 {
	return a.sum(func(seen *status.Observed) int {
		if s := seen.Sandbox(); s != nil && s.Ready {
			return 1
		}
		return 0
	})
}

func (a *Agent) runningContainers() float64 {
	return a.sum(func(seen *status.Observed) int { return len(seen.Alive()) })
}

func (a *Agent) sum(of func(*status.Observed) int) float64 {
	n := 0
	for _, w := range a.all() {
		if seen := w.snapshot.Load(); seen != nil {
			n += of(seen)
		}
	}
	return float64(n)
}
