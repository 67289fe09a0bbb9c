// Package pace is when a pod is looked at again, and why containers of it do not start
// until then.
package pace

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/status"
	"monopod/agent/runtime/cutoff"
	"monopod/apiserver/process/guard"
)

// Blocked is why a container does not start now, and when to try again; a zero Retry
// leaves that to whoever wakes the worker.
type Blocked struct {
	status.Waiting
	Retry time.Duration
}

func (b *Blocked) Error() string { return b.Reason + ": " + b.Message }

// Config is between attempts to start a container that cannot be: a mistake in its
// config, an error of the runtime (SPEC 5: error backoff 10 s).
const Config = 10 * time.Second

// patient is how many failed steps in a row may have gone before a name that stays in
// use is called an error.
const patient = 5

// Pace is that of one pod. The zero value works; it is for one goroutine.
type Pace struct {
	waiting  map[string]status.Waiting // by container
	retry    time.Duration             // until the next step; 0: the usual
	failures int                       // failed steps in a row
	panics   int                       // steps in a row that panicked
}

// Step begins a step: so far nothing asks for another.
func (p *Pace) Step() { p.retry = 0 }

// Round begins a round of a step: so far every container may start.
func (p *Pace) Round() { p.waiting = map[string]status.Waiting{} }

// RetryIn asks for another step no later than d from now.
func (p *Pace) RetryIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if p.retry == 0 || d < p.retry {
		p.retry = d
	}
}

// Retry is the time until the next step that was asked for; 0: nobody did.
func (p *Pace) Retry() time.Duration { return p.retry }

// Wait says why a container waits.
func (p *Pace) Wait(container string, why status.Waiting) {
	if p.waiting == nil {
		p.Round()
	}
	p.waiting[container] = why
}

// WaitAll says why all init containers and containers of the pod wait, but for those
// that except names.
func (p *Pace) WaitAll(pod *corev1.Pod, why status.Waiting, except func(container string) bool) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if except == nil || !except(list[i].Name) {
				p.Wait(list[i].Name, why)
			}
		}
	}
}

// Creating is the reason why containers wait of a pod whose sandbox or volumes are not
// there yet.
func Creating(pod *corev1.Pod) string {
	if len(pod.Spec.InitContainers) > 0 {
		return "PodInitializing"
	}
	return "ContainerCreating"
}

// Started says that a container waits no longer.
func (p *Pace) Started(container string) { delete(p.waiting, container) }

// Waiting is why containers wait, by name, to be read only.
func (p *Pace) Waiting() map[string]status.Waiting { return p.waiting }

// Blocked is err, unless it only says why the container has to wait.
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

// Undecided says whether a call was cut off, or met what an earlier one is still
// making: the pod is looked at anew, and no error is reported.
func (p *Pace) Undecided(err error) bool {
	return cutoff.Lost(err) || (cutoff.Exists(err) || cutoff.Pending(err)) && p.failures < patient
}

// Succeeded notes that a step went well.
func (p *Pace) Succeeded() { p.failures = 0 }

// Failing says that the last step failed.
func (p *Pace) Failing() bool { return p.failures > 0 }

// Failed spaces out the steps that follow a failed one: 1 s doubled up to 10 s.
func (p *Pace) Failed() {
	p.RetryIn(min(time.Second<<min(p.failures, 4), 10*time.Second))
	p.failures++
}

// Panicked spaces out the steps that follow one that panicked: 1 s doubled up to 5 min.
func (p *Pace) Panicked() {
	p.retry = min(guard.First<<min(p.panics, 9), guard.Last)
	p.panics++
}

// Well ends the time after a panic; false: there was none.
func (p *Pace) Well() bool {
	was := p.panics > 0
	p.panics = 0
	return was
}

// Unwell says that the last step panicked.
func (p *Pace) Unwell() bool { return p.panics > 0 }
