package cgroup

import (
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host"
	"monopod/agent/podapi/spec"
	"monopod/agent/resources/reserve"
)

// Node is notified by an Enforcer.
type Node interface {
	// Lacks records why a limit is not enforced; nil: it is.
	Lacks(of string, err error)
	Lacking(of string) bool
	Event(eventType, reason, format string, args ...any)
}

// EnforcerDeps are an Enforcer's dependencies; all are required.
type EnforcerDeps struct {
	Cgroups  *Manager
	Node     Node
	Log      *zap.Logger
	Reserve  reserve.Config
	Capacity corev1.ResourceList
	// Observe observes a change to a pod's cgroup.
	Observe func(operation string, change func() error) error
}

// Enforcer manages the cgroups of a node. What a machine cannot enforce is reported, and the pods run.
type Enforcer struct{ deps EnforcerDeps }

// NewEnforcer returns an Enforcer.
func NewEnforcer(deps EnforcerDeps) *Enforcer { return &Enforcer{deps} }

// Enforce sets the limits of the cgroup of all pods, and of the cgroups of reservations. It fails if the latter
// do not exist; pods run even without limits.
func (e *Enforcer) Enforce() error {
	e.pods()
	r := &e.deps.Reserve
	if err := e.other(r.SystemReservedCgroup, r.System(), reserve.EnforceSystem,
		reserve.EnforceSystemCompressible); err != nil {
		return fmt.Errorf("--system-reserved-cgroup: %w", err)
	}
	if err := e.other(r.KubeReservedCgroup, r.Kube(), reserve.EnforceKube, reserve.EnforceKubeCompressible); err != nil {
		return fmt.Errorf("--kube-reserved-cgroup: %w", err)
	}
	return nil
}

// allPods is the owner of a lack of limits of the cgroup of all pods.
const allPods = "kubepods"

// again retries once more what failed for all pods: a machine may get a controller while it runs.
func (e *Enforcer) again() {
	if e.deps.Node.Lacking(allPods) {
		e.pods()
	}
}

func (e *Enforcer) pods() {
	all := Limits{Shares: spec.Shares(e.deps.Capacity.Cpu().MilliValue())}
	enforced := e.deps.Reserve.Enforces(reserve.EnforcePods)
	if enforced {
		all = limitsFor(e.remaining())
	}
	err := e.deps.Cgroups.Prepare(all)
	e.deps.Node.Lacks(allPods, err)
	if err != nil {
		e.notEnforced("Failed to update Node Allocatable Limits %q: %v", "kubepods", err)
	} else if enforced {
		e.deps.Node.Event(corev1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
	}
}

// other limits the cgroup of a reservation to the reserved amount, or to its compressible resources (CPU).
func (e *Enforcer) other(name string, reserved corev1.ResourceList, whole, compressible string) error {
	limits := limitsFor(reserved)
	switch r := &e.deps.Reserve; {
	case r.Enforces(compressible):
		limits = Limits{Shares: limits.Shares}
	case !r.Enforces(whole):
		return nil
	}
	err := e.deps.Cgroups.Limit(name, limits)
	if err != nil {
		e.notEnforced("Failed to enforce the limits of %q: %v", name, err)
	}
	return err
}

func (e *Enforcer) notEnforced(format string, args ...any) {
	e.deps.Node.Event(corev1.EventTypeWarning, "FailedNodeAllocatableEnforcement", format, args...)
}

// remaining returns the capacity minus the reservations. Memory that eviction thresholds keep free still belongs
// to pods.
func (e *Enforcer) remaining() corev1.ResourceList {
	have := corev1.ResourceList{corev1.ResourceCPU: e.deps.Capacity[corev1.ResourceCPU],
		corev1.ResourceMemory: e.deps.Capacity[corev1.ResourceMemory]}
	if pids, err := host.PIDs(); err == nil {
		have[reserve.PID] = *resource.NewQuantity(pids.Total, resource.DecimalSI)
	}
	for name, q := range e.deps.Reserve.Reserved() {
		if left, ok := have[name]; ok {
			left.Sub(q)
			have[name] = left
		}
	}
	return have
}

// limitsFor returns the limits for these resources.
func limitsFor(list corev1.ResourceList) Limits {
	pids := list[reserve.PID]
	l := Limits{Memory: list.Memory().Value(), PIDs: pids.Value()}
	if cpu, ok := list[corev1.ResourceCPU]; ok {
		l.Shares = spec.Shares(cpu.MilliValue())
	}
	return l
}

// Sweep removes the cgroups of pods that do not exist. One with running processes stays until their pod is
// known.
func (e *Enforcer) Sweep(there func(types.UID) bool) {
	for _, uid := range e.deps.Cgroups.Pods() {
		if there(uid) {
			continue
		}
		pod := &corev1.Pod{}
		pod.UID = uid
		if err := e.deps.Cgroups.Remove(pod); err != nil {
			e.deps.Log.Info("failed to remove the cgroup of an orphaned pod", zap.String("uid", string(uid)), zap.Error(err))
		}
	}
}

// Close leaves folders that are still in use.
func (e *Enforcer) Close() { e.deps.Cgroups.Close() }

// The methods below are about single pods; see sandbox.Cgroups.

// Parent implements sandbox.Cgroups.
func (e *Enforcer) Parent(pod *corev1.Pod) string { return e.deps.Cgroups.Parent(pod) }

// Create implements sandbox.Cgroups. What failed for all pods is tried once more.
func (e *Enforcer) Create(pod *corev1.Pod) {
	e.again()
	e.set("create", pod)
}

// Update implements sandbox.Cgroups.
func (e *Enforcer) Update(pod *corev1.Pod) { e.set("update", pod) }

func (e *Enforcer) set(operation string, pod *corev1.Pod) {
	e.deps.Node.Lacks(string(pod.UID), e.deps.Observe(operation, func() error { return e.deps.Cgroups.Create(pod) }))
}

// Hold implements sandbox.Cgroups.
func (e *Enforcer) Hold(pod *corev1.Pod) {
	e.deps.Node.Lacks(string(pod.UID), e.deps.Cgroups.Hold(pod))
}

// Remove implements sandbox.Cgroups.
func (e *Enforcer) Remove(pod *corev1.Pod) error {
	return e.deps.Observe("destroy", func() error { return e.deps.Cgroups.Remove(pod) })
}
