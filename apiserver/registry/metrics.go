package registry

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/metrics"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// metricsResources returns the kinds of metrics.k8s.io. The agent computes the objects for each request.
func metricsResources() []kind.Resource {
	return []kind.Resource{
		{
			GVR: metrics.Nodes(), Kind: "NodeMetrics", Singular: "node",
			Verbs: []string{"get", "list"}, Virtual: true,
			New: func() kind.Object { return new(metrics.NodeMetrics) },
			Columns: columns(func(m *metrics.NodeMetrics) corev1.ResourceList { return m.Usage },
				func(m *metrics.NodeMetrics) string { return m.Window.Duration.String() }),
		},
		{
			GVR: metrics.Pods(), Kind: "PodMetrics", Singular: "pod", Namespaced: true,
			Verbs: []string{"get", "list"}, Virtual: true,
			New: func() kind.Object { return new(metrics.PodMetrics) },
			Columns: columns((*metrics.PodMetrics).Sum,
				func(m *metrics.PodMetrics) string { return m.Window.Duration.String() }),
		},
	}
}

// columns returns the columns that metrics-server shows.
func columns[T kind.Object](usage func(T) corev1.ResourceList, window func(T) string) []table.Column {
	return []table.Column{
		table.Name(),
		table.Text("CPU", "CPU usage, in cores.", func(m T) string { return amount(usage(m), corev1.ResourceCPU) }),
		table.Text("Memory", "Working set: memory that the kernel cannot reclaim immediately.",
			func(m T) string { return amount(usage(m), corev1.ResourceMemory) }),
		table.Text("Window", "Interval over which the CPU usage is averaged.", window),
	}
}

func amount(list corev1.ResourceList, name corev1.ResourceName) string {
	q := list[name]
	return q.String()
}
