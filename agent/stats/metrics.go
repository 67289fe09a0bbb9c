package stats

import (
	"cmp"
	"context"
	"slices"
	"time"

	"monopod/apiserver/kit/metrics"
)

// Metrics returns the node and its pods for metrics.k8s.io, by namespace and name. It returns ErrNoStatistics if the
// runtime has no statistics. Like upstream, it omits a pod while the usage of one of its containers is unknown.
func (s *Source) Metrics(ctx context.Context,
	labels map[string]string) (*metrics.NodeMetrics, []*metrics.PodMetrics, error) {
	now, from, err := s.sample(ctx, true)
	if err != nil {
		return nil, nil, err
	}
	var pods []*metrics.PodMetrics
	for _, p := range now.pods {
		if m := podMetrics(now, from, p); m != nil {
			pods = append(pods, m)
		}
	}
	slices.SortFunc(pods, func(a, b *metrics.PodMetrics) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s.nodeMetrics(now, from, labels), pods, nil
}

func (s *Source) nodeMetrics(now, from *reading, labels map[string]string) *metrics.NodeMetrics {
	rate, _ := now.rate(from, nodeKey, time.Time{})
	return metrics.NewNode(s.cfg.Node, labels, now.at, window(now, from), metrics.Usage(rate, now.node.WorkingSet))
}

func window(now, from *reading) time.Duration { return now.at.Sub(from.at).Round(time.Millisecond) }

func podMetrics(now, from *reading, p Pod) *metrics.PodMetrics {
	m := metrics.NewPod(p.Pod, now.at, window(now, from))
	for _, c := range now.running(p) {
		rate, ok := now.rate(from, c.id, c.startedAt)
		if !ok {
			return nil
		}
		m.Containers = append(m.Containers, metrics.ContainerMetrics{Name: c.name, Usage: metrics.Usage(rate, c.memory())})
	}
	if len(m.Containers) == 0 {
		return nil
	}
	slices.SortFunc(m.Containers, func(a, b metrics.ContainerMetrics) int { return cmp.Compare(a.Name, b.Name) })
	return m
}
