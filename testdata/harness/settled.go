package harness

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// settleTime is how long a server may take to have nothing to do, once nobody asks
// anything of it.
const settleTime = 20 * time.Second

// Settled waits until the server has nothing to reconcile: no key waits, none is
// woken by its own results again and again, and no reconcile or step of a pod comes
// between two looks.
func (s *Server) Settled() error {
	var now, before work
	if Eventually(settleTime, func() bool {
		now, before = s.work(), now
		return now.err == nil && now.left == "" && now.done == before.done
	}) {
		return nil
	}
	if now.err != nil {
		return now.err
	}
	return fmt.Errorf("monopod does not settle: %v more reconciles since the last look; %s", now.done-before.done, now.left)
}

// work is what a server has done, and has to do.
type work struct {
	done float64
	left string
	err  error
}

func (s *Server) work() (w work) {
	code, text := s.Get("/metrics")
	if code != http.StatusOK {
		return work{err: fmt.Errorf("/metrics: %d %s", code, text)}
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		family, _, _ := strings.Cut(name, "{")
		n, _ := strconv.ParseFloat(value, 64) // comments do not matter
		switch family {
		case "workqueue_work_duration_seconds_count", "kubelet_pod_worker_duration_seconds_count":
			w.done += n
		case "workqueue_depth", "monopod_workqueue_restless_keys":
			if n > 0 {
				w.left += line
			}
		}
	}
	if w.done == 0 {
		w.err = fmt.Errorf("/metrics does not tell of reconciles:\n%s", text)
	}
	return w
}
