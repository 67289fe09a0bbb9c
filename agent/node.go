package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/backoff"
	"monopod/agent/host"
	"monopod/apiserver/client"
)

// kubeletVersion is the Kubernetes the agent behaves as.
const kubeletVersion = "v1.37.2"

// registrar keeps the Node object and its lease.
type registrar struct {
	a    *Agent
	info corev1.NodeSystemInfo
	wake chan struct{}

	mu      sync.Mutex // guards what follows
	stored  *corev1.Node
	missing string // why pod cgroups cannot be limited
	stale   bool   // the list of images must be read again
	images  []corev1.ContainerImage
	can     *cri.StatusResponse // what the runtime said last
	written time.Time           // the last status write
}

func newRegistrar(a *Agent) (*registrar, error) {
	info, err := host.Info()
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	info.KubeletVersion = kubeletVersion
	return &registrar{
		a: a, info: info, wake: make(chan struct{}, 1), stale: true,
	}, nil
}

// run registers the node, then keeps its lease and status until ctx ends.
func (r *registrar) run(ctx context.Context) {
	delay := backoff.WriteInitial
	for {
		wait := r.a.cfg.HeartbeatPeriod
		if err := r.beat(ctx); err != nil && ctx.Err() == nil {
			r.a.log.Warn("node status not stored", zap.String("node", r.a.cfg.NodeName), zap.Error(err))
			wait, delay = delay, min(2*delay, backoff.WriteMax)
		} else if delay = backoff.WriteInitial; !r.ready() {
			wait = notReadyCheck
		}
		timer := r.a.Clock.NewTimer(wait)
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

// poke has the node's status looked at now.
func (r *registrar) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// lacks notes that pods' cgroups cannot be limited here, which is a condition of
// the node and an event, and no reason to refuse pods.
func (r *registrar) lacks(err error) {
	r.mu.Lock()
	first := r.missing == ""
	r.missing = err.Error()
	r.mu.Unlock()
	if first {
		r.a.Recorder.Reference(r.reference(), corev1.EventTypeWarning, "CgroupLimitsUnavailable", "Pod limits cannot be set: %v", err)
		r.poke()
	}
}

func (r *registrar) reference() corev1.ObjectReference {
	node := r.current()
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

func (r *registrar) imagesChanged() {
	r.mu.Lock()
	r.stale = true
	r.mu.Unlock()
	r.poke()
}

// current is the node as last stored, or as it will be.
func (r *registrar) current() *corev1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stored != nil {
		return r.stored
	}
	return r.fresh()
}

func (r *registrar) ready() bool {
	c := findCondition(r.current().Status.Conditions, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// beat renews the lease and stores the status, if it changed or it is time.
func (r *registrar) beat(ctx context.Context) error {
	status := r.status(ctx)
	if err := r.store(ctx, status); err != nil {
		return err
	}
	return r.lease(ctx)
}

// fresh is the node as first registered.
func (r *registrar) fresh() *corev1.Node {
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: r.a.cfg.NodeName, Labels: r.labels()},
		Spec:       corev1.NodeSpec{Taints: slices.Clone(r.a.cfg.Taints)},
	}
	node.Status.Capacity, node.Status.Allocatable = r.a.capacity, r.a.allocatable
	return node
}

func (r *registrar) labels() map[string]string {
	labels := map[string]string{
		corev1.LabelHostname: r.a.cfg.NodeName, corev1.LabelOSStable: r.info.OperatingSystem, corev1.LabelArchStable: r.info.Architecture,
	}
	maps.Copy(labels, r.a.cfg.Labels)
	return labels
}

// store creates the node or brings it up to date.
func (r *registrar) store(ctx context.Context, status corev1.NodeStatus) error {
	stored, err := r.registered(ctx)
	if err != nil {
		return err
	}
	now := r.a.Clock.Now()
	due := r.written.IsZero() || now.Sub(r.written) >= r.a.cfg.StatusPeriod
	stamp(&status, &stored.Status, now)
	r.a.devices.offer(&status, &stored.Status, r.written.IsZero())
	if !due && unchanged(&stored.Status, &status) {
		return nil
	}
	next, err := client.Update(ctx, r.a.Client, stored, "status", func(cur *corev1.Node) error {
		stamp(&status, &cur.Status, now)
		status.Conditions = append(status.Conditions, others(cur.Status.Conditions, status.Conditions)...)
		status.VolumesAttached, status.VolumesInUse = cur.Status.VolumesAttached, cur.Status.VolumesInUse
		r.a.devices.offer(&status, &cur.Status, r.written.IsZero())
		cur.Status = status
		return nil
	})
	if err != nil {
		return err
	}
	r.written = now
	r.keep(next)
	if old, boot := stored.Status.NodeInfo.BootID, r.info.BootID; old != "" && old != boot {
		r.a.Recorder.Reference(r.reference(), corev1.EventTypeWarning, "Rebooted", "Node %s has been rebooted, boot id: %s", next.Name, boot)
	}
	return nil
}

// registered is the node as it is in the API, where others may have changed or
// deleted it; there always is one.
func (r *registrar) registered(ctx context.Context) (*corev1.Node, error) {
	node, err := client.Get[*corev1.Node](ctx, r.a.Client, "", r.a.cfg.NodeName)
	first := r.written.IsZero()
	if apierrors.IsNotFound(err) || err == nil && first {
		if node, err = r.register(ctx); err == nil && !first {
			r.written = time.Time{}
		}
	}
	if err != nil {
		return nil, err
	}
	r.keep(node)
	return node, nil
}

func (r *registrar) keep(node *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = node
}

// register makes sure the node exists with our labels.
func (r *registrar) register(ctx context.Context) (*corev1.Node, error) {
	created, err := r.a.Client.Create(ctx, r.fresh())
	if err == nil {
		r.a.log.Info("node registered", zap.String("node", r.a.cfg.NodeName))
		return created.(*corev1.Node), nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("register node: %w", err)
	}
	return client.Update(ctx, r.a.Client, r.fresh(), "", func(cur *corev1.Node) error {
		if cur.Labels == nil {
			cur.Labels = map[string]string{}
		}
		maps.Copy(cur.Labels, r.labels())
		return nil
	})
}

// stamp gives conditions their times: the transition of those that did not
// change, now for the heartbeat.
func stamp(next, cur *corev1.NodeStatus, now time.Time) {
	for i := range next.Conditions {
		c := &next.Conditions[i]
		c.LastHeartbeatTime = metav1.NewTime(now.Truncate(time.Second))
		c.LastTransitionTime = c.LastHeartbeatTime
		if old := findCondition(cur.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
}

func others(all, own []corev1.NodeCondition) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, c := range all {
		if findCondition(own, c.Type) == nil && c.Type != conditionCgroups && c.Type != conditionRestored {
			out = append(out, c)
		}
	}
	return out
}

// unchanged compares all but heartbeats and the conditions of others.
func unchanged(stored, next *corev1.NodeStatus) bool {
	a, b := stored.DeepCopy(), next.DeepCopy()
	b.Conditions = append(b.Conditions, others(a.Conditions, b.Conditions)...)
	b.VolumesAttached, b.VolumesInUse = a.VolumesAttached, a.VolumesInUse
	for _, s := range []*corev1.NodeStatus{a, b} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		slices.SortFunc(s.Conditions, func(x, y corev1.NodeCondition) int { return cmp.Compare(x.Type, y.Type) })
	}
	return apiequality.Semantic.DeepEqual(a, b)
}

func findCondition(list []corev1.NodeCondition, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

// lease renews the node's lease, which lives in memory only.
func (r *registrar) lease(ctx context.Context) error {
	fill := func(l *coordinationv1.Lease) error {
		l.Spec.HolderIdentity = new(r.a.cfg.NodeName)
		l.Spec.LeaseDurationSeconds = new(int32(r.a.cfg.LeaseDuration / time.Second))
		l.Spec.RenewTime = &metav1.MicroTime{Time: r.a.Clock.Now()}
		return nil
	}
	l := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: r.a.cfg.NodeName, Namespace: corev1.NamespaceNodeLease},
	}
	_, err := client.Update(ctx, r.a.Client, l, "", fill)
	if !apierrors.IsNotFound(err) {
		return err
	}
	node := r.current()
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	_ = fill(l)
	if _, err := r.a.Client.Create(ctx, l); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}
