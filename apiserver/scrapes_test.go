package apiserver_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"monopod/apiserver"
)

// blocked is a collector that blocks until end is closed; it signals on begun.
type blocked struct{ begun, end chan struct{} }

func (blocked) Describe(chan<- *prometheus.Desc) {}

func (b blocked) Collect(chan<- prometheus.Metric) {
	b.begun <- struct{}{}
	<-b.end
}

// The server computes the metrics for each request, so it limits the number of concurrent requests.
func TestConcurrentScrapes(t *testing.T) {
	t.Parallel()
	b := blocked{make(chan struct{}), make(chan struct{})}
	reg := prometheus.NewRegistry()
	reg.MustRegister(b)
	a := serveWith(t, func(c *apiserver.Config) { c.Metrics = reg })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if resp := a.do("GET", "/metrics", ""); resp.StatusCode != http.StatusOK {
				t.Errorf("got %s", resp.Status)
			}
		})
	}
	for range 4 {
		<-b.begun
	}
	if resp := a.do("GET", "/metrics", ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the fifth request got %s", resp.Status)
	}
	close(b.end)
	wg.Wait()
}
