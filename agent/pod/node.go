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
	"monopod/agent/pod/status"
	"monopod/agent/pod/volumes"
	"monopod/apiserver/client"
	"monopod/apiserver/process/guard"
)

// Node is what the pods of a node have in common. It is plain data; what it refers to is
// safe for concurrent use.
type Node struct {
	Client  client.Client
	Runtime Runtime
	Clock   clock.WithTicker
	Log     *zap.Logger
	Guard   *guard.Guard
	HostIPs []string
	Memory  int64 // of the machine
	// SyncFrequency is about how often a pod is looked at though nothing happened.
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

// Runtime is what the runtime is asked for by the worker itself.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error
}

// Placement gives pods exclusive CPUs, memory of NUMA nodes and devices.
type Placement interface {
	// PrepareDevices has the plugins prepare what the pod's containers were given.
	PrepareDevices(ctx context.Context, pod *corev1.Pod) error
	// Health is that of each container's devices; nil: it has none, or has them no longer.
	Health(pod types.UID) map[string][]corev1.ResourceStatus
	// Release takes back what the pod was given.
	Release(pod types.UID)
}

// Statuses stores the statuses of pods.
type Statuses interface {
	Set(ctx context.Context, pod *corev1.Pod, want *corev1.PodStatus)
	// Flush waits until the status last set is stored, or the pod is gone.
	Flush(ctx context.Context, pod types.UID) error
}

// Hooks are functions of the node that a pod calls. They must not wait, but for Turn.
type Hooks struct {
	// Event writes an event about a pod, or one of its containers.
	Event func(pod *corev1.Pod, container, eventType, reason, format string, args ...any)
	// Fits says why the node cannot give pod, which has what had says, what it asks for:
	// never, or not now; nil: it can.
	Fits func(had, pod *corev1.Pod) *status.Resize
	// Readmit has the pod judged again, whose victims are gone; Readmitted is called then.
	Readmit func(ctx context.Context, p *Pod)
	// Turn waits until the pod may start from nothing, or ctx ends; done gives the turn
	// back.
	Turn func(ctx context.Context) (done func())
	// Unmounted hears that nothing of the pod runs, and that its volumes are unmounted.
	Unmounted func(pod types.UID)
	// Unavailable hears that the runtime did not answer.
	Unavailable func()
	// Stepped hears how long a step took, by what upstream calls it; Ran how long it took
	// until a new pod ran.
	Stepped func(operation string, took time.Duration)
	Ran     func(took time.Duration)
}
