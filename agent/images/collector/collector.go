// Package collector removes what nobody needs any more: dead containers and
// sandboxes, their logs, and images. What belongs to a pod that is deleted goes
// with it, by its worker; this is about the rest. What is to go is decided by
// package garbage.
package collector

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/images/garbage"
	"monopod/agent/images/image"
	"monopod/agent/pod/status"
)

// Runtime is the part of the agent's runtime that removes.
type Runtime interface {
	RemoveContainer(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	// ListContainers lists also those of others.
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
	ListImages(ctx context.Context) ([]*cri.Image, error)
	RemoveImage(ctx context.Context, image string) error
}

// Pod is one that the node runs, or has.
type Pod interface {
	// Garbage is what is known of it; false: it is not to be touched, because nothing
	// is known yet or because it goes as a whole.
	Garbage() (garbage.Pod, bool)
	// ContainerRemoved says that a dead container is no more.
	ContainerRemoved(*status.Container)
	// SandboxRemoved says that a dead sandbox is no more.
	SandboxRemoved(id string)
}

// Node is whom the Collector tells.
type Node interface {
	// ImagesChanged has the node's images listed anew.
	ImagesChanged()
	Event(eventType, reason, format string, args ...any)
}

// Deps are what a Collector works with; all but InUse are required.
type Deps struct {
	Runtime Runtime
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Node    Node
	// Pods are all pods of the node by UID.
	Pods func() map[types.UID]Pod
	// Known reports whether none is missing: else everything would seem to be nobody's.
	Known func() bool
	// Sweep removes what lies in folders for pods that are not there.
	Sweep func() (logFolders, logLinks int)
	// Preloaded are the names of images that stay.
	Preloaded func() map[string]bool
	// InUse are the names of images that are used by more than containers; nil: none.
	InUse func() []string
	// Images is where they lie.
	Images *image.Place
}

// Collector removes what is left over.
type Collector struct {
	Deps
	policy garbage.Policy
	seen   garbage.Images
	failed bool // the last pass over images did not free enough

	imagesGone *prometheus.CounterVec // by reason
	gone       *prometheus.CounterVec // by what
}

// New registers metrics; Run begins.
func New(deps Deps, policy garbage.Policy) (*Collector, error) {
	c := &Collector{Deps: deps, policy: policy,
		imagesGone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total", Help: "Images removed, by reason: age or space.",
		}, []string{"reason"}),
		gone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monopod_garbage_collected_total", Help: "What was removed of pods: container, sandbox, log_folder, log_link.",
		}, []string{"what"}),
	}
	return c, errors.Join(deps.Metrics.Register(c.imagesGone), deps.Metrics.Register(c.gone))
}

// Run looks at containers and images, each in its own time, until ctx ends.
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
				c.Log.Warn("dead containers not removed", zap.Error(err))
			}
		case <-images.C():
			if !c.policy.ImagesOff() {
				c.imagePass(ctx)
			}
		}
	}
}

// Reclaim removes, at once, all that DeadContainers and UnusedImages do.
func (c *Collector) Reclaim(ctx context.Context) {
	if err := c.DeadContainers(ctx); err != nil {
		c.Log.Warn("dead containers not removed for space", zap.Error(err))
	}
	if err := c.UnusedImages(ctx); err != nil {
		c.Log.Warn("unused images not removed for space", zap.Error(err))
	}
}

// DeadContainers removes, at once, every dead container that no policy keeps, and
// all of the pods that have ended, whose logs go with them.
func (c *Collector) DeadContainers(ctx context.Context) error { return c.containers(ctx, true) }
