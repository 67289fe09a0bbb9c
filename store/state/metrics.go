package state

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Collector returns kube-apiserver's storage metrics, collected at each scrape:
// apiserver_resource_objects, apiserver_storage_objects (its older name) and
// apiserver_storage_size_bytes. As upstream, an unknown number is -1.
func (s *State) Collector(resources []schema.GroupResource) prometheus.Collector {
	return &collector{
		state: s, resources: resources,
		objects: prometheus.NewDesc("apiserver_resource_objects", "Number of stored objects, by group and resource.",
			[]string{"group", "resource"}, nil),
		older: prometheus.NewDesc("apiserver_storage_objects",
			"Number of stored objects, by resource. Deprecated: use apiserver_resource_objects.", []string{"resource"}, nil),
		size: prometheus.NewDesc("apiserver_storage_size_bytes", "Size of the file that holds the state, in bytes.", nil,
			prometheus.Labels{"storage_cluster_id": "etcd-0"}), // upstream's name of the first storage
	}
}

type collector struct {
	state                *State
	resources            []schema.GroupResource
	objects, older, size *prometheus.Desc
}

func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.objects, c.older, c.size} {
		to <- d
	}
}

func (c *collector) Collect(to chan<- prometheus.Metric) {
	ctx := context.Background() // a store bounds each of its requests
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	counts, err := c.state.count(ctx, c.resources)
	for _, r := range c.resources {
		n := counts[r.Resource]
		if err != nil {
			n = -1
		}
		gauge(c.objects, n, r.Group, r.Resource)
		gauge(c.older, n, r.String())
	}
	size, err := c.state.Size(ctx)
	if err != nil {
		size = -1
	}
	gauge(c.size, size)
}

func (s *State) count(ctx context.Context, resources []schema.GroupResource) (map[string]int64, error) {
	if s.File != nil {
		return s.File.Count(), nil
	}
	var names []string
	for _, r := range resources {
		names = append(names, r.Resource)
	}
	return s.Etcd.Count(ctx, names)
}

// Size returns the size of the file, or of etcd's, in bytes.
func (s *State) Size(ctx context.Context) (int64, error) {
	if s.File != nil {
		return s.File.Size()
	}
	return s.Etcd.Size(ctx)
}
