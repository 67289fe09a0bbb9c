// Package eviction decides which pods a node that runs out of something must give
// up, and which it refuses. It decides only; the agent reads the signals and ends
// the pods. The numbers, names and texts are kubelet's.
//
//   - Signal, Threshold, Policy: what is looked at, and below what it is scarce.
//   - Tracker: which thresholds are met, for how long, and the node's conditions.
//   - Rank: the order in which pods go.
//   - Admit, Critical: who comes in all the same, and who never goes.
//   - Victims: who makes room for a critical pod.
package eviction

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is something a node may run out of.
type Signal string

// The signals.
const (
	Memory        Signal = "memory.available"
	NodeFs        Signal = "nodefs.available"
	NodeFsInodes  Signal = "nodefs.inodesFree"
	ImageFs       Signal = "imagefs.available"
	ImageFsInodes Signal = "imagefs.inodesFree"
	PID           Signal = "pid.available"
)

// Signals are all of them, as they are dealt with: memory first, as it runs out
// fastest.
func Signals() []Signal {
	return []Signal{Memory, NodeFs, NodeFsInodes, ImageFs, ImageFsInodes, PID}
}

// Known reports whether there is such a signal.
func (s Signal) Known() bool { return slices.Contains(Signals(), s) }

// Condition is the node's condition that tells of the signal.
func (s Signal) Condition() corev1.NodeConditionType {
	switch s {
	case Memory:
		return corev1.NodeMemoryPressure
	case PID:
		return corev1.NodePIDPressure
	}
	return corev1.NodeDiskPressure
}

// Resource is what a pod uses of it.
func (s Signal) Resource() corev1.ResourceName {
	switch s {
	case Memory:
		return corev1.ResourceMemory
	case PID:
		return "pids"
	case NodeFsInodes, ImageFsInodes:
		return "inodes"
	}
	return corev1.ResourceEphemeralStorage
}

// OnDisk reports whether removing what is dead or unused may help.
func (s Signal) OnDisk() bool { return s.Condition() == corev1.NodeDiskPressure }

// quantity is an amount in the words of the signal.
func (s Signal) quantity(n int64) *resource.Quantity {
	if s == NodeFsInodes || s == ImageFsInodes || s == PID {
		return resource.NewQuantity(n, resource.DecimalSI)
	}
	return resource.NewQuantity(n, resource.BinarySI)
}

// Amount is how much there is of something, and how much of it is free.
type Amount struct{ Total, Free int64 }

// Observations are what was read; a signal that could not be is not there.
type Observations map[Signal]Amount

// Value is an amount, or a share of the total.
type Value struct {
	Quantity int64
	Percent  float64 // above 0: counts instead
}

// Of is the value as an amount.
func (v Value) Of(total int64) int64 {
	if v.Percent > 0 {
		return int64(float64(total) * v.Percent / 100)
	}
	return v.Quantity
}

// Reservation is how much of a node's memory and disk must stay free lest pods end
// at once: no pod is to count on it.
func (p Policy) Reservation(capacity corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, t := range p.Thresholds {
		name := t.Signal.Resource()
		if total, ok := capacity[name]; ok && !t.Soft && (t.Signal == Memory || t.Signal == NodeFs) {
			out[name] = *resource.NewQuantity(t.Value.Of(total.Value()), resource.BinarySI)
		}
	}
	return out
}

// byOrder sorts as Signals does.
func byOrder(a, b Signal) int {
	return cmp.Compare(slices.Index(Signals(), a), slices.Index(Signals(), b))
}
