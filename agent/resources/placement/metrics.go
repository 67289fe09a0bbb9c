package placement

import "github.com/prometheus/client_golang/prometheus"

// version is the value of the label server_api_version.
const version = "v1"

// counters are the metrics of a call.
type counters struct{ requests, errors *prometheus.CounterVec }

// metrics are kubelet's.
type metrics struct {
	total                  *prometheus.CounterVec
	list, get, allocatable counters
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	var err error
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_resources_endpoint_" + name, Help: help},
			[]string{"server_api_version"})
		if err == nil {
			err = r.Register(c)
		}
		return c
	}
	of := func(call string) counters {
		return counters{
			requests: counter("requests_"+call, "Requests "+call+" of the podresources API."),
			errors:   counter("errors_"+call, "Requests "+call+" of the podresources API that failed."),
		}
	}
	m := &metrics{
		total: counter("requests_total", "Requests of the podresources API."),
		list:  of("list"), get: of("get"), allocatable: of("get_allocatable"),
	}
	return m, err
}
