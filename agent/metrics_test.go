package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
)

// Dashboards for kubelet show these metrics.
func TestMetricsOfAKubelet(t *testing.T) {
	inWorld(t, func(w *world) {
		disk := filepath.Join(w.dir, "disk")
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		w.create(newClaim("c"))
		w.bindClaim("c", disk)
		w.create(claiming("p", "c"))
		w.until(time.Second, "p", ready)
		got := w.series()
		for name, want := range map[string]float64{
			`kubelet_node_name{node="n1"}`:                                                                       1,
			`kubelet_running_pods{}`:                                                                             1,
			`kubelet_running_containers{container_state="running"}`:                                              1,
			`kubelet_pod_start_duration_seconds{}`:                                                               1,
			`kubelet_pod_worker_duration_seconds{operation_type="create"}`:                                       1,
			`kubelet_runtime_operations_total{operation_type="run_podsandbox"}`:                                  1,
			`kubelet_runtime_operations_duration_seconds{operation_type="create_container"}`:                     1,
			`volume_manager_total_volumes{plugin_name="kubernetes.io/host-path",state="actual_state_of_world"}`:  1,
			`volume_manager_total_volumes{plugin_name="kubernetes.io/host-path",state="desired_state_of_world"}`: 1,
			`storage_operation_duration_seconds{migrated="false",operation_name="volume_mount",status="success",` +
				`volume_plugin="kubernetes.io/host-path"}`: 1,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v; all: %v", name, got[name], want, got)
			}
		}
		if got[`kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="c"}`] == 0 {
			t.Errorf("the volume of the claim has no capacity: %v", got)
		}
		w.delete("p", 0)
		w.until(time.Second, "p", gone)
		w.after(time.Minute) // the containers terminate shortly after the deletion
		got = w.series()
		if got[`kubelet_pod_worker_duration_seconds{operation_type="kill"}`] == 0 || got[`kubelet_running_pods{}`] != 0 ||
			got[`kubelet_running_containers{container_state="running"}`] != 0 {
			t.Errorf("after the deletion of the pod: %v", got)
		}
	})
}

// TestMetricsOfFailedStarts checks that the metrics count each failed start of a container, with the reason in its
// status, but not the wait for the next attempt. The first restart is immediate.
func TestMetricsOfFailedStarts(t *testing.T) {
	for call, c := range map[string]struct {
		reason string
		init   bool
		want   float64
	}{
		"PullImage":       {reason: "ErrImagePull", want: 1},
		"CreateContainer": {reason: "CreateContainerError", want: 1},
		"StartContainer":  {reason: "RunContainerError", init: true, want: 2},
	} {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.failing(func(op, _ string) error {
					if op == call {
						return errors.New("no")
					}
					return nil
				})
				p := pod("p")
				p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
				kind := "container"
				if c.init {
					p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "web:1"}}
					kind = "init_container"
				}
				w.create(p)
				w.after(500 * time.Millisecond)
				if got := w.series()[`kubelet_started_containers_errors_total{code="`+c.reason+`",container_type="`+kind+
					`"}`]; got != c.want {
					t.Errorf("counted %[2]v starts that failed with %[1]s, want %[3]v", c.reason, got, c.want)
				}
			})
		})
	}
}

// series returns the values of all metrics, for histograms the count.
func (w *world) series() map[string]float64 {
	w.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[f.GetName()+labelsOf(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func labelsOf(m *dto.Metric) string {
	var pairs []string
	for _, l := range m.GetLabel() {
		pairs = append(pairs, l.GetName()+`="`+l.GetValue()+`"`)
	}
	return "{" + strings.Join(pairs, ",") + "}"
}
