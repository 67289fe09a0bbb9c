package drain_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monopod/agent/host/checkpoint"
	"monopod/agent/node/shutdown/drain"
)

// start returns a new Record with the file, as in a new process. shown returns its metrics.
func start(t *testing.T, file string) (r *drain.Record, shown func() string) {
	t.Helper()
	reg := prometheus.NewRegistry()
	r, err := drain.NewRecord(reg, checkpoint.File(file))
	if err != nil {
		t.Fatal(err)
	}
	return r, func() string {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var text string
		for _, f := range families { // by name
			text += fmt.Sprintf("%s %.0f ", f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
		return text
	}
}

func TestLastShutdownIsRecorded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	now := time.Unix(1_800_000_000, 0)
	want := func(shown func() string, start, end int) {
		t.Helper()
		if got, want := shown(),
			fmt.Sprintf("kubelet_graceful_shutdown_end_time_seconds %d kubelet_graceful_shutdown_start_time_seconds %d ", end,
				start); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r, shown := start(t, file)
	must(r.Load())
	want(shown, 0, 0)
	must(r.Begin(now))
	must(r.End(now.Add(5 * time.Second)))
	want(shown, 1_800_000_000, 1_800_000_005)

	r, shown = start(t, file)
	must(r.Load())
	want(shown, 1_800_000_000, 1_800_000_005)
	must(r.Begin(now.Add(time.Minute)))
	want(shown, 1_800_000_060, 0)

	r, shown = start(t, file) // as after an interrupted shutdown
	must(r.Load())
	want(shown, 1_800_000_060, 0)
	must(os.WriteFile(file, []byte("{"), 0o600))
	r, shown = start(t, file)
	if err := r.Load(); err == nil || !strings.Contains(err.Error(), file+".damaged") {
		t.Errorf("error for a damaged file: %v", err)
	}
	want(shown, 0, 0)
	r, _ = start(t, file)
	must(r.Load()) // Load returns the damage only once
}
