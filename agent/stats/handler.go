package stats

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/agent/host"
)

// Handler serves kubelet's /stats/summary (with only_cpu_and_memory),
// /metrics/resource and /metrics/cadvisor.
func (s *Source) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats/summary", s.serveSummary)
	mux.HandleFunc("GET /metrics/resource", func(w http.ResponseWriter, r *http.Request) { s.expose(w, r, resources) })
	mux.HandleFunc("GET /metrics/cadvisor", func(w http.ResponseWriter, r *http.Request) { s.expose(w, r, cadvisor) })
	return mux
}

func (s *Source) serveSummary(w http.ResponseWriter, r *http.Request) {
	short, _ := strconv.ParseBool(r.URL.Query().Get("only_cpu_and_memory"))
	summary, err := s.Summary(r.Context(), short)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(summary) // the client may be gone
}

// expose answers one scrape with the figures that emit writes.
func (s *Source) expose(w http.ResponseWriter, r *http.Request, emit func(*exposition)) {
	e := &exposition{}
	summary, err := s.Summary(r.Context(), false)
	if err != nil {
		e.failed = 1
		summary = &statsapi.Summary{}
	}
	e.summary = summary
	emit(e)
	registry := prometheus.NewRegistry()
	registry.MustRegister(e)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// exposition is the figures of one scrape.
type exposition struct {
	summary *statsapi.Summary
	failed  float64
	list    []prometheus.Metric
}

var _ prometheus.Collector = (*exposition)(nil)

// Describe implements prometheus.Collector: what there is depends on the pods.
func (e *exposition) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (e *exposition) Collect(ch chan<- prometheus.Metric) {
	for _, m := range e.list {
		ch <- m
	}
}

// add one figure; nil: it is not known. labels are names and values in turn.
func (e *exposition) add(kind prometheus.ValueType, name, help string, value *uint64, unit float64, labels ...string) {
	if value == nil {
		return
	}
	e.put(kind, name, help, float64(*value)*unit, labels)
}

func (e *exposition) put(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	e.list = append(e.list, prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...))
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
	nano    = 1e-9
)

// resources are kubelet's /metrics/resource.
func resources(e *exposition) {
	e.put(gauge, "resource_scrape_error", "1 if the figures could not be had, else 0", e.failed, nil)
	if e.failed > 0 {
		return
	}
	n := &e.summary.Node
	e.add(counter, "node_cpu_usage_seconds_total", "Processor time used by the node", n.CPU.UsageCoreNanoSeconds, nano)
	e.add(gauge, "node_memory_working_set_bytes", "Working set of the node", n.Memory.WorkingSetBytes, 1)
	e.add(gauge, "node_swap_usage_bytes", "Swap used by the node", n.Swap.SwapUsageBytes, 1)
	for i := range e.summary.Pods {
		p := &e.summary.Pods[i]
		of := []string{"namespace", p.PodRef.Namespace, "pod", p.PodRef.Name}
		e.add(counter, "pod_cpu_usage_seconds_total", "Processor time used by the pod", p.CPU.UsageCoreNanoSeconds, nano, of...)
		e.add(gauge, "pod_memory_working_set_bytes", "Working set of the pod", p.Memory.WorkingSetBytes, 1, of...)
		for j := range p.Containers {
			c := &p.Containers[j]
			in := append([]string{"container", c.Name}, of...)
			e.add(counter, "container_cpu_usage_seconds_total", "Processor time used by the container", c.CPU.UsageCoreNanoSeconds, nano, in...)
			e.add(gauge, "container_memory_working_set_bytes", "Working set of the container", c.Memory.WorkingSetBytes, 1, in...)
			e.start(c, "Start of the container, in seconds of the epoch", in)
			if c.Swap != nil {
				e.add(gauge, "container_swap_usage_bytes", "Swap used by the container", c.Swap.SwapUsageBytes, 1, in...)
			}
		}
	}
}

// start adds when the container began, where that is known: neither the zero time
// nor the runtime's 0, which would be an age of half a century.
func (e *exposition) start(c *statsapi.ContainerStats, help string, labels []string) {
	if c.StartTime.Unix() > 0 {
		e.put(gauge, "container_start_time_seconds", help, float64(c.StartTime.UnixNano())/1e9, labels)
	}
}

// cadvisor are the figures of /metrics/cadvisor that dashboards are made of, with
// its names and labels. As there, a pod as a whole has no container, the node no
// pod and the id "/".
func cadvisor(e *exposition) {
	e.put(gauge, "machine_cpu_cores", "Processors of the machine", float64(runtime.NumCPU()), nil)
	if memory, err := host.Memory(); err == nil {
		e.put(gauge, "machine_memory_bytes", "Memory of the machine", float64(memory.Total), nil)
	}
	e.put(gauge, "container_scrape_error", "1 if the figures could not be had, else 0", e.failed, nil)
	if e.failed > 0 {
		return
	}
	n := &e.summary.Node
	e.usage(n.CPU, n.Memory, "container", "", "id", "/", "namespace", "", "pod", "")
	for i := range e.summary.Pods {
		p := &e.summary.Pods[i]
		of := []string{"id", "pod" + p.PodRef.UID, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name}
		whole := append([]string{"container", ""}, of...)
		e.usage(p.CPU, p.Memory, whole...)
		if p.ProcessStats != nil {
			e.add(gauge, "container_processes", "Processes that run", p.ProcessStats.ProcessCount, 1, whole...)
		}
		e.network(p.Network, of)
		for j := range p.Containers {
			c := &p.Containers[j]
			in := append([]string{"container", c.Name}, of...)
			e.usage(c.CPU, c.Memory, in...)
			e.start(c, "Start, in seconds of the epoch", in)
			if c.Rootfs != nil {
				e.add(gauge, "container_fs_usage_bytes", "Bytes on disk", c.Rootfs.UsedBytes, 1, in...)
			}
		}
	}
}

func (e *exposition) usage(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, labels ...string) {
	e.add(counter, "container_cpu_usage_seconds_total", "Processor time used", cpu.UsageCoreNanoSeconds, nano, append([]string{"cpu", "total"}, labels...)...)
	e.add(gauge, "container_memory_usage_bytes", "Memory in use, with the page cache", memory.UsageBytes, 1, labels...)
	e.add(gauge, "container_memory_working_set_bytes", "Memory in use that cannot be had back at once", memory.WorkingSetBytes, 1, labels...)
	e.add(gauge, "container_memory_rss", "Anonymous memory", memory.RSSBytes, 1, labels...)
}

func (e *exposition) network(n *statsapi.NetworkStats, of []string) {
	if n == nil {
		return
	}
	for i := range n.Interfaces {
		l := &n.Interfaces[i]
		in := append([]string{"interface", l.Name}, of...)
		e.add(counter, "container_network_receive_bytes_total", "Bytes received", l.RxBytes, 1, in...)
		e.add(counter, "container_network_receive_errors_total", "Errors while receiving", l.RxErrors, 1, in...)
		e.add(counter, "container_network_transmit_bytes_total", "Bytes sent", l.TxBytes, 1, in...)
		e.add(counter, "container_network_transmit_errors_total", "Errors while sending", l.TxErrors, 1, in...)
	}
}
