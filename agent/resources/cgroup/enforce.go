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
	// SetCgroupProblem records why the limits of a pod, or of all pods, are not enforced; nil: they are.
	SetCgroupProblem(of string, err error)
	HasCgroupProblem(of string) bool
	Event(eventType, reason, format string, args ...any)
}

// EnforcerDeps are an Enforcer's dependencies; all are required.
type EnforcerDeps struct {
	Cgroups  *Manager
	Node     Node
	Log      *zap.Logger
	Reserve  reserve.Config
	Capacity corev1.ResourceList
	// Observe makes a change to a pod's cgroup and measures it.
	Observe func(operation string, change func() error) error
}

// Enforcer manages the cgroups of a node. Limits that the machine cannot enforce are reported; the pods run anyway.
type Enforcer struct{ deps EnforcerDeps }

// NewEnforcer returns an Enforcer.
func NewEnforcer(deps EnforcerDeps) *Enforcer { return &Enforcer{deps} }

// Enforce sets the limits of the cgroup of all pods and of the cgroups of reservations. It returns an error if a cgroup
// of a reservation cannot be limited.
func (e *Enforcer) Enforce() error {
	e.limitPods()
	r := &e.deps.Reserve
	if err := e.limitReserved(r.SystemReservedCgroup, r.System(), reserve.EnforceSystem,
		reserve.EnforceSystemCompressible); err != nil {
		return fmt.Errorf("--system-reserved-cgroup: %w", err)
	}
	if err := e.limitReserved(r.KubeReservedCgroup, r.Kube(), reserve.EnforceKube,
		reserve.EnforceKubeCompressible); err != nil {
		return fmt.Errorf("--kube-reserved-cgroup: %w", err)
	}
	return nil
}

// allPods identifies the cgroup of all pods for Node.SetCgroupProblem.
const allPods = "kubepods"

// limitPods sets the limits of the cgroup of all pods.
func (e *Enforcer) limitPods() {
	all := Limits{Shares: spec.Shares(e.deps.Capacity.Cpu().MilliValue())}
	enforced := e.deps.Reserve.Enforces(reserve.EnforcePods)
	if enforced {
		all = limitsFor(e.remaining())
	}
	err := e.deps.Cgroups.Prepare(all)
	e.deps.Node.SetCgroupProblem(allPods, err)
	if err != nil {
		e.notEnforced("Failed to update Node Allocatable Limits %q: %v", "kubepods", err)
	} else if enforced {
		e.deps.Node.Event(corev1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
	}
}

// limitReserved limits the cgroup of a reservation to the reserved amount, or to its compressible resources (CPU).
func (e *Enforcer) limitReserved(name string, reserved corev1.ResourceList, whole, compressible string) error {
	limits := limitsFor(reserved)
	limits.Protection = &Protection{Min: limits.Memory}
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

// remaining returns the capacity minus the reservations. Eviction thresholds are not subtracted: pods may use that
// memory until they are evicted.
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

// Sweep removes the cgroups of pods that do not exist. A cgroup with processes stays.
func (e *Enforcer) Sweep(exists func(types.UID) bool) {
	for _, uid := range e.deps.Cgroups.Pods() {
		if exists(uid) {
			continue
		}
		pod := &corev1.Pod{}
		pod.UID = uid
		if err := e.deps.Cgroups.Remove(pod); err != nil {
			e.deps.Log.Info("failed to remove the cgroup of an orphaned pod", zap.String("uid", string(uid)), zap.Error(err))
		}
	}
}

// Close removes the cgroups that are not in use.
func (e *Enforcer) Close() { e.deps.Cgroups.Close() }

// Parent implements sandbox.Cgroups.
func (e *Enforcer) Parent(pod *corev1.Pod) string { return e.deps.Cgroups.Parent(pod) }

// Create implements sandbox.Cgroups. It also retries the limits of all pods if these failed.
func (e *Enforcer) Create(pod *corev1.Pod) {
	if e.deps.Node.HasCgroupProblem(allPods) { // the machine may have got a controller since
		e.limitPods()
	}
	e.set("create", pod)
}

// Protects reports whether the kernel keeps the memory that pods request.
func (e *Enforcer) Protects() bool { return e.deps.Cgroups.Protect }

// LimitsSwap reports whether the kernel can limit the swap that containers use.
func (e *Enforcer) LimitsSwap() bool { return e.deps.Cgroups.LimitsSwap() }

// Update implements sandbox.Cgroups.
func (e *Enforcer) Update(pod *corev1.Pod) { e.set("update", pod) }

func (e *Enforcer) set(operation string, pod *corev1.Pod) {
	e.deps.Node.SetCgroupProblem(string(pod.UID),
		e.deps.Observe(operation, func() error { return e.deps.Cgroups.Create(pod) }))
}

// Adopt implements sandbox.Cgroups.
func (e *Enforcer) Adopt(pod *corev1.Pod) {
	e.deps.Node.SetCgroupProblem(string(pod.UID), e.deps.Cgroups.Adopt(pod))
}

// Remove implements sandbox.Cgroups.
func (e *Enforcer) Remove(pod *corev1.Pod) error {
	return e.deps.Observe("destroy", func() error { return e.deps.Cgroups.Remove(pod) })
}
