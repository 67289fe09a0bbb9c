package fake

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// ListContainerStats calls Config.Stats for each running container. Without it, only containers that run the commands
// load or alloc have statistics.
func (s *containerService) ListContainerStats(ctx context.Context,
	filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	if err := s.gate.Begin(ctx, "ListContainerStats", filter.GetId()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	measured := s.stats != nil
	var out []*cri.ContainerStats
	for _, c := range s.containers {
		usage := c.meter.read(s.gate.Clock.Now())
		measured = measured || usage != nil
		if c.state != cri.ContainerState_CONTAINER_RUNNING || !strings.HasPrefix(c.id, filter.GetId()) ||
			!hasLabels(c.config.Labels, filter.GetLabelSelector()) {
			continue
		}
		a := &cri.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels,
			Annotations: c.config.Annotations}
		if s.stats != nil {
			usage = s.stats(a)
		}
		if usage != nil {
			usage.Attributes = a
			out = append(out, usage)
		}
	}
	if !measured {
		return nil, ErrNoStats
	}
	slices.SortFunc(out, func(a, b *cri.ContainerStats) int { return strings.Compare(a.Attributes.Id, b.Attributes.Id) })
	return out, nil
}

// meter counts the CPU and memory that a container's processes simulate.
type meter struct {
	mu     sync.Mutex // guards the fields below
	used   bool       // add was called
	cores  int64      // in use, nanocores
	memory int64      // in use, bytes
	sum    uint64     // CPU time up to since, nanoseconds
	since  time.Time
}

// add changes the usage until release is called.
func (m *meter) add(c clock.PassiveClock, nanocores, bytes int64) (release func()) {
	change := func(sign int64) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.advance(c.Now())
		m.used, m.cores, m.memory = true, m.cores+sign*nanocores, m.memory+sign*bytes
	}
	change(1)
	return func() { change(-1) }
}

// advance adds the CPU time since the last call. The caller holds mu.
func (m *meter) advance(now time.Time) {
	if !m.since.IsZero() {
		m.sum += uint64(float64(m.cores) * now.Sub(m.since).Seconds())
	}
	m.since = now
}

// read returns the usage; nil: add was never called.
func (m *meter) read(now time.Time) *cri.ContainerStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.used {
		return nil
	}
	m.advance(now)
	at, memory := now.UnixNano(), &cri.UInt64Value{Value: uint64(m.memory)}
	return &cri.ContainerStats{
		Cpu: &cri.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: &cri.UInt64Value{Value: m.sum},
			UsageNanoCores: &cri.UInt64Value{Value: uint64(m.cores)}},
		Memory: &cri.MemoryUsage{Timestamp: at, WorkingSetBytes: memory, UsageBytes: memory, RssBytes: memory},
	}
}
