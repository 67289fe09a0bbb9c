// Package eviction decides which pods a node under pressure must evict, and which it rejects. It is pure: package
// evictor reads the signals and ends the pods. The numbers, names and texts are kubelet's.
//
//   - Signal, Threshold, Policy: the observed resources and their thresholds.
//   - Tracker: the met thresholds, and the node's conditions.
//   - Rank: the order in which pods are evicted.
//   - Admit, Critical: the pods that are still admitted, and those that are never evicted.
//   - Victims: the pods to preempt for a critical pod.
package eviction

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is a resource that a node may run out of.
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

// signalInfo contains the constant properties of a signal.
type signalInfo struct {
	signal    Signal
	condition corev1.NodeConditionType // of the node, while a threshold is met
	resource  corev1.ResourceName      // by which pods are ranked
	format    resource.Format          // of amounts in messages
	reserved  bool                     // the amount below a hard threshold is not allocatable
}

// signalInfos returns the properties of all signals, in the order in which they are handled: memory first, because it
// runs out fastest.
func signalInfos() []signalInfo {
	const bytes, number = resource.BinarySI, resource.DecimalSI
	return []signalInfo{
		{signal: Memory, condition: corev1.NodeMemoryPressure, resource: corev1.ResourceMemory, format: bytes,
			reserved: true},
		{signal: NodeFs, condition: corev1.NodeDiskPressure, resource: corev1.ResourceEphemeralStorage, format: bytes,
			reserved: true},
		{signal: NodeFsInodes, condition: corev1.NodeDiskPressure, resource: "inodes", format: number},
		{signal: ImageFs, condition: corev1.NodeDiskPressure, resource: corev1.ResourceEphemeralStorage, format: bytes},
		{signal: ImageFsInodes, condition: corev1.NodeDiskPressure, resource: "inodes", format: number},
		{signal: PID, condition: corev1.NodePIDPressure, resource: "pids", format: number},
	}
}

// info returns the properties of a signal; the zero value for an unknown signal.
func (s Signal) info() signalInfo {
	all := signalInfos()
	if i := slices.IndexFunc(all, func(t signalInfo) bool { return t.signal == s }); i >= 0 {
		return all[i]
	}
	return signalInfo{}
}

// Signals returns all signals in the order in which they are handled.
func Signals() []Signal {
	all := signalInfos()
	names := make([]Signal, len(all))
	for i, t := range all {
		names[i] = t.signal
	}
	return names
}

// Valid reports whether the signal exists.
func (s Signal) Valid() bool { return s.info().signal != "" }

// Condition returns the node condition of the signal.
func (s Signal) Condition() corev1.NodeConditionType { return s.info().condition }

// Resource returns the resource of pods that the signal observes.
func (s Signal) Resource() corev1.ResourceName { return s.info().resource }

// OnDisk reports whether the signal is about a disk, so that garbage collection may help.
func (s Signal) OnDisk() bool { return s.Condition() == corev1.NodeDiskPressure }

// quantity formats an amount of the signal.
func (s Signal) quantity(n int64) *resource.Quantity { return resource.NewQuantity(n, s.info().format) }

// Amount is the total and the free part of a resource.
type Amount struct{ Total, Free int64 }

// Observations contains the signals that were read. An unreadable signal is missing.
type Observations map[Signal]Amount

// Value is an amount, or a share of the total.
type Value struct {
	Quantity int64
	Percent  float64 // if positive, used instead
}

// Of returns the value as an amount.
func (v Value) Of(total int64) int64 {
	if v.Percent > 0 {
		return int64(float64(total) * v.Percent / 100)
	}
	return v.Quantity
}

// Reservation returns the memory and disk that the hard thresholds keep free. They are not allocatable.
func (p Policy) Reservation(capacity corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, t := range p.Thresholds {
		name := t.Signal.Resource()
		if total, ok := capacity[name]; ok && !t.Soft && t.Signal.info().reserved {
			out[name] = *resource.NewQuantity(t.Value.Of(total.Value()), resource.BinarySI)
		}
	}
	return out
}
