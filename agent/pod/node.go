package pod

import (
	"context"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/pod/containers"
	"monopod/agent/pod/images"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/sandbox"
	"monopod/agent/pod/volumes"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Node contains the dependencies that the pods of a node share. They are safe for concurrent use.
type Node struct {
	Client  client.Client
	Runtime Runtime
	Clock   clock.WithTicker
	Log     *zap.Logger
	Guard   *guard.Guard
	HostIPs func() []string
	Memory  spec.Memory // of the machine
	// SyncFrequency is the resync interval of a pod.
	SyncFrequency time.Duration

	Observers  observe.Node
	Images     images.Node
	Volumes    volumes.Node
	Sandboxes  sandbox.Node
	Containers containers.Node
	Placement  Placement
	Statuses   Statuses
	Hooks      Hooks
}

// Runtime is the part of the runtime that the worker itself uses.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error
	ListContainerStats(ctx context.Context, filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error)
}

// Placement allocates exclusive CPUs, memory of NUMA nodes and devices.
type Placement interface {
	// PrepareDevices makes the plugins prepare the allocated devices of the pod's containers.
	PrepareDevices(ctx context.Context, pod *corev1.Pod) error
	// PrepareClaims makes DRA drivers prepare the devices of the pod's resource claims.
	PrepareClaims(ctx context.Context, pod *corev1.Pod) error
	// UnprepareClaims makes the drivers release the claims, once all containers are dead.
	UnprepareClaims(ctx context.Context, pod types.UID) error
	// HoldsClaims reports whether UnprepareClaims has claims to release.
	HoldsClaims(pod types.UID) bool
	// Health returns the health of each container's devices; nil if the pod has no devices, or has released them.
	Health(pod types.UID) map[string][]corev1.ResourceStatus
	// Release releases the pod's allocations.
	Release(pod types.UID)
}

// Statuses stores the statuses of pods.
type Statuses interface {
	Set(ctx context.Context, pod *corev1.Pod, want *corev1.PodStatus)
	// Restore stores the last status again if another component has changed it; pod is the newest version.
	Restore(ctx context.Context, pod *corev1.Pod)
	// Flush waits until the last status is stored, or the pod is gone.
	Flush(ctx context.Context, pod types.UID) error
}

// Hooks are functions of the node that a pod calls. Only AcquireStart and AcquireStop may block.
type Hooks struct {
	// Event writes an event about the pod, or one of its containers.
	Event func(pod *corev1.Pod, container, eventType, reason, format string, args ...any)
	// CheckResize returns why a pod with the resources in allocated cannot be resized to those in next; nil: it can.
	CheckResize func(allocated, next *corev1.Pod) *status.Resize
	// Readmit requests a second decision about the pod, after its victims are gone; it calls Readmitted.
	Readmit func(ctx context.Context, p *Pod)
	// AcquireStart waits until the pod may start, or ctx ends. The node limits concurrent starts until release is called.
	AcquireStart func(ctx context.Context) (release func())
	// AcquireStop waits until the pod's containers and sandbox may be stopped, or ctx ends; see AcquireStart.
	AcquireStop func(ctx context.Context) (release func())
	// Unmounted is called when no container of the pod runs and its volumes are unmounted.
	Unmounted func(pod types.UID)
	// Unavailable is called when the runtime did not respond.
	Unavailable func()
	// Stepped receives the duration of a step and kubelet's name of its operation, Ran the time until a new pod ran.
	Stepped func(operation string, took time.Duration)
	Ran     func(took time.Duration)
	// Terminated is called with the type of each container that is reported as terminated.
	Terminated func(kind string, end *corev1.ContainerStateTerminated)
}
