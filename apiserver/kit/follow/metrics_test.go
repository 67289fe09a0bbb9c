package follow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestMetricsUnderUpstreamNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m, err := NewMetrics(reg)
		if err != nil {
			t.Fatal(err)
		}
		d := deps(t, &feed{})
		d.Metrics = m
		start(t, New(d, Config[int]{Name: "q", Start: []int{1, 2},
			Reconcile: func(context.Context, int) (time.Duration, error) { time.Sleep(time.Minute); return 0, nil }}))
		time.Sleep(10 * time.Second)
		got := gather(t, reg)
		for name, want := range map[string]float64{
			"workqueue_depth":                             1,
			"workqueue_adds_total":                        2,
			"workqueue_retries_total":                     0,
			"workqueue_unfinished_work_seconds":           10,
			"workqueue_longest_running_processor_seconds": 10,
			"workqueue_queue_duration_seconds":            1,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s = %v (%v), want %v", name, v, ok, want)
			}
		}
		time.Sleep(2 * time.Minute)
		if v := gather(t, reg)["workqueue_work_duration_seconds"]; v != 2 {
			t.Errorf("workqueue_work_duration_seconds counted %v, want 2", v)
		}
	})
}

// gather returns values by name, and counts of histograms.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				out[f.GetName()] = m.Counter.GetValue()
			case dto.MetricType_GAUGE:
				out[f.GetName()] = m.Gauge.GetValue()
			case dto.MetricType_HISTOGRAM:
				out[f.GetName()] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return out
}
