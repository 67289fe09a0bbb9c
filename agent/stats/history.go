package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host"
)

// The history has a point of the node for each minute of an hour, and a point of the node and of each pod for each ten
// minutes of a day. A point has 64 bytes: a day of 110 pods takes 1 MB.
const (
	historyStep = time.Minute
	hour        = 60  // number of points
	longSteps   = 10  // in a point of the day
	day         = 144 // number of points
	maxSeries   = 200 // pods; beyond, those that ended first are forgotten
)

// Point is the usage in the time before Time, since the point before. Pods have CPU and memory only.
type Point struct {
	Time     time.Time `json:"time"`
	CPU      float64   `json:"cpu"`                // cores
	Memory   uint64    `json:"memory"`             // bytes that the kernel cannot reclaim
	Disk     int64     `json:"disk,omitempty"`     // used bytes of the data folder's file system
	Received float64   `json:"received,omitempty"` // bytes per second, of the machine's network interfaces
	Sent     float64   `json:"sent,omitempty"`
}

// count is what a point is made of; the sums count since the start of the machine or pod.
type count struct {
	at             time.Time
	cpu            uint64 // ns, a sum
	received, sent uint64 // bytes, sums
	memory         uint64
	disk           int64
}

// points are the newest points, the oldest first, and the count at the last one.
type points struct {
	last count
	list []Point
}

// add adds the point between the last count and this one, unless a sum was reset.
func (p *points) add(now count, most int) {
	was := p.last
	p.last = now
	window := now.at.Sub(was.at)
	if was.at.IsZero() || window <= 0 || now.cpu < was.cpu || now.received < was.received || now.sent < was.sent {
		return
	}
	if len(p.list) == most {
		p.list = p.list[:copy(p.list, p.list[1:])]
	}
	p.list = append(p.list, Point{Time: now.at.UTC(), CPU: float64(now.cpu-was.cpu) / float64(window), Memory: now.memory,
		Disk: now.disk, Received: float64(now.received-was.received) / window.Seconds(),
		Sent: float64(now.sent-was.sent) / window.Seconds()})
}

// history contains the points of the node and its pods.
type history struct {
	mu        sync.Mutex // guards the fields
	hour, day points     // of the node
	pods      map[types.UID]*podHistory
}

// podHistory contains the points of a pod, which may have ended.
type podHistory struct {
	points
	namespace string
}

// node returns the points of the node.
func (h *history) node() []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	older := h.day.list
	if len(h.hour.list) > 0 {
		first := h.hour.list[0].Time
		n, _ := slices.BinarySearchFunc(older, first, func(p Point, at time.Time) int { return p.Time.Compare(at) })
		older = older[:n]
	}
	return append(append([]Point{}, older...), h.hour.list...)
}

// sum returns the sums of the points of the pods that match.
func (h *history) sum(match func(uid types.UID, namespace string) bool) []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := map[time.Time]Point{} // pods are counted at the same times
	for uid, pod := range h.pods {
		if !match(uid, pod.namespace) {
			continue
		}
		for _, p := range pod.list {
			sum := at[p.Time]
			at[p.Time] = Point{Time: p.Time, CPU: sum.CPU + p.CPU, Memory: sum.Memory + p.Memory}
		}
	}
	return append([]Point{}, slices.SortedFunc(maps.Values(at), func(a, b Point) int { return a.Time.Compare(b.Time) })...)
}

// addPod adds a point of a pod.
func (h *history) addPod(p Pod, now count) {
	pod := h.pods[p.UID]
	if pod == nil {
		if h.pods == nil {
			h.pods = map[types.UID]*podHistory{}
		}
		if len(h.pods) == maxSeries {
			first := slices.MinFunc(slices.Collect(maps.Keys(h.pods)),
				func(a, b types.UID) int { return h.pods[a].last.at.Compare(h.pods[b].last.at) })
			delete(h.pods, first)
		}
		pod = &podHistory{namespace: p.Namespace}
		h.pods[p.UID] = pod
	}
	pod.add(now, day)
}

// Record records the history until ctx ends. Each minute it reads four files, and looks up which links are devices; every
// ten minutes it reads those of the pods' cgroups. What cannot be read has no point.
func (s *Source) Record(ctx context.Context) {
	ticker := s.cfg.Clock.NewTicker(historyStep)
	defer ticker.Stop()
	s.record(ctx, 0)
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			s.record(ctx, n)
		}
	}
}

func (s *Source) record(ctx context.Context, n int) {
	now, err := s.countNode()
	long := n%longSteps == 0
	var list []Pod
	var pods map[types.UID]count
	if long {
		list = s.cfg.Pods()
		pods = s.countPods(ctx, list)
	}
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.hour.add(now, hour)
		if long {
			h.day.add(now, day)
		}
	}
	for _, p := range list {
		if c, ok := pods[p.UID]; ok {
			h.addPod(p, c)
		}
	}
	maps.DeleteFunc(h.pods, func(_ types.UID, p *podHistory) bool {
		return s.cfg.Clock.Since(p.last.at) > day*longSteps*historyStep
	})
}

func (s *Source) countNode() (count, error) {
	usage, err := host.ReadUsage()
	at := s.cfg.Clock.Now()
	disk, diskErr := host.Disk(s.cfg.Dir)
	received, sent := host.Traffic()
	return count{at: at, cpu: usage.CPU, memory: usage.WorkingSet, disk: disk.Total - disk.Free, received: received,
		sent: sent}, cmp.Or(err, diskErr)
}

// countPods counts the pods' usage: by their cgroups where there are any, otherwise as the runtime says.
func (s *Source) countPods(ctx context.Context, pods []Pod) map[types.UID]count {
	out, at := map[types.UID]count{}, s.cfg.Clock.Now()
	if s.cfg.Cgroups == nil {
		if r, err := s.read(ctx); err == nil {
			for uid, u := range r.cgroups {
				out[uid] = count{at: at, cpu: u.CPU, memory: u.WorkingSet}
			}
		}
		return out
	}
	for _, p := range pods {
		if u, err := s.cfg.Cgroups.Usage(p.Pod); err == nil { // it fails when the pod is just ending
			out[p.UID] = count{at: at, cpu: u.CPU, memory: u.WorkingSet}
		}
	}
	return out
}

// serveHistory serves the points of the last day, the oldest first: those of the node, or the sums of the pods with the
// UIDs ?pod=, or of the pods of ?namespace=.
func (s *Source) serveHistory(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var list []Point
	switch {
	case q.Has("pod"):
		list = s.history.sum(func(uid types.UID, _ string) bool { return slices.Contains(q["pod"], string(uid)) })
	case q.Has("namespace"):
		list = s.history.sum(func(_ types.UID, namespace string) bool { return namespace == q.Get("namespace") })
	default:
		list = s.history.node()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the client may have left
}
