package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// ChangeKind is a set of kinds of changes that may make pods schedulable.
type ChangeKind uint32

// The kinds of changes.
const (
	NodeAdded ChangeKind = 1 << iota
	NodeRemoved
	NodeAllocatable
	NodeLabels
	NodeTaints // also a change of readiness or of spec.unschedulable
	PodPlaced  // a pod was placed, or its labels changed
	PodGone    // a placed pod was removed or has ended
	PodShrunk  // a pod requests less
	Claims
	Volumes
	Classes
	CSINodes
	CSIDrivers
	MoreCapacity // a CSIStorageCapacity is new, or larger
	Detached     // a VolumeAttachment was deleted
	NamespaceLabels
	ResourceClaims // ResourceClaims, not PersistentVolumeClaims
	DevicesFreed   // a ResourceClaim lost its allocation
	DevicesOffered // ResourceSlices or DeviceClasses changed

	AnyNode = NodeAdded | NodeAllocatable | NodeLabels | NodeTaints
)

// Change is a change of the cluster.
type Change struct {
	ChangeKind
	Node *Node  // for a change of a node or a pod; nil: deleted
	Pod  *Pod   // for a change of a pod
	Name string // for a change of a claim or ResourceClaim: namespace/name
}

// NodeChange returns the changes of a node that rules depend on; 0 after a heartbeat.
func NodeChange(was, is *corev1.Node) ChangeKind {
	var what ChangeKind
	if !equality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable) {
		what |= NodeAllocatable
	}
	if !maps.Equal(was.Labels, is.Labels) {
		what |= NodeLabels
	}
	if was.Spec.Unschedulable != is.Spec.Unschedulable ||
		!equality.Semantic.DeepEqual(EffectiveTaints(was), EffectiveTaints(is)) {
		what |= NodeTaints
	}
	if was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() {
		what |= NodeRemoved
	}
	return what
}

// RemovalChange returns the changes when a placed pod is removed.
func (p *Pod) RemovalChange() ChangeKind {
	if len(p.Volumes) > 0 {
		return PodGone | Volumes
	}
	return PodGone
}

// PodChange returns the changes of a placed pod that may help others.
func PodChange(was, is *Pod) ChangeKind {
	var what ChangeKind
	if was.Node != is.Node {
		what |= PodGone | PodPlaced
	}
	if is.Requests.Less(&was.Requests) {
		what |= PodShrunk
	}
	if !maps.Equal(was.Labels, is.Labels) || was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() {
		what |= PodPlaced | PodGone // rules count pods by their labels
	}
	return what
}
