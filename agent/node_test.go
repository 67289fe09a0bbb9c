package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"monopod/apiserver/kit/guard"
)

// TestHealthReportsPanicsNextToTheAgent checks that goroutines of the node outside the agent share its health check.
func TestHealthReportsPanicsNextToTheAgent(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewRegistry()
	n := NewNode(NodeDeps{Log: zap.NewNop(), Metrics: metrics}, NodeConfig{})
	if err := n.Health(t.Context()); err != nil {
		t.Errorf("health before the panic: %v", err)
	}
	var running sync.WaitGroup
	n.guard.Go(&running, "kernel log", func() { panic("injected") })
	running.Wait()
	if err := n.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "kernel log: panic: injected") {
		t.Errorf("health after a panic: %v", err)
	}
	panics, err := guard.Panics(metrics)
	if err != nil {
		t.Fatal(err)
	}
	var count dto.Metric
	if err := panics.WithLabelValues("kernel log").Write(&count); err != nil || count.Counter.GetValue() != 1 {
		t.Errorf("counted %v panics, want 1; error %v", count.Counter.GetValue(), err)
	}
}

// TestNoRuntime checks that, without a runtime, Run only waits for ctx, and Find returns why there are no streams.
func TestNoRuntime(t *testing.T) {
	t.Parallel()
	n := NewNode(NodeDeps{Log: zap.NewNop(), Metrics: prometheus.NewRegistry()},
		NodeConfig{Settings: Settings{Runtime: NoRuntime, NodeName: "n"}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	if _, err := n.Find("n"); err == nil || err.Error() != "this server runs without a node (--runtime=none)" {
		t.Errorf("streams: %v", err)
	}
	for _, ask := range []func(context.Context) error{n.Health, n.PLEG, n.Network, n.Ingress, n.Gateway} {
		if err := ask(ctx); err != nil {
			t.Errorf("health: %v", err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestImagesWaitForNode sends a request for images that the starting node answers once it has started, or 10 s later.
func TestImagesWaitForNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := NewNode(NodeDeps{Log: zap.NewNop(), Metrics: prometheus.NewRegistry()}, NodeConfig{})
		ask := func() (code int, took time.Duration) {
			began, w := time.Now(), httptest.NewRecorder()
			n.Images().ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/", nil))
			return w.Code, time.Since(began)
		}
		if code, took := ask(); code != http.StatusServiceUnavailable || took != startWait {
			t.Errorf("%d after %v without a node", code, took)
		}
		time.AfterFunc(3*time.Second, func() { close(n.started) })
		if _, took := ask(); took != 3*time.Second {
			t.Errorf("an answer after %v, want 3 s", took)
		}
	})
}
