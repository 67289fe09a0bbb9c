package relist_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/agent/runtime/relist"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	metrics := prometheus.NewRegistry()
	h, err := relist.NewHealth(clk, metrics)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, healthy bool) {
		t.Helper()
		if err := h.Check(); (err == nil) != healthy {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("at the start", true)
	clk.Step(4 * time.Minute)
	check("no runtime for 4m", false)
	h.Streaming(true)
	clk.Step(time.Hour)
	check("streaming events", true)
	h.Streaming(false)
	clk.Step(2 * time.Minute)
	check("2m without streaming", true)
	done := h.Relist()
	clk.Step(2 * time.Second)
	done(nil)
	clk.Step(2 * time.Minute)
	check("2m after a relist", true)
	h.Relist()(errors.New("no"))
	clk.Step(2 * time.Minute)
	check("failed relist", false)
	h.Streaming(true)
	check("streaming events again", true)
	h.Relist()
	clk.Step(4 * time.Minute)
	check("relist takes 4m", false)
	families, err := metrics.Gather()
	if err != nil || len(families) != 3 {
		t.Errorf("metrics %v, error %v", families, err)
	}
	for _, f := range families {
		if f.GetName() == "kubelet_pleg_relist_duration_seconds" && f.GetMetric()[0].GetHistogram().GetSampleSum() != 2 {
			t.Errorf("duration of relists: %v", f)
		}
	}
}
