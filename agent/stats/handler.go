package stats

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Handler returns the handler of kubelet's /stats/summary (with only_cpu_and_memory), /metrics/resource and
// /metrics/cadvisor, and of /stats/history.
func (s *Source) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats/summary", s.serveSummary)
	mux.HandleFunc("GET /stats/history", s.serveHistory)
	mux.HandleFunc("GET /metrics/resource", s.resource)
	mux.HandleFunc("GET /metrics/cadvisor", s.cadvisor)
	return mux
}

func (s *Source) serveSummary(w http.ResponseWriter, r *http.Request) {
	short, _ := strconv.ParseBool(r.URL.Query().Get("only_cpu_and_memory"))
	summary, err := s.summary(r.Context(), short, short) // the server of a node that has joined computes metrics from it
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(summary) // the client may have left
}

// resource serves /metrics/resource.
func (s *Source) resource(w http.ResponseWriter, r *http.Request) {
	summary, err := s.Summary(r.Context(), true)
	var e exposition
	resources(&e, summary, err)
	e.serve(w, r)
}

// resources collects kubelet's /metrics/resource.
func resources(e *exposition, summary *statsapi.Summary, failure error) {
	failed := 0.0
	if failure != nil {
		failed = 1
	}
	e.put(gauge, "resource_scrape_error", "1 if the usage cannot be read, else 0", failed, nil)
	if failure != nil {
		return
	}
	n := &summary.Node
	e.add(counter, "node_cpu_usage_seconds_total", "Cumulative CPU time of the node", n.CPU.UsageCoreNanoSeconds, nano,
		nil)
	e.add(gauge, "node_memory_working_set_bytes", "Working set of the node", n.Memory.WorkingSetBytes, 1, nil)
	e.add(gauge, "node_swap_usage_bytes", "Swap used by the node", n.Swap.SwapUsageBytes, 1, nil)
	for i := range summary.Pods {
		p := &summary.Pods[i]
		of := newLabels("namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
		e.add(counter, "pod_cpu_usage_seconds_total", "Cumulative CPU time of the pod", p.CPU.UsageCoreNanoSeconds, nano, of)
		e.add(gauge, "pod_memory_working_set_bytes", "Working set of the pod", p.Memory.WorkingSetBytes, 1, of)
		for j := range p.Containers {
			c := &p.Containers[j]
			in := of.with("container", c.Name)
			e.add(counter, "container_cpu_usage_seconds_total", "Cumulative CPU time of the container",
				c.CPU.UsageCoreNanoSeconds, nano, in)
			e.add(gauge, "container_memory_working_set_bytes", "Working set of the container", c.Memory.WorkingSetBytes, 1, in)
			e.start(c.StartTime.Time, in)
			if c.Swap != nil {
				e.add(gauge, "container_swap_usage_bytes", "Swap used by the container", c.Swap.SwapUsageBytes, 1, in)
			}
		}
	}
}

// start adds the container's start time, unless it is unknown: the zero time, or the runtime's 0, which is in 1970.
func (e *exposition) start(startedAt time.Time, l labels) {
	if startedAt.Unix() > 0 {
		e.put(gauge, "container_start_time_seconds", "Time at which the container started, in seconds since 1970",
			float64(startedAt.UnixNano())/1e9, l)
	}
}
