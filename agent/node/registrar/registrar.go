// Package registrar maintains the Node object of an agent and its lease: it registers the node, renews the lease, and
// updates the node's status periodically and when it has changed. It keeps labels, taints and conditions of other
// components.
package registrar

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/host"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
)

// KubeletVersion is the version of Kubernetes that the agent implements.
const KubeletVersion = "v1.37.2"

// Runtime is the part of the agent's runtime that the status shows.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	Status(ctx context.Context) (*cri.StatusResponse, error)
	ListImages(ctx context.Context) ([]*cri.Image, error)
}

// Recorder writes events; it must not block.
type Recorder interface {
	Reference(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Deps are a Registrar's dependencies. All are required. The functions are not called before Run.
type Deps struct {
	Client   client.Client
	Runtime  Runtime
	Clock    clock.Clock
	Log      *zap.Logger
	Recorder Recorder
	// Resources returns the node's capacity and allocatable.
	Resources func() (capacity, allocatable corev1.ResourceList)
	// Offer adds the devices of plugins to the resources in next; cur is the status in the API. first means that no
	// status was written since the start.
	Offer func(next, cur *corev1.NodeStatus, first bool)
	// Pressure returns the node's pressure conditions.
	Pressure func() []corev1.NodeConditionType
	// ShuttingDown reports whether the machine is about to shut down.
	ShuttingDown func() bool
	// Needs returns why no pod can start on this machine; nil: nothing is missing.
	Needs func() error
	// PLEG returns nil while the node observes its pods.
	PLEG func() error
	// Ready is called after each check that finds the runtime ready.
	Ready func(ctx context.Context)
}

// Config describes the node. All fields except Port, PodCIDRs, OwnPodCIDRs, Labels, Taints and StateRestored are
// required.
type Config struct {
	NodeName string
	Port     int32 // of the node's own server; 0: none
	HostIPs  func() []string
	// Network returns why the kernel does not enforce Services or NetworkPolicies; nil: it does, or Monopod does not
	// provide the pod network.
	Network  func(ctx context.Context) error
	PodCIDRs func() []string // the ranges of pods' addresses; nil: not known
	// OwnPodCIDRs reports whether the node sets spec.podCIDRs itself, now or later, so that the node IPAM controller gives
	// it none; nil: it does not.
	OwnPodCIDRs func() bool
	Labels      map[string]string // additional labels of the node
	Taints      []corev1.Taint    // of a node that registers for the first time
	// StateRestored is the message of the condition StateRestored, after the state was restored from a snapshot at this
	// start; empty: no condition.
	StateRestored string

	HeartbeatPeriod time.Duration // interval of lease renewals and checks of conditions
	StatusPeriod    time.Duration // interval at which an unchanged status is written
	LeaseDuration   time.Duration
}

// images are the images in the node's status.
type images struct {
	list  []corev1.ContainerImage
	stale bool // list must be read again
}

// Registrar maintains the Node object and its lease.
type Registrar struct {
	Deps
	cfg  Config
	info corev1.NodeSystemInfo
	wake chan struct{}

	mu             sync.Mutex // guards the fields below
	stored         *corev1.Node
	cgroupProblems cgroupProblems // why pods are not limited
	images         images
	runtimeStatus  *cri.StatusResponse // the runtime's last answer
	written        time.Time           // the last status write
	// problems are the messages of conditions that Problem has set.
	problems map[corev1.NodeConditionType]string
}

// New reads the facts about the machine. Run registers the node.
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
		err := r.store(ctx, r.status(ctx))
		if err == nil {
			err = r.lease(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("failed to update the node status", zap.String("node", r.cfg.NodeName), zap.Error(err))
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

// notReadyCheck is the interval of checks while the runtime is not ready.
const notReadyCheck = 250 * time.Millisecond

// Poke makes Run check the node's status now.
func (r *Registrar) Poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Event records an Event of the node.
func (r *Registrar) Event(eventType, reason, format string, args ...any) {
	node := r.Current()
	ref := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	r.Recorder.Reference(ref, eventType, reason, format, args...)
}

// ImagesChanged makes Run list the images again.
func (r *Registrar) ImagesChanged() {
	r.mu.Lock()
	r.images.stale = true
	r.mu.Unlock()
	r.Poke()
}

// Current returns the node as last written, or as it will be registered.
func (r *Registrar) Current() *corev1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stored != nil {
		return r.stored
	}
	return r.newNode()
}

// Latest returns Current with the labels and the spec that the API has now, by which the scheduler places pods.
func (r *Registrar) Latest(ctx context.Context) *corev1.Node {
	now := *r.Current()
	if node, err := client.Get[*corev1.Node](ctx, r.Client, "", r.cfg.NodeName); err == nil {
		now.Labels, now.Spec = node.Labels, node.Spec
	}
	return &now
}

func (r *Registrar) ready() bool {
	c := findCondition(r.Current().Status.Conditions, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}
