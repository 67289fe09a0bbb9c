package stats

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	at := metav1.NewTime(now.at.Truncate(time.Second))
	return &metrics.NodeMetrics{
		TypeMeta:   metav1.TypeMeta{APIVersion: metrics.GroupVersion().String(), Kind: "NodeMetrics"},
		ObjectMeta: metav1.ObjectMeta{Name: s.cfg.Node, Labels: labels, CreationTimestamp: at},
		Timestamp:  at, Window: window(now, from), Usage: usage(rate, now.node.WorkingSet),
	}
}

func window(now, from *reading) metav1.Duration {
	return metav1.Duration{Duration: now.at.Sub(from.at).Round(time.Millisecond)}
}

func podMetrics(now, from *reading, p Pod) *metrics.PodMetrics {
	at := metav1.NewTime(now.at.Truncate(time.Second))
	m := &metrics.PodMetrics{
		TypeMeta:   metav1.TypeMeta{APIVersion: metrics.GroupVersion().String(), Kind: "PodMetrics"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, CreationTimestamp: at},
		Timestamp:  at, Window: window(now, from),
	}
	for _, c := range now.running(p) {
		rate, ok := now.rate(from, c.id, c.startedAt)
		if !ok {
			return nil
		}
		m.Containers = append(m.Containers, metrics.ContainerMetrics{Name: c.name, Usage: usage(rate, c.memory())})
	}
	if len(m.Containers) == 0 {
		return nil
	}
	slices.SortFunc(m.Containers, func(a, b metrics.ContainerMetrics) int { return cmp.Compare(a.Name, b.Name) })
	return m
}

// usage returns the usage in the units of metrics-server: nanocores and KiB.
func usage(nanocores, bytes uint64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(nanocores), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(bytes)>>10<<10, resource.BinarySI),
	}
}
