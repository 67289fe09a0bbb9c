package agent

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/admission"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/status"
	"monopod/agent/pressure/evictor"
)

// admitHandlers are asked in this order; the first refusal counts.
func (a *Agent) admitHandlers() []admission.Handler {
	return []admission.Handler{admission.NodeName, a.admitSecurity, admission.Affinity, admission.Taints, admission.Ports, admission.Resources}
}

// verdict is what becomes of a pod that is new to this agent: it is refused, comes
// in, or does so once others that make room for it are gone.
type verdict struct {
	refused *status.Failure
	room    []*worker
}

// judge asks the handlers about a pod that is new to this agent. A pod that has
// finished or is being deleted is not refused any more.
func (a *Agent) judge(ctx context.Context, w *worker) (v verdict) {
	pod := w.current.Load()
	if status.Finished(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		return verdict{}
	}
	critical := w.static || a.evict.Critical(pod)
	pod = resize.Allocated(pod)
	if v.refused = a.drain.refuse(pod); v.refused == nil {
		if f := a.evict.Admit(pod, critical); f != nil {
			v.refused = admission.Rejected(f.Reason, "%s", f.Message)
		}
	}
	if v.refused == nil {
		v = a.ask(pod, critical)
	}
	if v.refused == nil && len(v.room) == 0 { // else it is asked when there is room
		v.refused = a.placement.Admit(ctx, pod)
	}
	a.tellRefused(pod, v.refused)
	return v
}

func (a *Agent) tellRefused(pod *corev1.Pod, f *status.Failure) {
	if f != nil {
		a.event(pod, "", corev1.EventTypeWarning, f.Reason, "%s", f.Message)
	}
}

// ask asks the handlers. A critical pod for which there is no room gets it from
// others, who are told to go.
func (a *Agent) ask(pod *corev1.Pod, critical bool) (v verdict) {
	node, others := a.placement.Room(a.node.Current()), a.activeBeside(pod)
	for _, ask := range a.admit {
		v.refused = ask(pod, others, node)
		if v.refused != nil && critical {
			if victims, ok := a.evict.MakeRoom(pod, others, node, v.refused); ok {
				v.room = append(v.room, a.workersOf(victims)...)
				others = slices.DeleteFunc(others, func(p *corev1.Pod) bool {
					return slices.ContainsFunc(victims, func(v evictor.Pod) bool { return v.Object().UID == p.UID })
				})
				v.refused = ask(pod, others, node)
			}
		}
		if v.refused != nil {
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
	for _, w := range a.all() {
		if pod := w.current.Load(); w.entered.Load() && !status.Finished(pod.Status.Phase) && !w.quiet.Load() {
			out = append(out, w.given.Load())
		}
	}
	return out
}
