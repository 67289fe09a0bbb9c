package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
)

// Kind is the type of a probe.
type Kind int

// The types of probes.
const (
	Startup Kind = iota
	Liveness
	Readiness
)

func (k Kind) String() string { return [...]string{"Startup", "Liveness", "Readiness"}[k] }

// Container is a running container with probes.
type Container struct {
	Spec *corev1.Container
	Target
	// Adopted means that the container ran before this agent started. Its first probes are spread over their period;
	// until then Ready and Started, the earlier results, count.
	Adopted        bool
	Ready, Started bool
}

// Events are called for changes, from any goroutine. They must not block.
type Events struct {
	// Changed is called when a result of the container has changed.
	Changed func(id string)
	// Failed is called for each failed probe, also below the threshold. An UnknownError does not count.
	Failed func(id string, kind Kind, err error)
	// Warned is called for each probe that succeeds with a warning.
	Warned func(id string, kind Kind, warning string)
}

// Manager runs the probes of one pod's containers. It is safe for concurrent use.
type Manager struct {
	Caller Caller
	Clock  clock.Clock
	Events Events
	// Metrics count the probes as those of Pod; nil: not counted.
	Metrics *Metrics
	Pod     *corev1.Pod
	Guard   *guard.Guard // nil: panics are recovered and not reported

	wg         sync.WaitGroup
	mu         sync.Mutex         // guards containers
	containers map[string]*probed // by container ID
}

type probed struct {
	started, ready bool
	failed         *Kind // the startup or liveness probe that failed
	cancel         context.CancelFunc
}

// Add starts the probes of a container, unless they already run.
func (m *Manager) Add(ctx context.Context, c Container) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.containers[c.ContainerID] != nil {
		return
	}
	if m.containers == nil {
		m.containers = map[string]*probed{}
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &probed{cancel: cancel}
	p.started = c.Spec.StartupProbe == nil || c.Adopted && c.Started
	p.ready = c.Spec.ReadinessProbe == nil || c.Adopted && c.Ready
	m.containers[c.ContainerID] = p
	if c.Spec.StartupProbe != nil && !p.started {
		m.spawn(ctx, func() { m.startup(ctx, c, p) })
		return
	}
	m.startOthers(ctx, c, p)
}

// spawn runs a probe on a new goroutine, and restarts it after a panic.
func (m *Manager) spawn(ctx context.Context, probe func()) {
	m.Guard.Go(&m.wg, "probe", func() { m.Guard.Keep(ctx, m.Clock, "probe", probe) })
}

// startup runs the startup probe, then the others.
func (m *Manager) startup(ctx context.Context, c Container, p *probed) {
	m.loop(ctx, c, p, Startup, c.Spec.StartupProbe)
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.started && ctx.Err() == nil {
		m.startOthers(ctx, c, p)
	}
}

// startOthers starts the liveness and readiness probes, which wait for the startup probe.
func (m *Manager) startOthers(ctx context.Context, c Container, p *probed) {
	if probe := c.Spec.LivenessProbe; probe != nil {
		m.spawn(ctx, func() { m.loop(ctx, c, p, Liveness, probe) })
	}
	if probe := c.Spec.ReadinessProbe; probe != nil {
		m.spawn(ctx, func() { m.loop(ctx, c, p, Readiness, probe) })
	}
}

// loop runs one probe until its result is final or ctx ends.
func (m *Manager) loop(ctx context.Context, c Container, p *probed, kind Kind, probe *corev1.Probe) {
	period := time.Duration(max(probe.PeriodSeconds, 1)) * time.Second
	delay := time.Duration(probe.InitialDelaySeconds) * time.Second
	if c.Adopted {
		delay = rand.N(period)
	}
	streak := streak{}
	for m.sleep(ctx, delay) {
		timeout := time.Duration(max(probe.TimeoutSeconds, 1)) * time.Second
		from := m.Clock.Now()
		warning, err := m.Caller.Do(ctx, &probe.ProbeHandler, c.Target, timeout)
		if ctx.Err() != nil {
			return
		}
		m.Metrics.observe(m.Pod, c.Spec.Name, kind, m.Clock.Since(from), err)
		if err != nil && m.Events.Failed != nil {
			m.Events.Failed(c.ContainerID, kind, err)
		}
		if warning != "" && m.Events.Warned != nil {
			m.Events.Warned(c.ContainerID, kind, warning)
		}
		delay = period
		if unknown := (*UnknownError)(nil); errors.As(err, &unknown) {
			continue
		}
		if verdict, ok := streak.add(err == nil, probe); ok && m.record(c.ContainerID, p, kind, verdict) {
			return
		}
	}
}

func (m *Manager) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	return backoff.Sleep(ctx, m.Clock, d)
}

// streak counts equal consecutive results.
type streak struct {
	ok bool
	n  int32
}

// add returns the verdict when a streak reaches its threshold.
func (s *streak) add(ok bool, probe *corev1.Probe) (verdict, reached bool) {
	if s.ok != ok {
		s.ok, s.n = ok, 0
	}
	s.n++
	threshold := max(probe.FailureThreshold, 1)
	if ok {
		threshold = max(probe.SuccessThreshold, 1)
	}
	return ok, s.n >= threshold
}

// record records a verdict. It reports whether the probe has ended with it.
func (m *Manager) record(id string, p *probed, kind Kind, ok bool) (last bool) {
	m.mu.Lock()
	changed := false
	switch {
	case kind == Readiness:
		changed, p.ready = p.ready != ok, ok
	case !ok:
		changed, last, p.failed = true, true, &kind
	case kind == Startup:
		changed, last, p.started = true, true, true
	}
	m.mu.Unlock()
	if changed && m.Events.Changed != nil {
		m.Events.Changed(id)
	}
	return last
}

// Ready reports whether a container is ready; one without probes is.
func (m *Manager) Ready(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.containers[id]
	return p == nil || p.ready && p.started
}

// Started reports whether a container's startup probe, if any, succeeded.
func (m *Manager) Started(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.containers[id]
	return p == nil || p.started
}

// Failed returns the liveness or startup probe because of which the container must restart.
func (m *Manager) Failed(id string) (Kind, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.containers[id]; p != nil && p.failed != nil {
		return *p.failed, true
	}
	return 0, false
}

// Keep stops the probes of all containers for which keep returns false.
func (m *Manager) Keep(keep func(id string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, p := range m.containers {
		if !keep(id) {
			p.cancel()
			delete(m.containers, id)
		}
	}
}

// Stop stops all probes and waits for them.
func (m *Manager) Stop() {
	m.Keep(func(string) bool { return false })
	m.wg.Wait()
}
