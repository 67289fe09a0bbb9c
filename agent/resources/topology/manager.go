package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/numa"
)

// The reasons of rejected pods (upstream's).
const (
	ReasonAffinity   = "TopologyAffinityError"
	ReasonUnexpected = "UnexpectedAdmissionError"
)

// Deps are a Manager's dependencies.
type Deps struct {
	Machine   *numa.Machine // required unless the policy is none
	Providers []Provider    // called in this order
	Clock     clock.PassiveClock
	Metrics   prometheus.Registerer
}

// Manager admits pods whose resources can be allocated.
type Manager struct {
	cfg       Config
	providers []Provider
	nodeSets  nodeSets
	clock     clock.PassiveClock
	metrics   *metrics // nil: policy none
}

type metrics struct {
	requests, errors prometheus.Counter
	took             prometheus.Histogram
}

// New returns a Manager. It returns an error if the policy does not support the machine.
func New(deps Deps, cfg Config) (*Manager, error) {
	m := &Manager{cfg: cfg, providers: deps.Providers, clock: deps.Clock}
	if cfg.Off() {
		return m, nil
	}
	if err := cfg.checkMachine(deps.Machine); err != nil {
		return nil, err
	}
	m.nodeSets = newNodeSets(deps.Machine, cfg.closest())
	m.metrics = &metrics{
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_topology_manager_admission_requests_total",
			Help: "Admission requests that required topology alignment."}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_topology_manager_admission_errors_total",
			Help: "Admission requests rejected because resources could not be aligned."}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_topology_manager_admission_duration_ms",
			Help:    "Duration of admission requests in milliseconds.",
			Buckets: prometheus.ExponentialBuckets(.05, 2, 15)}),
	}
	for _, c := range []prometheus.Collector{m.metrics.requests, m.metrics.errors, m.metrics.took} {
		if err := deps.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Admit allocates the resources of every container of the pod. On failure it returns
// the reason and releases everything. Only one goroutine may call it.
func (m *Manager) Admit(ctx context.Context, pod *corev1.Pod) *status.Failure {
	if len(m.providers) == 0 {
		return nil
	}
	var start time.Time
	if m.metrics != nil {
		start = m.clock.Now()
	}
	err := m.admit(ctx, pod)
	if m.metrics != nil {
		m.metrics.requests.Inc()
		if errors.Is(err, errAffinity) {
			m.metrics.errors.Inc()
		}
		m.metrics.took.Observe(float64(m.clock.Since(start)) / float64(time.Millisecond))
	}
	if err == nil {
		return nil
	}
	m.Release(pod.UID)
	return Refused(err)
}

// errAffinity has upstream's text, on which clients match.
var errAffinity = errors.New("Resources cannot be allocated with Topology locality") //nolint:staticcheck // upstream's

// Refused returns the status of a pod that is rejected because of an error of Allocate.
func Refused(err error) *status.Failure {
	f := &status.Failure{Reason: ReasonUnexpected,
		Message: fmt.Sprintf("Pod was rejected: Allocate failed due to %v, which is unexpected", err)}
	if r := Refusal(nil); errors.As(err, &r) {
		f.Reason, f.Message = r.Reason(), "Pod was rejected: "+err.Error()
	} else if errors.Is(err, errAffinity) {
		f.Reason, f.Message = ReasonAffinity, "Pod was rejected: "+err.Error()
	}
	return f
}

// admit allocates the resources of all containers, with a common hint if the scope is the pod.
func (m *Manager) admit(ctx context.Context, pod *corev1.Pod) error {
	whole := Hint{Preferred: true}
	if m.cfg.Scope == ScopePod && !m.cfg.Off() {
		hint, ok := m.decide(func(p Provider) map[string][]Hint { return p.PodHints(pod) })
		if !ok {
			return errAffinity
		}
		whole = hint
	}
	for _, c := range spec.Containers(&pod.Spec) {
		hint := whole
		if m.cfg.Scope != ScopePod && !m.cfg.Off() {
			found, ok := m.decide(func(p Provider) map[string][]Hint { return p.Hints(pod, c) })
			if !ok {
				return errAffinity
			}
			hint = found
		}
		for _, p := range m.providers {
			if err := p.Allocate(ctx, pod, c, hint); err != nil {
				return err
			}
		}
	}
	return nil
}

// decide merges the providers' hints; ok means that the policy accepts the result.
func (m *Manager) decide(ask func(Provider) map[string][]Hint) (hint Hint, ok bool) {
	answers := make([]map[string][]Hint, 0, len(m.providers))
	for _, p := range m.providers {
		answers = append(answers, ask(p))
	}
	return m.nodeSets.decide(m.cfg.Policy, collect(answers))
}

// decide merges the hints; ok means that the policy accepts the result.
func (p nodeSets) decide(policy string, lists [][]Hint) (hint Hint, ok bool) {
	switch policy {
	case SingleNode:
		hint = p.merge(singleNodeOnly(lists))
		if hint.Nodes == p.all {
			hint.Nodes = 0
		}
		return hint, hint.Preferred
	case Restricted:
		hint = p.merge(lists)
		return hint, hint.Preferred
	}
	return p.merge(lists), true
}

// Allotment merges the allotments of all providers for a container.
func (m *Manager) Allotment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (spec.Allotment, error) {
	var sum spec.Allotment
	for _, p := range m.providers {
		a, err := p.Allotment(ctx, pod, c)
		if err != nil {
			return sum, err
		}
		sum.Add(a)
	}
	return sum, nil
}

// Recover passes the existing containers to the providers.
func (m *Manager) Recover(made []Container) {
	for _, p := range m.providers {
		p.Recover(made)
	}
}

// Release releases the pod's resources.
func (m *Manager) Release(uid types.UID) {
	for _, p := range m.providers {
		p.Release(uid)
	}
}

// Retain releases the resources of pods that are not alive.
func (m *Manager) Retain(alive func(types.UID) bool) {
	for _, p := range m.providers {
		p.Retain(alive)
	}
}
