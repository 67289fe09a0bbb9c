package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// What is a set of kinds of changes that can make pods schedulable.
type What uint32

// The kinds of changes.
const (
	NodeAdded What = 1 << iota
	NodeRemoved
	NodeAllocatable
	NodeLabels
	NodeTaints // or whether it is unschedulable or ready
	PodPlaced  // a pod is on a node now, or has other labels
	PodGone    // a pod has ended or was removed
	PodShrunk  // a pod requests less
	Claims
	Volumes
	Classes
	CSINodes
	NamespaceLabels
	ResourceClaims // other than those of volumes
	DevicesFreed   // a resource claim lost its devices
	DevicesOffered // slices or device classes changed

	AnyNode = NodeAdded | NodeAllocatable | NodeLabels | NodeTaints
)

// Change is a change of the cluster.
type Change struct {
	What
	Node *Node  // of a change of a node or a pod; nil if it is gone
	Pod  *Pod   // of a change of a pod
	Name string // of a change of a claim or resource claim: namespace/name
}

// NodeDifference returns what changed in all that rules read of a node; 0 after a heartbeat.
func NodeDifference(was, is *corev1.Node) What {
	var what What
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

// Gone is what changes when a placed pod is removed.
func (p *Pod) Gone() What {
	if len(p.Volumes) > 0 {
		return PodGone | Volumes
	}
	return PodGone
}

// PodDifference returns how a placed pod's change can help others.
func PodDifference(was, is *Pod) What {
	var what What
	if was.Node != is.Node {
		what |= PodGone | PodPlaced
	}
	if is.Requests.Less(&was.Requests) {
		what |= PodShrunk
	}
	if !maps.Equal(was.Labels, is.Labels) || was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() {
		what |= PodPlaced | PodGone // for those that count it by its labels
	}
	return what
}
