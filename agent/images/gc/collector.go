// Package gc garbage-collects dead containers and sandboxes, their logs, and images. The worker of a deleted pod
// removes everything that belongs to the pod; this package removes the rest.
//
//   - policy.go: the limits, with upstream's flags and defaults
//   - policy_containers.go, policy_images.go: decide what can be removed; pure
//   - collector.go: removes it, periodically and under disk pressure
package gc

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/images/pull"
	"monopod/agent/podapi/status"
)

// Runtime contains the methods of runtime.Runtime that a Collector needs.
type Runtime interface {
	RemoveContainer(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	// ListContainers also lists containers of other clients.
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
	ListImages(ctx context.Context) ([]*cri.Image, error)
	RemoveImage(ctx context.Context, image string) error
}

// RunningPod is a pod on the node.
type RunningPod interface {
	// Garbage returns the pod's containers and sandboxes. It returns false if nothing of the pod may be removed, because
	// its state is not known yet or it is being removed.
	Garbage() (Pod, bool)
	// ContainerRemoved is called after a dead container was removed.
	ContainerRemoved(*status.Container)
	// SandboxRemoved is called after a dead sandbox was removed.
	SandboxRemoved(id string)
}

// Node is notified by the Collector.
type Node interface {
	// ImagesChanged triggers an update of the images in the node's status.
	ImagesChanged()
	Event(eventType, reason, format string, args ...any)
}

// Deps are a Collector's dependencies; all but InUse are required.
type Deps struct {
	Runtime Runtime
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Node    Node
	// Pods returns all pods of the node by UID.
	Pods func() map[types.UID]RunningPod
	// PodsListed reports whether Pods is complete: before, everything would seem orphaned.
	PodsListed func() bool
	// Sweep removes orphaned log folders and links.
	Sweep func(ctx context.Context) (logFolders, logLinks int)
	// Preloaded returns the names of images that must not be removed.
	Preloaded func() map[string]bool
	// InUse returns the names of images that are in use, but not by containers; it may be nil.
	InUse func() []string
	// ImageRemoved is called with the ID of a removed image.
	ImageRemoved func(id string)
	// Images is the location of images.
	Images *pull.Place
}

// Collector garbage-collects containers, sandboxes, logs and images.
type Collector struct {
	Deps
	policy        Policy
	usage         Images
	imageGCFailed bool // the last pass over images did not free enough

	imagesRemoved *prometheus.CounterVec // by reason
	removed       *prometheus.CounterVec // by type
}

// New returns a Collector and registers its metrics. The caller calls Run.
func New(deps Deps, policy Policy) (*Collector, error) {
	c := &Collector{Deps: deps, policy: policy,
		imagesRemoved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total", Help: "Images removed, by reason: age or space.",
		}, []string{"reason"}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monopod_garbage_collected_total",
			Help: "Removed objects of pods, by type: container, sandbox, log_folder, log_link.",
		}, []string{"what"}),
	}
	return c, errors.Join(deps.Metrics.Register(c.imagesRemoved), deps.Metrics.Register(c.removed))
}

// Run collects containers and images, each at its own interval, until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	containers := c.Clock.NewTicker(c.policy.ContainerPeriod)
	defer containers.Stop()
	images := c.Clock.NewTicker(c.policy.ImagePeriod)
	defer images.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-containers.C():
			if err := c.containers(ctx, false); err != nil && ctx.Err() == nil {
				c.Log.Warn("failed to remove dead containers", zap.Error(err))
			}
		case <-images.C():
			if !c.policy.ImagesOff() {
				c.imagePass(ctx)
			}
		}
	}
}

// Reclaim calls DeadContainers and UnusedImages, and logs their errors.
func (c *Collector) Reclaim(ctx context.Context) {
	if err := c.DeadContainers(ctx); err != nil {
		c.Log.Warn("failed to remove dead containers to free space", zap.Error(err))
	}
	if err := c.UnusedImages(ctx); err != nil {
		c.Log.Warn("failed to remove unused images to free space", zap.Error(err))
	}
}

// DeadContainers removes every dead container that the policy does not keep, and all containers and logs of pods that
// have ended, without waiting for the next period.
func (c *Collector) DeadContainers(ctx context.Context) error { return c.containers(ctx, true) }
