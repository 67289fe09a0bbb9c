package state_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/store/etcd/etcdtest"
	"monopod/store/state"
	"monopod/store/storetest"
)

// The metrics count the stored objects, in a file and in etcd.
func TestStorageMetrics(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"file": "", "etcd": etcdtest.Start(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := state.Open(t.Context(), state.Place{DataDir: t.TempDir(), URL: url},
				state.Config{Config: storetest.Config()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			reg := prometheus.NewPedanticRegistry()
			reg.MustRegister(
				s.Collector([]schema.GroupResource{{Resource: "configmaps"}, {Group: "coordination.k8s.io", Resource: "leases"}}))
			storetest.Put(t, s, key("a"), "1")
			storetest.Put(t, s, key("b"), "1")
			got := gather(t, reg)
			if got["apiserver_storage_size_bytes storage_cluster_id=etcd-0"] < 4096 {
				t.Errorf("size: %v", got)
			}
			delete(got, "apiserver_storage_size_bytes storage_cluster_id=etcd-0")
			want := map[string]float64{
				"apiserver_resource_objects group= resource=configmaps":                2,
				"apiserver_resource_objects group=coordination.k8s.io resource=leases": 0,
				"apiserver_storage_objects resource=configmaps":                        2,
				"apiserver_storage_objects resource=leases.coordination.k8s.io":        0,
			}
			for k, v := range want {
				if n, ok := got[k]; !ok || n != v {
					t.Errorf("%s: got %v, want %v", k, got, v)
				}
			}
			if len(got) != len(want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

// gather returns each metric's value by its name and labels.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			id := []string{f.GetName()}
			for _, l := range m.GetLabel() {
				id = append(id, l.GetName()+"="+l.GetValue())
			}
			values[strings.Join(id, " ")] = m.GetGauge().GetValue()
		}
	}
	return values
}
