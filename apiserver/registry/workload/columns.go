package workload

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

// replicas are how many pods are wanted (nil: one), there and ready.
type replicas struct {
	wanted       *int32
	there, ready int32
}

// replicaColumns are those of what does nothing but keep a number of pods.
func replicaColumns[T kind.Object](count func(T) replicas, template func(T) *corev1.PodTemplateSpec, selector func(T) string) []table.Column {
	return pod.OwnerColumns([]table.Column{
		table.Name(),
		table.Number("Desired", "Pods wanted.", func(obj T) int64 { return int64(orOne(count(obj).wanted)) }),
		table.Number("Current", "Pods there are.", func(obj T) int64 { return int64(count(obj).there) }),
		table.Number("Ready", "Pods that are ready.", func(obj T) int64 { return int64(count(obj).ready) }),
		table.Age(),
	}, template, selector)
}
