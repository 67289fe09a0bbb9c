// Package metrics defines the kinds of metrics.k8s.io/v1beta1: the usage of nodes and pods, as kubectl top shows
// it. They are computed on request and never stored. In JSON they are upstream's (k8s.io/metrics); protobuf is
// not supported.
package metrics

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
)

// GroupVersion is the group and version of the kinds.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
}

// Nodes is the resource of NodeMetrics.
func Nodes() schema.GroupVersionResource { return GroupVersion().WithResource("nodes") }

// Pods is the resource of PodMetrics.
func Pods() schema.GroupVersionResource { return GroupVersion().WithResource("pods") }

// New returns an empty object of a resource; nil: it is not one of this package.
func New(resource schema.GroupVersionResource) client.Object {
	switch resource {
	case Nodes():
		return &NodeMetrics{TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion().String(), Kind: "NodeMetrics"}}
	case Pods():
		return &PodMetrics{TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion().String(), Kind: "PodMetrics"}}
	}
	return nil
}

// NewNode returns the usage of a node. Like metrics-server it cuts at to a second.
func NewNode(name string, labels map[string]string, at time.Time, window time.Duration,
	usage corev1.ResourceList) *NodeMetrics {
	m := New(Nodes()).(*NodeMetrics)
	m.Timestamp, m.Window = metav1.NewTime(at.Truncate(time.Second)), metav1.Duration{Duration: window}
	m.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: m.Timestamp}
	m.Usage = usage
	return m
}

// NewPod returns the usage of a pod, without its containers.
func NewPod(pod *corev1.Pod, at time.Time, window time.Duration) *PodMetrics {
	m := New(Pods()).(*PodMetrics)
	m.Timestamp, m.Window = metav1.NewTime(at.Truncate(time.Second)), metav1.Duration{Duration: window}
	m.ObjectMeta = metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels,
		CreationTimestamp: m.Timestamp}
	return m
}

// Usage returns the usage in the units of metrics-server: nanocores and KiB.
func Usage(nanocores, bytes uint64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(min(nanocores, math.MaxInt64)), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(min(bytes, math.MaxInt64))>>10<<10, resource.BinarySI),
	}
}

// NodeMetrics is a node's usage in the time Window before Timestamp.
type NodeMetrics struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Timestamp metav1.Time     `json:"timestamp"`
	Window    metav1.Duration `json:"window"`

	Usage corev1.ResourceList `json:"usage"` // cpu; memory: the working set
}

// PodMetrics is the usage of a pod's containers in the time Window before Timestamp.
type PodMetrics struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Timestamp metav1.Time     `json:"timestamp"`
	Window    metav1.Duration `json:"window"`

	Containers []ContainerMetrics `json:"containers"`
}

// ContainerMetrics is the usage of one container.
type ContainerMetrics struct {
	Name  string              `json:"name"`
	Usage corev1.ResourceList `json:"usage"`
}

var (
	_ client.Object = (*NodeMetrics)(nil)
	_ client.Object = (*PodMetrics)(nil)
)

// DeepCopyObject implements runtime.Object.
func (m *NodeMetrics) DeepCopyObject() runtime.Object {
	out := *m
	meta := &m.ObjectMeta
	meta.DeepCopyInto(&out.ObjectMeta)
	out.Usage = m.Usage.DeepCopy()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (m *PodMetrics) DeepCopyObject() runtime.Object {
	out := *m
	meta := &m.ObjectMeta
	meta.DeepCopyInto(&out.ObjectMeta)
	out.Containers = slices.Clone(m.Containers)
	for i := range out.Containers {
		out.Containers[i].Usage = out.Containers[i].Usage.DeepCopy()
	}
	return &out
}

// Sum returns the usage of all containers of the pod.
func (m *PodMetrics) Sum() corev1.ResourceList {
	sum := corev1.ResourceList{}
	for i := range m.Containers {
		for name, q := range m.Containers[i].Usage {
			have := sum[name]
			have.Add(q)
			sum[name] = have
		}
	}
	return sum
}
