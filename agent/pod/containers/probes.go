package containers

import (
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/probe"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// Probes runs the probes of one pod's containers.
type Probes struct {
	pod      *identity.Pod
	observer *observe.Observer
	ending   func() bool
	changed  chan struct{} // contains a token if a result has changed; see Stopper
	manager  *probe.Manager
}

// NewProbes returns the probes of a pod. changed is called when a result changes. While ending returns true, failing
// probes cause no events.
func NewProbes(node *Node, pod *identity.Pod, object *corev1.Pod, o *observe.Observer, ending func() bool,
	changed func()) *Probes {
	p := &Probes{pod: pod, observer: o, ending: ending, changed: make(chan struct{}, 1)}
	p.manager = &probe.Manager{Caller: node.Caller, Clock: node.Clock, Guard: node.Guard, Metrics: node.Probes,
		Pod: object, Events: probe.Events{
			Changed: func(string) {
				select {
				case p.changed <- struct{}{}:
				default:
				}
				changed()
			},
			Failed: p.failed,
			Warned: func(id string, kind probe.Kind, warning string) {
				p.event(id, "ProbeWarning", "%s probe warning: %s", kind, warning)
			},
		}}
	return p
}

// failed writes an event about a failing probe.
func (p *Probes) failed(id string, kind probe.Kind, err error) {
	what := "failed"
	if unknown := (*probe.UnknownError)(nil); errors.As(err, &unknown) {
		what = "errored and resulted in unknown state"
	}
	p.event(id, "Unhealthy", "%s probe %s: %v", kind, what, err)
}

func (p *Probes) event(id, reason, format string, args ...any) {
	seen := p.observer.Snapshot()
	if p.ending() || seen == nil {
		return
	}
	if c := seen.ByID(id); c != nil {
		p.pod.Event(c.Name, corev1.EventTypeWarning, reason, format, args...)
	}
}

// Watch starts a container's probes. An adopted container keeps the readiness in its stored status until its first
// probe.
func (p *Probes) Watch(pod *corev1.Pod, c *status.Container, adopted bool) {
	s := spec.Find(pod, c.Name)
	if s == nil || s.StartupProbe == nil && s.LivenessProbe == nil && s.ReadinessProbe == nil {
		return
	}
	probed := probe.Container{Spec: s, Adopted: adopted,
		Target: probe.Target{ContainerID: c.ID, Host: p.observer.Facts(pod).Address(), Ports: s.Ports}}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, old := range list {
			if old.Name == c.Name && old.ContainerID == "containerd://"+c.ID {
				probed.Ready, probed.Started = old.Ready, old.Started != nil && *old.Started
			}
		}
	}
	p.manager.Add(p.pod.Life, probed)
}

// Keep stops the probes of containers that no longer run.
func (p *Probes) Keep() {
	p.manager.Keep(func(id string) bool {
		c := p.observer.Observed().ByID(id)
		return c != nil && c.State == status.Running
	})
}

// Ready reports whether a container's readiness probe succeeds.
func (p *Probes) Ready(id string) bool { return p.manager.Ready(id) }

// Started reports whether a container's startup probe has succeeded.
func (p *Probes) Started(id string) bool { return p.manager.Started(id) }

// Failed returns the liveness or startup probe because of which the container must restart.
func (p *Probes) Failed(id string) (name string, failed bool) {
	kind, failed := p.manager.Failed(id)
	return strings.ToLower(kind.String()), failed
}

// Grace returns the grace period of the failed probe, otherwise grace.
func (p *Probes) Grace(pod *corev1.Pod, c *status.Container, grace time.Duration) time.Duration {
	s := spec.Find(pod, c.Name)
	kind, failed := p.manager.Failed(c.ID)
	if s == nil || !failed {
		return grace
	}
	by := s.LivenessProbe
	if kind == probe.Startup {
		by = s.StartupProbe
	}
	if by != nil && by.TerminationGracePeriodSeconds != nil {
		return time.Duration(*by.TerminationGracePeriodSeconds) * time.Second
	}
	return grace
}

// Stop stops all probes and waits for them.
func (p *Probes) Stop() { p.manager.Stop() }
