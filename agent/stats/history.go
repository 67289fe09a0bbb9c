package stats

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"monopod/agent/host"
)

// The node's history has one point per minute for an hour, 3 KB in memory.
const (
	historyStep = time.Minute
	historySize = 60
)

// Point is the node's usage in the minute before Time.
type Point struct {
	Time   time.Time `json:"time"`
	CPU    float64   `json:"cpu"`    // cores
	Memory uint64    `json:"memory"` // bytes that the kernel cannot reclaim
	Disk   int64     `json:"disk"`   // used bytes of the data folder's file system
}

type history struct {
	mu     sync.Mutex // guards points
	points []Point    // the oldest first
}

func (h *history) add(p Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.points) == historySize {
		h.points = h.points[:copy(h.points, h.points[1:])]
	}
	h.points = append(h.points, p)
}

func (h *history) all() []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Point{}, h.points...)
}

// Record records the node's history until ctx ends. It reads three files per minute, and skips a minute that cannot be
// read.
func (s *Source) Record(ctx context.Context) {
	ticker := s.cfg.Clock.NewTicker(historyStep)
	defer ticker.Stop()
	last, err := host.ReadUsage()
	at := s.cfg.Clock.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		was, before := last, err
		since := s.cfg.Clock.Since(at)
		last, err = host.ReadUsage()
		at = s.cfg.Clock.Now()
		disk, noDisk := host.Disk(s.cfg.Dir)
		if before == nil && err == nil && noDisk == nil && since > 0 && last.CPU >= was.CPU {
			s.history.add(
				Point{Time: at.UTC(), CPU: float64(last.CPU-was.CPU) / float64(since), Memory: last.WorkingSet,
					Disk: disk.Total - disk.Free})
		}
	}
}

// serveHistory serves the points of the last hour, the oldest first.
func (s *Source) serveHistory(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.history.all()) // the client may have left
}
