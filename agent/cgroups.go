package agent

import (
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/node/host"
	"monopod/agent/pod/sandbox"
	"monopod/agent/pod/spec"
	"monopod/agent/resources/cgroup"
	"monopod/agent/resources/reserve"
)

// newCgroups are the cgroups of pods; nil where the runtime has a place of its own.
func (a *Agent) newCgroups() *cgroup.Manager {
	if a.cfg.CgroupRoot == "" {
		return nil
	}
	a.pageSizes = slices.Sorted(maps.Keys(host.HugePages("/sys/kernel/mm/hugepages")))
	return cgroup.New(cgroup.Config{
		Mount: a.cfg.CgroupMount, Root: a.cfg.CgroupRoot, MaxPIDs: a.cfg.PodMaxPIDs, HugePages: a.pageSizes, Units: a.Units,
	})
}

// enforce gives all pods together, and the cgroups of what is no pod, their shares
// of the machine. It fails where those do not exist; pods run even without limits.
func (a *Agent) enforce() error {
	if a.cgroups == nil {
		return nil
	}
	a.enforcePods()
	r := &a.cfg.Reserve
	if err := a.enforceOther(r.SystemReservedCgroup, r.System(), reserve.EnforceSystem, reserve.EnforceSystemCompressible); err != nil {
		return fmt.Errorf("--system-reserved-cgroup: %w", err)
	}
	if err := a.enforceOther(r.KubeReservedCgroup, r.Kube(), reserve.EnforceKube, reserve.EnforceKubeCompressible); err != nil {
		return fmt.Errorf("--kube-reserved-cgroup: %w", err)
	}
	return nil
}

// allPods is what lacks limits when the cgroup of all pods has none.
const allPods = "kubepods"

// enforceAgain tries what failed for all pods once more: a machine may get a
// controller while it runs.
func (a *Agent) enforceAgain() {
	if a.node.Lacking(allPods) {
		a.enforcePods()
	}
}

func (a *Agent) enforcePods() {
	all := cgroup.Limits{Shares: spec.Shares(a.capacity.Cpu().MilliValue())}
	enforced := a.cfg.Reserve.Enforces(reserve.EnforcePods)
	if enforced {
		all = limitsOf(a.remaining())
	}
	err := a.cgroups.Prepare(all)
	a.node.Lacks(allPods, err)
	if err != nil {
		a.notEnforced("Failed to update Node Allocatable Limits %q: %v", "kubepods", err)
	} else if enforced {
		a.node.Event(corev1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
	}
}

// enforceOther limits the cgroup of what is no pod to what is reserved for it: all
// of that, or the processors alone.
func (a *Agent) enforceOther(name string, reserved corev1.ResourceList, whole, compressible string) error {
	limits := limitsOf(reserved)
	switch r := &a.cfg.Reserve; {
	case r.Enforces(compressible):
		limits = cgroup.Limits{Shares: limits.Shares}
	case !r.Enforces(whole):
		return nil
	}
	err := a.cgroups.Limit(name, limits)
	if err != nil {
		a.notEnforced("Failed to enforce the limits of %q: %v", name, err)
	}
	return err
}

func (a *Agent) notEnforced(format string, args ...any) {
	a.node.Event(corev1.EventTypeWarning, "FailedNodeAllocatableEnforcement", format, args...)
}

// remaining is what is left of the machine without what is reserved. What must
// stay free lest pods be evicted is still theirs.
func (a *Agent) remaining() corev1.ResourceList {
	have := corev1.ResourceList{corev1.ResourceCPU: a.capacity[corev1.ResourceCPU], corev1.ResourceMemory: a.capacity[corev1.ResourceMemory]}
	if pids, err := host.PIDs(); err == nil {
		have[reserve.PID] = *resource.NewQuantity(pids.Total, resource.DecimalSI)
	}
	for name, q := range a.cfg.Reserve.Reserved() {
		if left, ok := have[name]; ok {
			left.Sub(q)
			have[name] = left
		}
	}
	return have
}

// limitsOf are the limits of who may have that much.
func limitsOf(list corev1.ResourceList) cgroup.Limits {
	pids := list[reserve.PID]
	l := cgroup.Limits{Memory: list.Memory().Value(), PIDs: pids.Value()}
	if cpu, ok := list[corev1.ResourceCPU]; ok {
		l.Shares = spec.Shares(cpu.MilliValue())
	}
	return l
}

// sweepCgroups removes those of pods that no worker has. One in which something
// runs stays: whose it is will show.
func (a *Agent) sweepCgroups() {
	if a.cgroups == nil {
		return
	}
	for _, uid := range a.cgroups.Pods() {
		if a.pod(uid) != nil {
			continue
		}
		pod := &corev1.Pod{}
		pod.UID = uid
		if err := a.cgroups.Remove(pod); err != nil {
			a.log.Info("the cgroup of a pod that no longer exists stays", zap.String("uid", string(uid)), zap.Error(err))
		}
	}
}

// podCgroups are the cgroups of pods; what a machine cannot enforce is noted, and the
// pods run.
type podCgroups struct{ a *Agent }

var _ sandbox.Cgroups = podCgroups{}

// Parent implements sandbox.Cgroups.
func (c podCgroups) Parent(pod *corev1.Pod) string { return c.a.cgroups.Parent(pod) }

// Create implements sandbox.Cgroups. What failed for all pods is tried once more.
func (c podCgroups) Create(pod *corev1.Pod) {
	c.a.enforceAgain()
	c.set("create", pod)
}

// Update implements sandbox.Cgroups.
func (c podCgroups) Update(pod *corev1.Pod) { c.set("update", pod) }

func (c podCgroups) set(operation string, pod *corev1.Pod) {
	c.a.node.Lacks(string(pod.UID), c.a.metrics.cage(operation, func() error { return c.a.cgroups.Create(pod) }))
}

// Hold implements sandbox.Cgroups.
func (c podCgroups) Hold(pod *corev1.Pod) { c.a.node.Lacks(string(pod.UID), c.a.cgroups.Hold(pod)) }

// Remove implements sandbox.Cgroups.
func (c podCgroups) Remove(pod *corev1.Pod) error {
	return c.a.metrics.cage("destroy", func() error { return c.a.cgroups.Remove(pod) })
}
