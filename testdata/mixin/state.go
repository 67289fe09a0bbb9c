package main

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// object contains the fields that the program reads, of all kinds.
type object struct {
	Items    []object
	Data     map[string]string
	Metadata struct {
		Name, Namespace, UID string
		OwnerReferences      []struct{ Kind, Name string }
	}
	Spec struct {
		NodeName   string
		Replicas   int
		Containers []struct {
			Name      string
			Resources struct{ Requests, Limits map[string]string }
		}
	}
	Status struct {
		Phase, PodIP    string
		Allocatable     map[string]string
		DaemonEndpoints struct {
			KubeletEndpoint struct{ Port int }
		}
	}
}

// owner returns kind and name of the first owner, in the form of kube-state-metrics.
func (o object) owner() (kind, name string) {
	if refs := o.Metadata.OwnerReferences; len(refs) > 0 {
		return refs[0].Kind, refs[0].Name
	}
	return "<none>", "<none>"
}

// stateMetrics adds the series of kube-state-metrics that the dashboards need.
func stateMetrics(ctx context.Context, db *memory, at time.Time) error {
	add := func(name string, value float64, of ...string) {
		db.add(labels.FromStrings(append([]string{labels.MetricName, name, "job", "kube-state-metrics", "instance", "state"},
			of...)...), at, value)
	}
	var pods, nodes, sets, claims object
	for kind, into := range map[string]*object{"pods": &pods, "nodes": &nodes, "replicasets": &sets,
		"persistentvolumeclaims": &claims} {
		if err := get(ctx, into, kind, "-A"); err != nil {
			return err
		}
	}
	for _, n := range nodes.Items {
		for resource, unit := range map[string]string{"cpu": "core", "memory": "byte", "pods": "integer"} {
			add("kube_node_status_allocatable", quantity(n.Status.Allocatable[resource]), "node", n.Metadata.Name, "resource",
				resource, "unit", unit)
		}
	}
	for _, s := range sets.Items {
		kind, owner := s.owner()
		add("kube_replicaset_owner", 1, "namespace", s.Metadata.Namespace, "replicaset", s.Metadata.Name, "owner_kind", kind,
			"owner_name", owner)
	}
	for _, c := range claims.Items {
		add("kube_persistentvolumeclaim_info", 1, "namespace", c.Metadata.Namespace, "persistentvolumeclaim", c.Metadata.Name)
	}
	for _, p := range pods.Items {
		kind, owner := p.owner()
		of := []string{"namespace", p.Metadata.Namespace, "pod", p.Metadata.Name, "uid", p.Metadata.UID}
		add("kube_pod_info", 1, append(of, "node", p.Spec.NodeName, "pod_ip", p.Status.PodIP, "created_by_kind", kind,
			"created_by_name", owner)...)
		add("kube_pod_owner", 1, append(of, "owner_kind", kind, "owner_name", owner)...)
		add("kube_pod_status_phase", 1, append(of, "phase", p.Status.Phase)...)
		for _, c := range p.Spec.Containers {
			for name, list := range map[string]map[string]string{"requests": c.Resources.Requests,
				"limits": c.Resources.Limits} {
				for resource, q := range list {
					add("kube_pod_container_resource_"+name, quantity(q), append(of, "node", p.Spec.NodeName, "container", c.Name,
						"resource", resource)...)
				}
			}
		}
	}
	return nil
}

// quantity parses a resource quantity with one of the suffixes of the test's objects.
func quantity(q string) float64 {
	unit := 1.0
	for suffix, factor := range map[string]float64{"m": 0.001, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if rest, ok := strings.CutSuffix(q, suffix); ok {
			q, unit = rest, factor
			break
		}
	}
	n, _ := strconv.ParseFloat(q, 64)
	return n * unit
}

// nodeExporter adds series of node-exporter: memory from /proc/meminfo, and CPU time with a fixed usage.
func nodeExporter(db *memory, at time.Time) error {
	add := func(name string, value float64, of ...string) {
		db.add(labels.FromStrings(append([]string{labels.MetricName, name, "job", "node-exporter", "instance", "node1:9100",
			"node", "node1"}, of...)...), at, value)
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 1 {
			n, _ := strconv.ParseFloat(fields[1], 64)
			add("node_memory_"+strings.TrimSuffix(fields[0], ":")+"_bytes", n*1024)
		}
	}
	for i := range runtime.NumCPU() {
		for mode, share := range map[string]float64{"idle": 0.5, "user": 0.5} {
			add("node_cpu_seconds_total", share*float64(at.Unix()), "cpu", strconv.Itoa(i), "mode", mode)
		}
	}
	return nil
}
