package fair

import "time"

// Usage is a histogram of a level's load over time, counted in nanoseconds as in upstream's metrics.
type Usage struct {
	Buckets map[float64]uint64 // nanoseconds with at most this load, without those above all of Loads
	Total   uint64             // nanoseconds
	Sum     float64            // of the load in each nanosecond
}

// load accumulates the time that a level has spent at each load.
type load struct {
	bounds []float64 // ascending
	spent  []uint64  // by bound, and above all of them
	sum    float64
	is     float64
	since  time.Time // zero: not yet
}

// set begins a load.
func (l *load) set(now time.Time, is float64) {
	if l.since.IsZero() {
		l.spent = make([]uint64, len(l.bounds)+1)
	} else if d := now.Sub(l.since); d > 0 {
		i := 0
		for i < len(l.bounds) && l.is > l.bounds[i] {
			i++
		}
		l.spent[i] += uint64(d)
		l.sum += float64(d) * l.is
	}
	l.since, l.is = now, is
}

func (l *load) usage(now time.Time) Usage {
	l.set(now, l.is)
	u := Usage{Buckets: make(map[float64]uint64, len(l.bounds)), Sum: l.sum}
	for i, n := range l.spent {
		u.Total += n
		if i < len(l.bounds) {
			u.Buckets[l.bounds[i]] = u.Total
		}
	}
	return u
}

// Upstream's bounds of utilization, and of demand, of which more than the share is possible.
var (
	utilizations = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
	demands      = []float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6}
)

// measure records the level's utilization and demand after a change. The caller holds the pool's mutex.
func (l *Level) measure() {
	now := l.pool.clock.Now()
	share := float64(max(l.cfg.Nominal, 1))
	l.utilization.set(now, float64(l.used)/float64(max(l.cfg.Max, 1)))
	l.demand.set(now, float64(l.used+l.queued)/share)
}

// Usage returns the histograms of the share of its limit that the level has used, and of the seats that it could have
// used relative to its nominal number.
func (l *Level) Usage() (utilization, demand Usage) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	now := l.pool.clock.Now()
	return l.utilization.usage(now), l.demand.usage(now)
}
