package main

// rule is a recording rule with the labels of its results.
type rule struct {
	record, expr string
	labels       map[string]string
}

// ofPod adds the label node to series of pods.
const ofPod = ` * on (cluster, namespace, pod) group_left(node) topk by (cluster, namespace, pod) (1, ` +
	`max by (cluster, namespace, pod, node) (kube_pod_info{node!=""}))`

// rules are the recording rules. A rule may use results of earlier rules.
var rules = []rule{
	{"node_namespace_pod:kube_pod_info:", `topk by (cluster, namespace, pod) (1, max by (cluster, node, namespace, ` +
		`pod) (label_replace(kube_pod_info{job="kube-state-metrics", node!=""}, "pod", "$1", "pod", "(.*)")))`, nil},
	{"node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate",
		`sum by (cluster, namespace, pod, container) (irate(container_cpu_usage_seconds_total{job="cadvisor", ` +
			`image!=""}[5m]))` + ofPod, nil},
	{"node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m",
		`sum by (cluster, namespace, pod, container) (rate(container_cpu_usage_seconds_total{job="cadvisor", image!=""}[5m]))` + ofPod, nil},
	{"node_namespace_pod_container:container_memory_working_set_bytes",
		`container_memory_working_set_bytes{job="cadvisor", image!=""}` + ofPod, nil},
	{"node_namespace_pod_container:container_memory_rss", `container_memory_rss{job="cadvisor", image!=""}` + ofPod, nil},
	{"node_namespace_pod_container:container_memory_cache", `container_memory_cache{job="cadvisor", image!=""}` + ofPod,
		nil},
	{"node_namespace_pod_container:container_memory_swap", `container_memory_swap{job="cadvisor", image!=""}` + ofPod,
		nil},
	{"cluster:namespace:pod_memory:active:kube_pod_container_resource_requests",
		`kube_pod_container_resource_requests{resource="memory", job="kube-state-metrics"} * on (namespace, pod, ` +
			`cluster) group_left() max by (namespace, pod, cluster) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)`,
		nil},
	{"cluster:namespace:pod_memory:active:kube_pod_container_resource_limits",
		`kube_pod_container_resource_limits{resource="memory", job="kube-state-metrics"} * on (namespace, pod, ` +
			`cluster) group_left() max by (namespace, pod, cluster) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)`,
		nil},
	{"cluster:namespace:pod_cpu:active:kube_pod_container_resource_requests",
		`kube_pod_container_resource_requests{resource="cpu", job="kube-state-metrics"} * on (namespace, pod, ` +
			`cluster) group_left() max by (namespace, pod, cluster) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)`,
		nil},
	{"cluster:namespace:pod_cpu:active:kube_pod_container_resource_limits",
		`kube_pod_container_resource_limits{resource="cpu", job="kube-state-metrics"} * on (namespace, pod, ` +
			`cluster) group_left() max by (namespace, pod, cluster) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)`,
		nil},
	{"namespace_cpu:kube_pod_container_resource_requests:sum",
		`sum by (namespace, cluster) (sum by (namespace, pod, cluster) (max by (namespace, pod, container, ` +
			`cluster) (kube_pod_container_resource_requests{resource="cpu", job="kube-state-metrics"})))`, nil},
	{"namespace_memory:kube_pod_container_resource_requests:sum",
		`sum by (namespace, cluster) (sum by (namespace, pod, cluster) (max by (namespace, pod, container, ` +
			`cluster) (kube_pod_container_resource_requests{resource="memory", job="kube-state-metrics"})))`, nil},
	{"namespace_workload_pod:kube_pod_owner:relabel",
		`max by (cluster, namespace, workload, pod) (label_replace(label_replace(kube_pod_owner{job="kube-state-metrics", ` +
			`owner_kind="ReplicaSet"}, "replicaset", "$1", "owner_name", "(.*)") * on (cluster, replicaset, ` +
			`namespace) group_left(owner_name) topk by (cluster, replicaset, namespace) (1, max by (cluster, replicaset, ` +
			`namespace, owner_name) (kube_replicaset_owner{job="kube-state-metrics", owner_kind="<none>"})), "workload", ` +
			`"$1", "replicaset", "(.*)"))`, map[string]string{"workload_type": "replicaset"}},
	{"cluster:node_cpu:ratio_rate5m", `avg by (cluster) (1 - rate(node_cpu_seconds_total{job="node-exporter", ` +
		`mode="idle"}[5m]))`, nil},
	{":node_memory_MemAvailable_bytes:sum", `sum by (cluster) (node_memory_MemAvailable_bytes{job="node-exporter"})`, nil},
	{"node_quantile:kubelet_pleg_relist_duration_seconds:histogram_quantile",
		`histogram_quantile(0.99, sum by (cluster, instance, ` +
			`le) (rate(kubelet_pleg_relist_duration_seconds_bucket{job="kubelet", ` +
			`metrics_path="/metrics"}[5m])) * on (cluster, instance) group_left(node) kubelet_node_name{job="kubelet", ` +
			`metrics_path="/metrics"})`, map[string]string{"quantile": "0.99"}},
	{"code_resource:apiserver_request_total:rate5m",
		`sum by (cluster, code, resource) (rate(apiserver_request_total{job="apiserver", verb=~"LIST|GET"}[5m]))`,
		map[string]string{"verb": "read"}},
	{"code_resource:apiserver_request_total:rate5m",
		`sum by (cluster, code, resource) (rate(apiserver_request_total{job="apiserver", verb=~"POST|PUT|PATCH|DELETE"}[5m]))`, map[string]string{"verb": "write"}},
	{"cluster_quantile:apiserver_request_sli_duration_seconds:histogram_quantile",
		`histogram_quantile(0.99, sum by (cluster, le, ` +
			`resource) (rate(apiserver_request_sli_duration_seconds_bucket{job="apiserver", verb=~"LIST|GET", ` +
			`subresource!~"proxy|attach|log|exec|portforward"}[5m]))) > 0`, map[string]string{"verb": "read",
			"quantile": "0.99"}},
	{"cluster_quantile:apiserver_request_sli_duration_seconds:histogram_quantile",
		`histogram_quantile(0.99, sum by (cluster, le, ` +
			`resource) (rate(apiserver_request_sli_duration_seconds_bucket{job="apiserver", verb=~"POST|PUT|PATCH|DELETE", ` +
			`subresource!~"proxy|attach|log|exec|portforward"}[5m]))) > 0`, map[string]string{"verb": "write",
			"quantile": "0.99"}},
	{"cluster_verb_scope:apiserver_request_sli_duration_seconds_count:increase",
		`sum by (cluster, verb, scope) (increase(apiserver_request_sli_duration_seconds_count[5m]))`, nil},
	{"cluster_verb_scope_le:apiserver_request_sli_duration_seconds_bucket:increase",
		`sum by (cluster, verb, scope, le) (increase(apiserver_request_sli_duration_seconds_bucket[5m]))`, nil},
	{"code:apiserver_request_total:increase",
		`sum by (cluster, code, verb) (increase(apiserver_request_total{job="apiserver", ` +
			`verb=~"LIST|GET|POST|PUT|PATCH|DELETE"}[5m]))`, nil},
	// As in upstream's rules, this ratio does not exist without LIST requests and requests for single objects.
	{"apiserver_request:availability", `1 - (sum by (cluster) ` +
		`(cluster_verb_scope:apiserver_request_sli_duration_seconds_count:increase{verb=~"LIST|GET"}) - (sum by (cluster) ` +
		`(cluster_verb_scope_le:apiserver_request_sli_duration_seconds_bucket:increase{verb=~"LIST|GET", ` +
		`scope=~"resource|", le=~"1(\\.0)?"}) or vector(0)) - sum by (cluster) ` +
		`(cluster_verb_scope_le:apiserver_request_sli_duration_seconds_bucket:increase{verb=~"LIST|GET", ` +
		`scope="namespace", le=~"5(\\.0)?"}) - sum by (cluster) ` +
		`(cluster_verb_scope_le:apiserver_request_sli_duration_seconds_bucket:increase{verb=~"LIST|GET", scope="cluster", ` +
		`le=~"30(\\.0)?"})) / sum by (cluster) (code:apiserver_request_total:increase{verb=~"LIST|GET"})`,
		map[string]string{"verb": "read"}},
}

// panel is a graph or a number of a dashboard. quiet is the reason why it may be empty in a healthy cluster.
type panel struct{ name, expr, quiet string }

type board struct {
	name   string
	panels []panel
}

// network returns the panels with the network traffic of the selected series, summed by a label.
func network(selects, by string) []panel {
	var out []panel
	for _, m := range []string{"receive_bytes", "transmit_bytes", "receive_packets", "transmit_packets",
		"receive_packets_dropped", "transmit_packets_dropped"} {
		out = append(out, panel{name: m + " by " + by, expr: `sum by (` + by + `) (rate(container_network_` + m +
			`_total{job="cadvisor", ` + selects + `}[$__rate_interval]))`})
	}
	return out
}

// quietDisk applies to pods without disk I/O. cAdvisor has no such series for them either.
const quietDisk = "the kernel reports no device for these pods"

func disk(selects, by string) []panel {
	var out []panel
	for _, m := range []string{"reads", "writes", "reads_bytes", "writes_bytes"} {
		out = append(out, panel{name: m + " by " + by, expr: `sum by (` + by + `) (rate(container_fs_` + m +
			`_total{job="cadvisor", device=~"(/dev.+)|mmcblk.p.+|nvme.+|sd.+|vd.+|xvd.+|dm-.+|[0-9]+:[0-9]+", container!="", ` +
			selects + `}[$__rate_interval]))`, quiet: quietDisk})
	}
	return out
}

const workload = ` * on (namespace, pod) group_left(workload, ` +
	`workload_type) namespace_workload_pod:kube_pod_owner:relabel{cluster="$cluster", namespace="$namespace", ` +
	`workload_type=~"$type"}`

// boards are the dashboards of kubernetes-mixin.
var boards = []board{
	{"Compute Resources / Cluster", append(append([]panel{
		{name: "CPU Utilisation", expr: `cluster:node_cpu:ratio_rate5m{cluster="$cluster"}`},
		{name: "CPU Requests Commitment",
			expr: `sum(namespace_cpu:kube_pod_container_resource_requests:sum{cluster="$cluster"}) / ` +
				`sum(kube_node_status_allocatable{job="kube-state-metrics", resource="cpu", cluster="$cluster"})`},
		{name: "Memory Utilisation", expr: `1 - sum(:node_memory_MemAvailable_bytes:sum{cluster="$cluster"}) / ` +
			`sum(node_memory_MemTotal_bytes{job="node-exporter", cluster="$cluster"})`},
		{name: "Memory Requests Commitment",
			expr: `sum(namespace_memory:kube_pod_container_resource_requests:sum{cluster="$cluster"}) / ` +
				`sum(kube_node_status_allocatable{job="kube-state-metrics", resource="memory", cluster="$cluster"})`},
		{name: "CPU Usage", expr: `sum by (namespace) ` +
			`(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{cluster="$cluster"})`},
		{name: "Memory Usage", expr: `sum by (namespace) (container_memory_rss{job="cadvisor", cluster="$cluster", ` +
			`container!=""})`},
		{name: "CPU Quota", expr: `sum by (namespace) ` +
			`(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m{cluster="$cluster"}) / sum by ` +
			`(namespace) (namespace_cpu:kube_pod_container_resource_requests:sum{cluster="$cluster"})`},
		{name: "Workloads", expr: `count by (namespace) (avg by (workload, ` +
			`namespace) (namespace_workload_pod:kube_pod_owner:relabel{cluster="$cluster"}))`},
	}, network(`cluster="$cluster", namespace=~".+"`, "namespace")...), disk(`cluster="$cluster", namespace!=""`,
		"namespace")...)},
	{"Compute Resources / Namespace (Pods)", append(append([]panel{
		{name: "CPU Utilisation (from requests)",
			expr: `sum(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m{cluster="$cluster", ` +
				`namespace="$namespace"}) / sum(kube_pod_container_resource_requests{job="kube-state-metrics", ` +
				`cluster="$cluster", namespace="$namespace", resource="cpu"})`},
		{name: "Memory Utilisation (from limits)",
			expr: `sum(container_memory_working_set_bytes{job="cadvisor", cluster="$cluster", namespace="$namespace", ` +
				`container!="", image!=""}) / sum(kube_pod_container_resource_limits{job="kube-state-metrics", ` +
				`cluster="$cluster", namespace="$namespace", resource="memory"})`},
		{name: "CPU Usage", expr: `sum by (pod) ` +
			`(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{cluster="$cluster", ` +
			`namespace="$namespace"})`},
		{name: "CPU Requests", expr: `sum by (pod) ` +
			`(cluster:namespace:pod_cpu:active:kube_pod_container_resource_requests{cluster="$cluster", namespace="$namespace"})`},
		{name: "CPU Limits %", expr: `sum by (pod) ` +
			`(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{cluster="$cluster", ` +
			`namespace="$namespace"}) / sum by (pod) ` +
			`(cluster:namespace:pod_cpu:active:kube_pod_container_resource_limits{cluster="$cluster", namespace="$namespace"})`},
		{name: "Memory Usage (w/o cache)", expr: `sum by (pod) (container_memory_working_set_bytes{job="cadvisor", ` +
			`cluster="$cluster", namespace="$namespace", container!="", image!=""})`},
		{name: "Memory Usage (RSS)", expr: `sum by (pod) (container_memory_rss{job="cadvisor", cluster="$cluster", ` +
			`namespace="$namespace", container!=""})`},
		{name: "Memory Usage (Cache)", expr: `sum by (pod) (container_memory_cache{job="cadvisor", cluster="$cluster", ` +
			`namespace="$namespace", container!=""})`},
		{name: "Memory Usage (Swap)", expr: `sum by (pod) (container_memory_swap{job="cadvisor", cluster="$cluster", ` +
			`namespace="$namespace", container!=""})`},
		{name: "Memory Limits %", expr: `sum by (pod) (container_memory_working_set_bytes{job="cadvisor", ` +
			`cluster="$cluster", namespace="$namespace", container!="", ` +
			`image!=""}) / sum by (pod) ` +
			`(cluster:namespace:pod_memory:active:kube_pod_container_resource_limits{cluster="$cluster", ` +
			`namespace="$namespace"})`},
	}, network(`cluster="$cluster", namespace="$namespace"`, "pod")...), disk(`cluster="$cluster", namespace="$namespace"`,
		"pod")...)},
	{"Compute Resources / Namespace (Workloads)", []panel{
		{name: "CPU Usage", expr: `sum by (workload, workload_type) ` +
			`(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{cluster="$cluster", ` +
			`namespace="$namespace"}` + workload + `)`},
		{name: "CPU Requests", expr: `sum by (workload, workload_type) ` +
			`(kube_pod_container_resource_requests{job="kube-state-metrics", cluster="$cluster", namespace="$namespace", ` +
			`resource="cpu"}` + workload + `)`},
		{name: "Memory Usage", expr: `sum by (workload, workload_type) ` +
			`(container_memory_working_set_bytes{job="cadvisor", cluster="$cluster", namespace="$namespace", container!="", ` +
			`image!=""}` + workload + `)`},
		{name: "Receive Bandwidth", expr: `sum by (workload) (rate(container_network_receive_bytes_total{job="cadvisor", ` +
			`cluster="$cluster", namespace="$namespace"}[$__rate_interval])` + workload + `)`},
		{name: "Transmit Packets Dropped", expr: `sum by (workload) ` +
			`(rate(container_network_transmit_packets_dropped_total{job="cadvisor", cluster="$cluster", ` +
			`namespace="$namespace"}[$__rate_interval])` + workload + `)`},
	}},
	{"Compute Resources / Node (Pods)", []panel{
		{name: "CPU Capacity", expr: `sum(kube_node_status_allocatable{cluster="$cluster", node=~"$node", resource="cpu"})`},
		{name: "CPU Usage", expr: `sum by (pod) ` +
			`(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{cluster="$cluster", node=~"$node"})`},
		{name: "Memory Usage (w/o cache)", expr: `sum by (pod) ` +
			`(node_namespace_pod_container:container_memory_working_set_bytes{cluster="$cluster", node=~"$node", container!=""})`},
		{name: "Memory Usage (RSS)", expr: `sum by (pod) ` +
			`(node_namespace_pod_container:container_memory_rss{cluster="$cluster", node=~"$node", container!=""})`},
		{name: "Memory Usage (Cache)", expr: `sum by (pod) ` +
			`(node_namespace_pod_container:container_memory_cache{cluster="$cluster", node=~"$node", container!=""})`},
		{name: "Memory Usage (Swap)", expr: `sum by (pod) ` +
			`(node_namespace_pod_container:container_memory_swap{cluster="$cluster", node=~"$node", container!=""})`},
		{name: "CPU Requests %", expr: `sum by (pod) ` +
			`(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{cluster="$cluster", ` +
			`node=~"$node"}) / sum by (pod) ` +
			`(cluster:namespace:pod_cpu:active:kube_pod_container_resource_requests{cluster="$cluster", node=~"$node"})`},
	}},
	{"Compute Resources / Pod", append(append([]panel{
		{name: "CPU Usage", expr: `sum by (container) ` +
			`(node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{namespace="$namespace", pod=~"$pod", ` +
			`cluster="$cluster", container!=""})`},
		{name: "CPU Limits", expr: `sum(kube_pod_container_resource_limits{job="kube-state-metrics", cluster="$cluster", ` +
			`namespace="$namespace", pod=~"$pod", resource="cpu"})`},
		{name: "CPU Throttling", expr: `sum by (container) ` +
			`(increase(container_cpu_cfs_throttled_periods_total{job="cadvisor", namespace="$namespace", pod=~"$pod", ` +
			`container!="", cluster="$cluster"}[$__rate_interval])) / sum by (container) ` +
			`(increase(container_cpu_cfs_periods_total{job="cadvisor", namespace="$namespace", pod=~"$pod", container!="", ` +
			`cluster="$cluster"}[$__rate_interval]))`},
		{name: "Throttled time", expr: `sum by (container) ` +
			`(rate(container_cpu_cfs_throttled_seconds_total{job="cadvisor", namespace="$namespace", pod=~"$pod", ` +
			`container!=""}[$__rate_interval]))`},
		{name: "Memory Usage (WSS)", expr: `sum by (container) (container_memory_working_set_bytes{job="cadvisor", ` +
			`cluster="$cluster", namespace="$namespace", pod=~"$pod", container!="", image!=""})`},
		{name: "Memory Limit of the cgroup", expr: `sum by (container) (container_spec_memory_limit_bytes{job="cadvisor", ` +
			`cluster="$cluster", namespace="$namespace", pod=~"$pod", container!=""}) > 0`},
		{name: "Quota of the cgroup", expr: `sum by (container) (container_spec_cpu_quota{job="cadvisor", ` +
			`namespace="$namespace", pod=~"$pod", container!=""} / container_spec_cpu_period)`},
		{name: "Age", expr: `time() - container_start_time_seconds{job="cadvisor", namespace="$namespace", pod=~"$pod", ` +
			`container!=""} < 3600`},
		{name: "Threads", expr: `sum by (container) (container_threads{job="cadvisor", namespace="$namespace", ` +
			`pod=~"$pod", container!=""}) > 0`},
		{name: "OOM kills", expr: `sum by (container) (container_oom_events_total{job="cadvisor", ` +
			`namespace="$namespace", pod=~"$pod", container!=""})`},
	}, network(`cluster="$cluster", namespace="$namespace", pod=~"$pod"`, "pod")...),
		disk(`cluster="$cluster", namespace="$namespace", pod=~"$pod"`, "container")...)},
	{"Networking / Cluster", append(network(`cluster="$cluster", namespace!=""`, "namespace"), panel{
		name: "Average Rate of Bytes Received", expr: `avg by (namespace) ` +
			`(rate(container_network_receive_bytes_total{job="cadvisor", cluster="$cluster", namespace!=""}[$__rate_interval]))`})},
	{"Networking / Namespace (Pods)", append(network(`cluster="$cluster", namespace=~"$namespace"`, "pod"), panel{
		name: "Current Rate of Bytes Received", expr: `sum(rate(container_network_receive_bytes_total{job="cadvisor", ` +
			`cluster="$cluster", namespace=~"$namespace"}[$__rate_interval])) > 0`})},
	{"Networking / Pod", network(`cluster="$cluster", namespace=~"$namespace", pod=~"$pod"`, "interface")},
	{"Kubelet", []panel{
		{name: "Running Kubelets",
			expr: `sum(kubelet_node_name{cluster="$cluster", job="kubelet", metrics_path="/metrics"})`},
		{name: "Running Pods", expr: `sum(kubelet_running_pods{cluster="$cluster", job="kubelet", ` +
			`metrics_path="/metrics", instance=~"$instance"}) > 0`},
		{name: "Running Containers", expr: `sum(kubelet_running_containers{cluster="$cluster", job="kubelet", ` +
			`metrics_path="/metrics", instance=~"$instance", container_state="running"}) > 0`},
		{name: "Actual Volume Count", expr: `sum(volume_manager_total_volumes{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance", state="actual_state_of_world"}) > 0`},
		{name: "Desired Volume Count", expr: `sum(volume_manager_total_volumes{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance", state="desired_state_of_world"}) > 0`},
		{name: "Operation Rate", expr: `sum by (operation_type, instance) ` +
			`(rate(kubelet_runtime_operations_total{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance"}[$__rate_interval]))`},
		{name: "Operation Error Rate", expr: `sum by (instance, operation_type) ` +
			`(rate(kubelet_runtime_operations_errors_total{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance"}[$__rate_interval]))`, quiet: "no operation failed"},
		{name: "Operation Duration", expr: `histogram_quantile(0.99, sum by (instance, operation_type, ` +
			`le) (kubelet_runtime_operations_duration_seconds_bucket{cluster="$cluster", job="kubelet", instance=~"$instance"}))`},
		{name: "Pod Start Rate", expr: `sum by (instance) ` +
			`(rate(kubelet_pod_start_duration_seconds_count{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance"}[$__rate_interval]))`},
		{name: "Pod Worker Rate", expr: `sum by (instance) ` +
			`(rate(kubelet_pod_worker_duration_seconds_count{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance"}[$__rate_interval]))`},
		{name: "Pod Start Duration", expr: `histogram_quantile(0.99, sum by (instance, ` +
			`le) (kubelet_pod_start_duration_seconds_bucket{cluster="$cluster", job="kubelet", instance=~"$instance"}))`},
		{name: "Pod Worker Duration", expr: `histogram_quantile(0.99, sum by (instance, ` +
			`le) (kubelet_pod_worker_duration_seconds_bucket{cluster="$cluster", job="kubelet", instance=~"$instance"}))`},
		{name: "Storage Operation Rate", expr: `sum by (instance, operation_name, ` +
			`volume_plugin) (rate(storage_operation_duration_seconds_count{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance"}[$__rate_interval]))`},
		{name: "Storage Operation Duration", expr: `histogram_quantile(0.99, sum by (instance, operation_name, ` +
			`volume_plugin, le) (storage_operation_duration_seconds_bucket{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance"}))`},
		{name: "Cgroup manager operation rate", expr: `sum by (instance, operation_type) ` +
			`(rate(kubelet_cgroup_manager_duration_seconds_count{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance"}[$__rate_interval]))`},
		{name: "Cgroup manager duration", expr: `histogram_quantile(0.99, sum by (instance, operation_type, ` +
			`le) (kubelet_cgroup_manager_duration_seconds_bucket{cluster="$cluster", job="kubelet", instance=~"$instance"}))`},
		{name: "PLEG relist rate", expr: `sum by (instance) ` +
			`(rate(kubelet_pleg_relist_duration_seconds_count{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance"}[$__rate_interval]))`},
		{name: "PLEG relist duration",
			expr: `node_quantile:kubelet_pleg_relist_duration_seconds:histogram_quantile{cluster="$cluster", ` +
				`instance=~"$instance"}`, quiet: "the runtime is listed only every five minutes"},
		{name: "Memory", expr: `process_resident_memory_bytes{cluster="$cluster", job="kubelet", metrics_path="/metrics", ` +
			`instance=~"$instance"}`},
		{name: "CPU usage", expr: `rate(process_cpu_seconds_total{cluster="$cluster", job="kubelet", ` +
			`metrics_path="/metrics", instance=~"$instance"}[$__rate_interval])`},
		{name: "Goroutines", expr: `go_goroutines{cluster="$cluster", job="kubelet", metrics_path="/metrics", ` +
			`instance=~"$instance"}`},
		{name: "RPC rate", expr: `sum(rate(rest_client_requests_total{cluster="$cluster", job="kubelet", ` +
			`instance=~"$instance", code=~"2.."}[$__rate_interval]))`, quiet: "the agent calls the API in process"},
	}},
	{"API server", []panel{
		{name: "Read availability", expr: `apiserver_request:availability{verb="read", cluster="$cluster"}`},
		{name: "Read SLI - Requests", expr: `sum by (code) (code_resource:apiserver_request_total:rate5m{verb="read", ` +
			`cluster="$cluster"})`},
		{name: "Read SLI - Errors", expr: `sum by (resource) (code_resource:apiserver_request_total:rate5m{verb="read", ` +
			`code=~"5..", cluster="$cluster"})`, quiet: "no request failed"},
		{name: "Read SLI - Duration",
			expr: `cluster_quantile:apiserver_request_sli_duration_seconds:histogram_quantile{verb="read", cluster="$cluster"}`},
		{name: "Write SLI - Requests", expr: `sum by (code) (code_resource:apiserver_request_total:rate5m{verb="write", ` +
			`cluster="$cluster"}) > 0`},
		{name: "Write SLI - Duration",
			expr: `cluster_quantile:apiserver_request_sli_duration_seconds:histogram_quantile{verb="write", cluster="$cluster"}`},
		{name: "Work Queue Add Rate", expr: `sum by (instance, name) (rate(workqueue_adds_total{job="apiserver", ` +
			`instance=~"$instance", cluster="$cluster"}[$__rate_interval]))`},
		{name: "Work Queue Depth", expr: `sum by (instance, name) (rate(workqueue_depth{job="apiserver", ` +
			`instance=~"$instance", cluster="$cluster"}[$__rate_interval]))`},
		{name: "Work Queue Latency", expr: `histogram_quantile(0.99, sum by (instance, name, ` +
			`le) (workqueue_queue_duration_seconds_bucket{job="apiserver", instance=~"$instance", cluster="$cluster"}))`},
		{name: "Memory", expr: `process_resident_memory_bytes{job="apiserver", instance=~"$instance", cluster="$cluster"}`},
		{name: "CPU usage", expr: `rate(process_cpu_seconds_total{job="apiserver", instance=~"$instance", ` +
			`cluster="$cluster"}[$__rate_interval])`},
		{name: "Goroutines", expr: `go_goroutines{job="apiserver", instance=~"$instance", cluster="$cluster"}`},
		{name: "Stored objects", expr: `sum by (resource) (apiserver_storage_objects{job="apiserver", ` +
			`cluster="$cluster"}) > 0`},
		{name: "Size of the storage", expr: `sum(apiserver_storage_size_bytes{job="apiserver", cluster="$cluster"}) > 0`},
	}},
	{"Persistent Volumes", []panel{
		{name: "Volume Space Usage", expr: `sum without (instance, node) (topk(1, ` +
			`(kubelet_volume_stats_capacity_bytes{cluster="$cluster", job="kubelet", metrics_path="/metrics", ` +
			`namespace="$namespace", persistentvolumeclaim="data"}))) - sum without (instance, node) (topk(1, ` +
			`(kubelet_volume_stats_available_bytes{cluster="$cluster", job="kubelet", metrics_path="/metrics", ` +
			`namespace="$namespace", persistentvolumeclaim="data"})))`},
		{name: "Volume Space %", expr: `max without (instance, node) (topk(1, ` +
			`kubelet_volume_stats_used_bytes{cluster="$cluster", job="kubelet", namespace="$namespace", ` +
			`persistentvolumeclaim="data"}) / topk(1, kubelet_volume_stats_capacity_bytes{cluster="$cluster", job="kubelet", ` +
			`namespace="$namespace", persistentvolumeclaim="data"}) * 100) > 0`},
		{name: "Volume inodes Usage", expr: `sum without (instance, node) (topk(1, ` +
			`kubelet_volume_stats_inodes_used{cluster="$cluster", job="kubelet", namespace="$namespace", ` +
			`persistentvolumeclaim="data"}))`},
		{name: "Volume inodes %", expr: `max without (instance, node) (topk(1, ` +
			`kubelet_volume_stats_inodes_used{cluster="$cluster", job="kubelet", namespace="$namespace", ` +
			`persistentvolumeclaim="data"}) / topk(1, kubelet_volume_stats_inodes{cluster="$cluster", job="kubelet", ` +
			`namespace="$namespace", persistentvolumeclaim="data"}) * 100)`},
		{name: "Free inodes", expr: `kubelet_volume_stats_inodes_free{cluster="$cluster", job="kubelet", ` +
			`namespace="$namespace"}`},
	}},
}
