// Package replicaset keeps the number of pods of each ReplicaSet and each ReplicationController at its replicas.
//
//   - kind.go: the two kinds; everything else is written for both.
//   - adopt.go: adopts and releases pods.
//   - victims.go: the metric of the ages of deleted pods.
package replicaset

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
)

// Name of the controller.
const Name = "replicaset"

// Component is the source of its events.
const Component = "replicaset-controller"

// The ReplicationControllers' controller has its own name and source of Events.
const (
	ReplicationControllers          = "replicationcontroller"
	ReplicationControllersComponent = "replication-controller"
)

const (
	burst    = 500 // maximum number of pods created, or deleted, together (upstream burstReplicas)
	parallel = 50  // concurrent requests; upstream sends a whole batch at once
)

// Config of the controller.
type Config struct {
	Workers int // --concurrent-replicaset-syncs or --concurrent-rc-syncs; 0 means upstream's 5
}

// Controller keeps the pods of ReplicaSets.
type Controller struct {
	deps     follow.Deps
	events   record.Eventer
	cfg      Config
	kind     kind
	sortings *prometheus.HistogramVec
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller of ReplicaSets and registers its metrics.
func New(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	return newController(deps, events, cfg, replicaSets())
}

// NewReplicationControllers returns the controller of ReplicationControllers, which has the same metrics.
func NewReplicationControllers(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	return newController(deps, events, cfg, replicationControllers())
}

func newController(deps follow.Deps, events record.Eventer, cfg Config, k kind) (*Controller, error) {
	cfg.Workers = cmp.Or(cfg.Workers, 5)
	c := &Controller{deps: deps, events: events, cfg: cfg, kind: k,
		sortings: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "replicaset_controller_sorting_deletion_age_ratio",
			Help:    "Ratio of the age of a deleted pod to the age of the youngest pod, when scaling down.",
			Buckets: prometheus.ExponentialBuckets(0.25, 2, 6),
		}, nil),
	}
	err := deps.Metrics.Registerer.Register(c.sortings)
	if again, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		c.sortings, err = again.ExistingCollector.(*prometheus.HistogramVec), nil // registered by the other kind
	}
	return c, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return c.kind.name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, adopter: c.kind.adopter(c.deps.Client),
		control: owned.Pods{Client: c.deps.Client, Events: c.events}, pods: owned.NewIndex[*corev1.Pod]()}
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:    c.kind.name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: c.kind.resource}, Keys: follow.Plain(follow.OnAny)},
			{Selector: client.Selector{Resource: client.Pods}, Keys: c.kind.onPod(c.deps.Client, r.pods)},
		},
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	adopter owned.Adopter[*corev1.Pod]
	control owned.Pods
	pods    *owned.Index[*corev1.Pod]
}

// reconcile syncs an object: its pods, then its status even if the pods fail.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	rs, err := r.kind.get(ctx, r.deps.Client, key)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return 0, nil // the API rejects such a selector; a retry would not help
	}
	mine, err := r.adopt(ctx, rs, selector, r.pods.OfOrOrphan(rs))
	if err != nil {
		return 0, err
	}
	active, terminating := split(mine)
	var manageErr error
	if rs.DeletionTimestamp == nil && len(active) != desired(rs.ReplicaSet) {
		// The index may lack pods that were just created or are older than rs, and contain pods that were just deleted. No
		// pod is created or deleted before a check of the pods in the API.
		stored, err := client.List[*corev1.Pod](ctx, r.deps.Client,
			client.Selector{Namespace: rs.Namespace, Labels: selector})
		if err != nil {
			return 0, err
		}
		if mine, err = r.adopt(ctx, rs, selector, stored); err != nil {
			return 0, err
		}
		active, terminating = split(mine)
		active, manageErr = r.manage(ctx, rs, active)
	}
	return r.report(ctx, rs, active, terminating, manageErr)
}

// desired returns spec.replicas, which the API server defaults to 1.
func desired(rs *appsv1.ReplicaSet) int {
	return int(ptr.Deref(rs.Spec.Replicas, 1))
}
