package agent

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/admission"
	"monopod/agent/pod"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/status"
	"monopod/agent/pressure/evictor"
)

// admitHandlers are asked in this order; the first refusal counts.
func (a *Agent) admitHandlers() []admission.Handler {
	return []admission.Handler{admission.NodeName, a.admitSecurity, admission.Affinity, admission.Taints, admission.Ports, admission.Resources}
}

// judge asks the handlers about a pod that is new to this agent. A pod that has
// finished or is being deleted is not refused any more.
func (a *Agent) judge(ctx context.Context, p *pod.Pod) (v pod.Verdict) {
	object := p.Object()
	if status.Finished(object.Status.Phase) || object.DeletionTimestamp != nil {
		return pod.Verdict{}
	}
	critical := p.Static() || a.evict.Critical(object)
	object = resize.Allocated(object)
	if v.Refused = a.drain.refuse(object); v.Refused == nil {
		if f := a.evict.Admit(object, critical); f != nil {
			v.Refused = admission.Rejected(f.Reason, "%s", f.Message)
		}
	}
	if v.Refused == nil {
		v = a.ask(object, critical)
	}
	if v.Refused == nil && len(v.Victims) == 0 { // else it is asked when there is room
		v.Refused = a.placement.Admit(ctx, object)
	}
	a.tellRefused(object, v.Refused)
	return v
}

// readmit judges a pod again whose victims are gone: it comes in, unless it is to go
// itself or others were faster.
func (a *Agent) readmit(ctx context.Context, p *pod.Pod) {
	var refused *status.Failure
	defer func() { p.Readmitted(refused) }()
	object := p.Object()
	if object.DeletionTimestamp != nil {
		return
	}
	if refused = a.ask(object, false).Refused; refused == nil {
		refused = a.placement.Admit(ctx, object)
	}
	a.tellRefused(object, refused)
}

func (a *Agent) tellRefused(pod *corev1.Pod, f *status.Failure) {
	if f != nil {
		a.event(pod, "", corev1.EventTypeWarning, f.Reason, "%s", f.Message)
	}
}

// ask asks the handlers. A critical pod for which there is no room gets it from
// others, who are told to go.
func (a *Agent) ask(object *corev1.Pod, critical bool) (v pod.Verdict) {
	node, others := a.placement.Room(a.node.Current()), a.activeBeside(object)
	for _, ask := range a.admit {
		v.Refused = ask(object, others, node)
		if v.Refused != nil && critical {
			if victims, ok := a.evict.MakeRoom(object, others, node, v.Refused); ok {
				v.Victims = append(v.Victims, a.podsOf(victims)...)
				others = slices.DeleteFunc(others, func(p *corev1.Pod) bool {
					return slices.ContainsFunc(victims, func(v evictor.Pod) bool { return v.Object().UID == p.UID })
				})
				v.Refused = ask(object, others, node)
			}
		}
		if v.Refused != nil {
			return v
		}
	}
	return v
}

// activeBeside are the pods that hold resources, but for pod itself.
func (a *Agent) activeBeside(pod *corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(a.active(), func(p *corev1.Pod) bool { return p.UID == pod.UID })
}

// active are the pods that hold resources: those let in that are not being stopped.
func (a *Agent) active() []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range a.all() {
		if p.Active() {
			out = append(out, p.Allocated())
		}
	}
	return out
}
