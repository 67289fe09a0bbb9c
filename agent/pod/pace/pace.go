// Package pace decides when a pod is synced again, and records why its containers do not start until then.
package pace

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
	"monopod/apiserver/kit/guard"
)

// Blocked is an error: why a container does not start now, and when to retry. With a zero Retry, another event wakes
// the worker.
type Blocked struct {
	status.Waiting
	Retry time.Duration
}

func (b *Blocked) Error() string { return b.Reason + ": " + b.Message }

// Config is the pause between attempts to create a container, after an invalid config or an error of the runtime.
const Config = 10 * time.Second

// maxUndecided is the number of failed steps in a row after which a name that is still in use counts as an error.
const maxUndecided = 5

// Pace is the pace of one pod. The zero value is ready to use; only one goroutine may use it.
type Pace struct {
	waiting  map[string]status.Waiting // by container
	retry    time.Duration             // until the next step; 0: the default
	failures int                       // failed steps in a row
	panics   int                       // steps in a row that panicked
}

// Step begins a step: no retry is requested yet.
func (p *Pace) Step() { p.retry = 0 }

// Round begins a round of a step: no container is blocked yet.
func (p *Pace) Round() { p.waiting = map[string]status.Waiting{} }

// RetryIn requests another step no later than d from now.
func (p *Pace) RetryIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.retry == 0 || d < p.retry {
		p.retry = d
	}
}

// Retry returns the requested time until the next step; 0: none.
func (p *Pace) Retry() time.Duration { return p.retry }

// Wait records why a container waits.
func (p *Pace) Wait(container string, why status.Waiting) {
	if p.waiting == nil {
		p.Round()
	}
	p.waiting[container] = why
}

// WaitAll records why all init containers and containers of the pod wait, except those that except names.
func (p *Pace) WaitAll(pod *corev1.Pod, why status.Waiting, except func(container string) bool) {
	for _, c := range spec.Containers(&pod.Spec) {
		if except == nil || !except(c.Name) {
			p.Wait(c.Name, why)
		}
	}
}

// Creating is the reason why containers wait while the sandbox or the volumes are created.
func Creating(pod *corev1.Pod) string {
	if len(pod.Spec.InitContainers) > 0 {
		return "PodInitializing"
	}
	return "ContainerCreating"
}

// Started records that a container no longer waits.
func (p *Pace) Started(container string) { delete(p.waiting, container) }

// Waiting returns why containers wait, by name; it must not be modified.
func (p *Pace) Waiting() map[string]status.Waiting { return p.waiting }

// Blocked records why a container waits if err is a Blocked, and returns other errors.
func (p *Pace) Blocked(container string, err error) error {
	b := &Blocked{}
	if !errors.As(err, &b) {
		return err
	}
	if b.Reason != "" {
		p.Wait(container, b.Waiting)
	}
	if b.Retry > 0 {
		p.RetryIn(b.Retry)
	}
	return nil
}

// Undecided reports whether a call was interrupted, or an earlier call is still in progress. The worker then observes
// the pod again, and writes no event.
func (p *Pace) Undecided(err error) bool {
	return runtime.Lost(err) || (runtime.Exists(err) || runtime.Pending(err)) && p.failures < maxUndecided
}

// Succeeded records that a step succeeded.
func (p *Pace) Succeeded() { p.failures = 0 }

// Failing reports whether the last step failed.
func (p *Pace) Failing() bool { return p.failures > 0 }

// Failed delays the next step after a failed one: 1 s, doubling up to 10 s.
func (p *Pace) Failed() {
	p.RetryIn(min(time.Second<<min(p.failures, 4), 10*time.Second))
	p.failures++
}

// Panicked delays the next step after one that panicked: 1 s, doubling up to 5 min.
func (p *Pace) Panicked() {
	p.retry = min(guard.First<<min(p.panics, 9), guard.Last)
	p.panics++
}

// ResetPanics resets the delay after panics. It reports whether the last step panicked.
func (p *Pace) ResetPanics() bool {
	was := p.panics > 0
	p.panics = 0
	return was
}

// Panicking reports whether the last step panicked.
func (p *Pace) Panicking() bool { return p.panics > 0 }
