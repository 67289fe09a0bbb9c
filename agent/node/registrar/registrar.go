// Package registrar keeps the Node object of an agent and its lease: it registers
// the node, renews the lease, and stores the node's status when it has changed or
// it is time. Labels, taints and conditions of others stay as they are.
package registrar

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/node/host"
	"monopod/apiserver/client"
	"monopod/apiserver/process/backoff"
)

// KubeletVersion is the Kubernetes the agent behaves as.
const KubeletVersion = "v1.37.2"

// Runtime is the part of the agent's runtime that the status tells of.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	Status(ctx context.Context) (*cri.StatusResponse, error)
	ListImages(ctx context.Context) ([]*cri.Image, error)
}

// Recorder writes events; it must not wait.
type Recorder interface {
	Reference(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Deps are what a Registrar works with. All are required; the functions are asked
// from Run on.
type Deps struct {
	Client   client.Client
	Runtime  Runtime
	Clock    clock.Clock
	Log      *zap.Logger
	Recorder Recorder
	// Resources are what the node has, and what of it pods may have.
	Resources func() (capacity, allocatable corev1.ResourceList)
	// Offer adds to the resources in next what device plugins offer; cur is what the
	// API has. first: nothing was stored since the start.
	Offer func(next, cur *corev1.NodeStatus, first bool)
	// Pressure are the conditions of scarcity that the node is in.
	Pressure func() []corev1.NodeConditionType
	// Down reports whether the machine is about to go down.
	Down func() bool
	// Learns is nil while the node learns what becomes of its pods.
	Learns func() error
	// Ready is called with each look that finds the runtime ready.
	Ready func(ctx context.Context)
}

// Config is about the node; all but Labels, Taints and StateRestored is required.
type Config struct {
	NodeName string
	Port     int32 // of the node's own server; 0: there is none
	HostIPs  []string
	Labels   map[string]string // more labels of the node
	Taints   []corev1.Taint    // of a node that registers for the first time
	// StateRestored says what happened when a snapshot took the place of the state
	// before this start; empty: it did not. The node's condition of that name.
	StateRestored string

	HeartbeatPeriod time.Duration // lease renewed, conditions checked
	StatusPeriod    time.Duration // status written though nothing changed
	LeaseDuration   time.Duration
}

// images are those that the node shows.
type images struct {
	list  []corev1.ContainerImage
	stale bool // it must be read again
}

// Registrar keeps the Node object and its lease.
type Registrar struct {
	Deps
	cfg  Config
	info corev1.NodeSystemInfo
	wake chan struct{}

	mu      sync.Mutex // guards what follows
	stored  *corev1.Node
	lacks   lacks // why pods are not limited
	images  images
	can     *cri.StatusResponse // what the runtime said last
	written time.Time           // the last status write
}

// New reads what the machine is; Run registers it.
func New(deps Deps, cfg Config) (*Registrar, error) {
	info, err := host.Info()
	if err != nil {
		return nil, err
	}
	info.KubeletVersion = KubeletVersion
	return &Registrar{Deps: deps, cfg: cfg, info: info, wake: make(chan struct{}, 1), images: images{stale: true}}, nil
}

// Run registers the node, then keeps its lease and status until ctx ends.
func (r *Registrar) Run(ctx context.Context) {
	retry := backoff.Retry{First: backoff.WriteInitial, Most: backoff.WriteMax}
	for {
		wait := r.cfg.HeartbeatPeriod
		if err := r.beat(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("node status not stored", zap.String("node", r.cfg.NodeName), zap.Error(err))
			wait = retry.Next()
		} else if retry.Reset(); !r.ready() {
			wait = notReadyCheck
		}
		timer := r.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// notReadyCheck is how often a runtime that is not ready is asked again; one
// that comes back says so itself.
const notReadyCheck = 250 * time.Millisecond

// Poke has the node's status looked at now.
func (r *Registrar) Poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Event tells of something that happened to the node.
func (r *Registrar) Event(eventType, reason, format string, args ...any) {
	node := r.Current()
	ref := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	r.Recorder.Reference(ref, eventType, reason, format, args...)
}

// ImagesChanged has the images listed anew.
func (r *Registrar) ImagesChanged() {
	r.mu.Lock()
	r.images.stale = true
	r.mu.Unlock()
	r.Poke()
}

// Current is the node as last stored, or as it will be.
func (r *Registrar) Current() *corev1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stored != nil {
		return r.stored
	}
	return r.fresh()
}

func (r *Registrar) ready() bool {
	c := findCondition(r.Current().Status.Conditions, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// beat renews the lease and stores the status, if it changed or it is time.
func (r *Registrar) beat(ctx context.Context) error {
	status := r.status(ctx)
	if err := r.store(ctx, status); err != nil {
		return err
	}
	return r.lease(ctx)
}
