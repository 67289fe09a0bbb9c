// Package devicetaint deletes pods whose allocated devices have a NoExecute taint that their claims do not tolerate, or
// no longer tolerate after tolerationSeconds. Taints come from drivers, in ResourceSlices, and from administrators, in
// DeviceTaintRules.
//
//   - devicetaint.go: which pods a change wakes, and their deletion.
//   - taints.go: the taints of devices, and when they evict a pod.
//   - rule.go: the condition EvictionInProgress of rules.
package devicetaint

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	upstream "k8s.io/dynamic-resource-allocation/resourceclaim"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// Name is upstream's name of the controller and the source of its Events.
const Name = "device-taint-eviction-controller"

// workers is upstream's number of workers.
const workers = 10

// Controller evicts pods from tainted devices.
type Controller struct {
	deps    follow.Deps
	events  record.Eventer
	deleted prometheus.Counter
	late    prometheus.Histogram
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller. It fails if its metrics are already registered.
func New(deps follow.Deps, events record.Eventer) (*Controller, error) {
	deleted, err := follow.Register(deps.Metrics, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "device_taint_eviction_controller_pod_deletions_total",
		Help: "Number of pods that were deleted because of a taint of their devices."}))
	if err != nil {
		return nil, err
	}
	late, err := follow.Register(deps.Metrics, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "device_taint_eviction_controller_pod_deletion_duration_seconds",
		Help:    "Time from when a device's taint required a pod's deletion to the deletion.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
	}))
	return &Controller{deps: deps, events: events, deleted: deleted, late: late}, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// key identifies a pod or a rule.
type key struct {
	rule bool
	follow.Key
}

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, pools: map[pool]map[string]*resourcev1.ResourceSlice{},
		rules: map[string]*resourcev1.DeviceTaintRule{},
		due:   map[types.UID]bool{}, evicted: map[types.UID]int{}}
	r.loop = follow.New(c.deps, follow.Config[key]{
		Name:    Name,
		Workers: workers,
		Sources: []follow.Source[key]{
			{Selector: client.Selector{Resource: client.Pods}, Keys: follow.Plain(r.onPod)},
			{Selector: client.Selector{Resource: client.ResourceClaims}, Keys: follow.Plain(onClaim)},
			{Selector: client.Selector{Resource: client.ResourceSlices}, Keys: r.onSlice},
			{Selector: client.Selector{Resource: client.DeviceTaintRules}, Keys: r.onRule},
		},
		Reconcile: r.reconcile,
	})
	return r.loop.Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	loop *follow.Loop[key]

	mu      sync.Mutex // guards the fields below
	pools   map[pool]map[string]*resourcev1.ResourceSlice
	rules   map[string]*resourcev1.DeviceTaintRule
	due     map[types.UID]bool // pods that have been waiting for their eviction
	evicted map[types.UID]int  // number of pods evicted because of a rule
}

// onPod wakes a pod when it is bound or gets a claim.
func (r *run) onPod(old, new client.Object) []key {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	if is == nil {
		r.mu.Lock()
		delete(r.due, was.UID)
		r.mu.Unlock()
		return nil
	}
	if is.Spec.NodeName == "" || len(is.Spec.ResourceClaims) == 0 && is.Status.ExtendedResourceClaimStatus == nil {
		return nil
	}
	if was != nil && was.Spec.NodeName == is.Spec.NodeName &&
		upstream.PodStatusEqual(was.Status.ResourceClaimStatuses, is.Status.ResourceClaimStatuses) &&
		upstream.PodExtendedStatusEqual(was.Status.ExtendedResourceClaimStatus, is.Status.ExtendedResourceClaimStatus) {
		return nil
	}
	return []key{{Key: follow.KeyOf(is)}}
}

// onClaim wakes the pods that use, or used, a claim.
func onClaim(old, new client.Object) (keys []key) {
	for _, obj := range []client.Object{old, new} {
		if claim, ok := obj.(*resourcev1.ResourceClaim); ok && claim.Status.Allocation != nil {
			keys = append(keys, users(claim)...)
		}
	}
	return keys
}

func users(claim *resourcev1.ResourceClaim) (keys []key) {
	for _, ref := range claim.Status.ReservedFor {
		if ref.APIGroup == "" && ref.Resource == "pods" {
			keys = append(keys, key{Key: follow.Key{Namespace: claim.Namespace, Name: ref.Name}})
		}
	}
	return keys
}

// onSlice wakes the pods that use devices of a pool with NoExecute taints.
func (r *run) onSlice(ctx context.Context, old, new client.Object) ([]key, error) {
	was, _ := old.(*resourcev1.ResourceSlice)
	is, _ := new.(*resourcev1.ResourceSlice)
	obj := is
	if obj == nil {
		obj = was
	}
	id := pool{obj.Spec.Driver, obj.Spec.Pool.Name}
	r.mu.Lock()
	before := r.hasNoExecute(id)
	if is != nil {
		if r.pools[id] == nil {
			r.pools[id] = map[string]*resourcev1.ResourceSlice{}
		}
		r.pools[id][is.Name] = is
	} else if delete(r.pools[id], was.Name); len(r.pools[id]) == 0 {
		delete(r.pools, id)
	}
	after := r.hasNoExecute(id)
	r.mu.Unlock()
	if !before && !after {
		return nil, nil
	}
	return r.usersOf(ctx, func(d *resourcev1.DeviceRequestAllocationResult) bool {
		return d.Driver == id.driver && d.Pool == id.name
	})
}

// onRule wakes the rule, and the pods that use devices to which it applies or applied.
func (r *run) onRule(ctx context.Context, old, new client.Object) ([]key, error) {
	was, _ := old.(*resourcev1.DeviceTaintRule)
	is, _ := new.(*resourcev1.DeviceTaintRule)
	r.mu.Lock()
	if is != nil {
		r.rules[is.Name] = is
	} else {
		delete(r.rules, was.Name)
		delete(r.evicted, was.UID)
	}
	r.mu.Unlock()
	if was != nil && is != nil && equality.Semantic.DeepEqual(was.Spec, is.Spec) {
		return nil, nil
	}
	keys, err := r.usersOf(ctx, func(d *resourcev1.DeviceRequestAllocationResult) bool {
		return evicting(was) && podstate.Taints(was, d.Driver, d.Pool, d.Device) ||
			evicting(is) && podstate.Taints(is, d.Driver, d.Pool, d.Device)
	})
	if is != nil {
		keys = append(keys, key{true, follow.KeyOf(is)})
	}
	return keys, err
}

// usersOf returns the pods that use devices for which f returns true.
func (r *run) usersOf(
	ctx context.Context, which func(*resourcev1.DeviceRequestAllocationResult) bool,
) (keys []key, err error) {
	claims, err := client.List[*resourcev1.ResourceClaim](ctx, r.deps.Client, client.Selector{})
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			if which(&claim.Status.Allocation.Devices.Results[i]) {
				keys = append(keys, users(claim)...)
				break
			}
		}
	}
	return keys, err
}

func (r *run) reconcile(ctx context.Context, k key) (time.Duration, error) {
	if k.rule {
		return r.rule(ctx, k.Name)
	}
	pod, err := client.Get[*corev1.Pod](ctx, r.deps.Client, k.Namespace, k.Name)
	if apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	e, err := r.eviction(ctx, pod, nil)
	if err != nil {
		return 0, err
	}
	if e == nil {
		if r.wait(pod.UID, false) {
			r.events.Eventf(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Cancelling deletion")
		}
		return 0, nil
	}
	if !r.wait(pod.UID, true) {
		r.report(e)
	}
	if left := e.when.Sub(r.deps.Clock.Now()); left > 0 {
		return left, nil
	}
	return 0, r.evict(ctx, pod, e)
}

// wait records whether a pod waits for its eviction, and returns whether it waited before.
func (r *run) wait(pod types.UID, waits bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	did := r.due[pod]
	if delete(r.due, pod); waits {
		r.due[pod] = true
	}
	return did
}

// report updates the condition of the rules that caused an eviction. It waits until pods that are evicted at the same
// time have been counted.
func (r *run) report(e *eviction) {
	for rule := range e.rules {
		r.loop.AddAfter(statusPeriod, key{true, follow.Key{Name: rule.Name}})
	}
}

// evict sets the condition DisruptionTarget and deletes the pod with its own grace period.
func (r *run) evict(ctx context.Context, pod *corev1.Pod, e *eviction) error {
	r.events.Eventf(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	const reason, message = "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint"
	err := podstate.Disrupt(ctx, r.deps.Client, pod, reason, message, r.deps.Clock.Now())
	if err == nil {
		_, err = r.deps.Client.Delete(ctx, client.RefOf(pod),
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	}
	if err != nil {
		return owned.IgnoreGone(err)
	}
	r.deleted.Inc()
	r.late.Observe(r.deps.Clock.Since(e.when).Seconds())
	r.mu.Lock()
	for rule := range e.rules {
		r.evicted[rule.UID]++
	}
	r.mu.Unlock()
	r.report(e)
	return nil
}
