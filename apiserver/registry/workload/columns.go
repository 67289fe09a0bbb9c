package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

// replicas are the desired (nil: one), existing and ready numbers of pods.
type replicas struct {
	wanted          *int32
	existing, ready int32
}

// replicaColumns returns the columns of ReplicaSets and ReplicationControllers.
func replicaColumns[T kind.Object](count func(T) replicas, template func(T) *corev1.PodTemplateSpec,
	selector func(T) string) []table.Column {
	return pod.OwnerColumns([]table.Column{
		table.Name(),
		table.Number("Desired", "Pods wanted.", func(obj T) int64 { return int64(ptr.Deref(count(obj).wanted, 1)) }),
		table.Number("Current", "Current number of pods.", func(obj T) int64 { return int64(count(obj).existing) }),
		table.Number("Ready", "Pods that are ready.", func(obj T) int64 { return int64(count(obj).ready) }),
		table.Age(),
	}, template, selector)
}
