package harness

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// settleTime is the maximum time until a server without requests is at rest.
	settleTime = 20 * time.Second
	// quiet is how long no reconcile may end.
	quiet = 200 * time.Millisecond
)

// Settled waits until the server is at rest: its queues are empty, no reconcile runs, and for 200 ms no reconcile and
// no sync of a pod ends. It fails after a timeout, and if a part has panicked.
func (s *Server) Settled() error {
	var now, before work
	var since time.Time
	if Eventually(settleTime, func() bool {
		if !since.IsZero() {
			time.Sleep(quiet / 2) // each check makes the server render all its metrics
		}
		now, before = s.work(), now
		if since.IsZero() || now.err != nil || now.left != "" || now.done != before.done {
			since = time.Now()
			return false
		}
		return time.Since(since) >= quiet
	}) {
		return nil
	}
	if now.err != nil {
		return now.err
	}
	return fmt.Errorf("monopod does not settle: %v more reconciles since the last check; %s", now.done-before.done,
		now.left)
}

// work is the number of completed reconciles and the metrics of pending ones.
type work struct {
	done float64
	left string
	err  error
}

func (s *Server) work() work {
	code, text := s.Get("/metrics")
	if code != http.StatusOK {
		return work{err: fmt.Errorf("/metrics: %d %s", code, text)}
	}
	return workIn(text)
}

// workIn parses work from the metrics.
func workIn(metrics string) (w work) {
	found := false
	for line := range strings.Lines(metrics) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		family, _, _ := strings.Cut(name, "{")
		n, _ := strconv.ParseFloat(value, 64) // 0 for comments
		switch family {
		case "workqueue_work_duration_seconds_count", "kubelet_pod_worker_duration_seconds_count":
			w.done += n
		case "workqueue_depth", "workqueue_unfinished_work_seconds":
			found = true
			if n > 0 {
				w.left += line
			}
		case "monopod_panics_total":
			if n > 0 {
				w.left += line
			}
		}
	}
	if !found {
		w.err = fmt.Errorf("/metrics has no queues:\n%s", metrics)
	}
	return w
}
