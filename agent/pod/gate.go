package pod

import (
	"context"

	"monopod/agent/podapi/status"
)

// gate delays a new worker until the pod is admitted, and the earlier pod of its name and its victims are gone.
type gate struct {
	after      <-chan struct{} // closed when the earlier pod of the name is gone; nil: there is none
	decided    chan struct{}   // closed when the pod is admitted or rejected
	victims    []*Pod          // preempted pods; set before decided is closed
	readmitted chan struct{}   // closed after the second decision, which follows the end of the victims
}

func newGate() gate { return gate{decided: make(chan struct{}), readmitted: make(chan struct{})} }

// Verdict is the decision about a new pod: rejected if Refused is not nil, admitted if there are no Victims.
// Otherwise a second decision follows when the Victims have ended.
type Verdict struct {
	Refused *status.Failure
	Victims []*Pod
}

// After makes the pod wait until an earlier one is gone. It must be called before Run.
func (p *Pod) After(earlier *Pod) { p.gate.after = earlier.done }

// Decided passes the decision to the worker.
func (p *Pod) Decided(v Verdict) {
	p.gate.victims = v.Victims
	p.admitted.Store(v.Refused == nil)
	if v.Refused != nil {
		p.inbox.fail(v.Refused, nil)
	}
	close(p.gate.decided)
}

// Readmitted passes the second decision to the worker; nil: admitted.
func (p *Pod) Readmitted(refused *status.Failure) {
	defer close(p.gate.readmitted)
	if refused != nil {
		p.admitted.Store(false)
		p.inbox.fail(refused, nil)
	}
}

// awaitStart waits until the worker may start. It returns false if ctx has ended.
func (p *Pod) awaitStart(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.gate.decided:
	}
	if p.gate.after != nil {
		select {
		case <-ctx.Done():
			return false
		case <-p.gate.after:
		}
	}
	if len(p.gate.victims) == 0 {
		return true
	}
	for _, victim := range p.gate.victims {
		if !p.awaitVictim(ctx, victim) {
			return ctx.Err() == nil
		}
	}
	p.node.Hooks.Readmit(ctx, p)
	select {
	case <-ctx.Done():
		return false
	case <-p.gate.readmitted:
		p.gate.victims = nil
		return true
	}
}

// awaitVictim waits until no container of the victim runs. It returns false if the pod itself must end, or ctx has
// ended.
func (p *Pod) awaitVictim(ctx context.Context, victim *Pod) bool {
	for !victim.Over() {
		changed := victim.Changes()
		if victim.Over() {
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-victim.done:
			return true
		case <-changed:
		case <-p.inbox.wake:
			if p.inbox.ending() {
				return false
			}
		}
	}
	return true
}
