package pod

import (
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/volume"
)

// Metrics are the metrics of a node.
type Metrics struct {
	startedPods        prometheus.Counter
	failedPods         prometheus.Counter
	startedContainers  *prometheus.CounterVec // by type
	failedContainers   *prometheus.CounterVec // by type and reason
	endedContainers    *prometheus.CounterVec // by type, exit code and reason
	podStart           prometheus.Histogram
	steps              *prometheus.HistogramVec // by operation of a worker
	operations         *prometheus.CounterVec   // of the runtime
	failedOperations   *prometheus.CounterVec
	operationDurations *prometheus.HistogramVec
	cgroups            *prometheus.HistogramVec // by operation on a pod's cgroup
	volumes            *prometheus.HistogramVec
}

// NewMetrics registers the metrics of a node; pods returns its pods.
func NewMetrics(r prometheus.Registerer, node string, pods func() iter.Seq[*Pod]) (*Metrics, error) {
	const operation = "operation_type"
	m := &Metrics{
		startedPods: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_pods_total", Help: "Pods whose sandbox was started.",
		}),
		failedPods: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_started_pods_errors_total", Help: "Attempts to start the sandbox of a pod that failed.",
		}),
		startedContainers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_total", Help: "Containers started, by type.",
		}, []string{"container_type"}),
		failedContainers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_errors_total",
			Help: "Attempts to start a container that failed, by type and reason (code).",
		}, []string{"container_type", "code"}),
		endedContainers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_terminated_containers_total",
			Help: "Containers that were reported as terminated, by type, exit code and reason.",
		}, []string{"container_type", "exit_code", "reason"}),
		podStart: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_duration_seconds",
			Help: "Duration in seconds from the node seeing a new pod until the pod is Running.",
			Buckets: []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900,
				1200, 1800, 2700, 3600},
		}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds",
			Help: "Duration of one sync of a pod, by operation: create, sync or kill.", Buckets: prometheus.DefBuckets,
		}, []string{operation}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total", Help: "Number of completed calls of the container runtime.",
		}, []string{operation}),
		failedOperations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total", Help: "Number of failed calls of the container runtime.",
		}, []string{operation}),
		operationDurations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_runtime_operations_duration_seconds", Help: "Duration of calls of the container runtime.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, []string{operation}),
		cgroups: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_cgroup_manager_duration_seconds", Help: "Duration of changes to the cgroups of pods.",
			Buckets: prometheus.DefBuckets,
		}, []string{operation}),
		volumes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "storage_operation_duration_seconds", Help: "Duration of setting up a volume.",
			Buckets:     []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
			ConstLabels: prometheus.Labels{"migrated": "false", "operation_name": "volume_mount"},
		}, []string{"status", "volume_plugin"}),
	}
	counts := nodeCollector{node, pods}
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_running_pods", Help: "Pods with a running sandbox.",
	}, counts.runningPods)
	var errs []error
	for _, c := range []prometheus.Collector{
		m.startedPods, m.failedPods, m.startedContainers, m.failedContainers, m.endedContainers, m.podStart, m.steps,
		m.operations, m.failedOperations, m.operationDurations, m.cgroups, m.volumes, running, counts,
	} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

// Operation counts a call of the runtime; it is a runtime.Observer.
func (m *Metrics) Operation(call string, took time.Duration, err error) {
	name := operationName(call)
	m.operations.WithLabelValues(name).Inc()
	m.operationDurations.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.failedOperations.WithLabelValues(name).Inc()
	}
	switch {
	case call != "RunPodSandbox":
	case err != nil:
		m.failedPods.Inc()
	default:
		m.startedPods.Inc()
	}
}

// operationName returns the name of a CRI call in upstream's metrics.
func operationName(call string) string {
	if call == "UpdateContainerResources" {
		return "update_container"
	}
	var out strings.Builder
	for i, r := range strings.Replace(call, "PodSandbox", "Podsandbox", 1) {
		if 'A' <= r && r <= 'Z' {
			if r += 'a' - 'A'; i > 0 {
				out.WriteByte('_')
			}
		}
		out.WriteRune(r)
	}
	return out.String()
}

// Cgroup observes a change to a pod's cgroup.
func (m *Metrics) Cgroup(operation string, change func() error) error {
	began := time.Now()
	defer func() { m.cgroups.WithLabelValues(operation).Observe(time.Since(began).Seconds()) }()
	return change()
}

// Volume observes the setup of a volume; it is a volume.Observer.
func (m *Metrics) Volume(plugin string, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.volumes.WithLabelValues(status, plugin).Observe(took.Seconds())
}

func (t nodeCollector) runningPods() float64 {
	n := 0
	for p := range t.pods() {
		if seen := p.Observed(); seen != nil {
			if s := seen.Sandbox(); s != nil && s.Ready {
				n++
			}
		}
	}
	return float64(n)
}

// nodeCollector counts pods, containers and volumes when metrics are collected.
type nodeCollector struct {
	node string
	pods func() iter.Seq[*Pod]
}

var _ prometheus.Collector = nodeCollector{}

var (
	nodeNameDesc = prometheus.NewDesc("kubelet_node_name",
		"The name of the node; always 1.", []string{"node"}, nil)
	containersDesc = prometheus.NewDesc("kubelet_running_containers",
		"Containers of the runtime, by state.", []string{"container_state"}, nil)
	volumesDesc = prometheus.NewDesc("volume_manager_total_volumes",
		"Number of volumes of the node's pods, by plugin, desired and actual.", []string{"plugin_name", "state"}, nil)
)

// Describe implements prometheus.Collector.
func (nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- nodeNameDesc
	ch <- containersDesc
	ch <- volumesDesc
}

// Collect implements prometheus.Collector.
func (t nodeCollector) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	states := map[status.State]int{status.Running: 0}
	mounted := map[[2]string]int{} // volumes by plugin and upstream's name of the desired or the actual state
	for p := range t.pods() {
		if seen := p.Observed(); seen != nil {
			for i := range seen.Containers {
				states[seen.Containers[i].State]++
			}
		}
		volumes := p.Volumes()
		for _, v := range p.Object().Spec.Volumes {
			plugin := volume.All().Plugin(&v) // of a claim, the volume's plugin is known once it is mounted
			if volumes[v.Name].Plugin != "" {
				plugin = volumes[v.Name].Plugin
				mounted[[2]string{plugin, "actual_state_of_world"}]++
			}
			if plugin != "" && !p.Over() {
				mounted[[2]string{plugin, "desired_state_of_world"}]++
			}
		}
	}
	send(nodeNameDesc, 1, t.node)
	names := [...]string{ // upstream's
		status.Created: "created", status.Running: "running", status.Exited: "exited", status.Unknown: "unknown",
	}
	for state, n := range states {
		send(containersDesc, n, names[state])
	}
	for key, n := range mounted {
		send(volumesDesc, n, key[0], key[1])
	}
}

// Stepped observes a step of a pod's worker.
func (m *Metrics) Stepped(operation string, took time.Duration) {
	m.steps.WithLabelValues(operation).Observe(took.Seconds())
}

// Ran observes the time until a new pod ran.
func (m *Metrics) Ran(took time.Duration) { m.podStart.Observe(took.Seconds()) }

// Started counts a started container.
func (m *Metrics) Started(kind string) { m.startedContainers.WithLabelValues(kind).Inc() }

// Failed counts an attempt to start a container that failed, with the reason in its status.
func (m *Metrics) Failed(kind, reason string) { m.failedContainers.WithLabelValues(kind, reason).Inc() }

// Terminated counts a container that was reported as terminated.
func (m *Metrics) Terminated(kind string, end *corev1.ContainerStateTerminated) {
	m.endedContainers.WithLabelValues(kind, strconv.Itoa(int(end.ExitCode)), end.Reason).Inc()
}
