package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/podapi/status"
	"monopod/agent/source/static"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
)

const (
	// restoreTimeout limits the wait of the first static pods for an API that does not respond.
	restoreTimeout = time.Second
	// retryMax is the longest pause between the attempts for one mirror pod.
	retryMax = 20 * time.Second
)

// MirrorDeps are the dependencies of Mirrors. All are required.
type MirrorDeps struct {
	Client  client.Client
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics *follow.Metrics
	// Runs reports whether the node runs or terminates the static pod of that UID and name.
	Runs func(uid types.UID, namespace, name string) bool
	// Rewrite stores the status of a static pod again.
	Rewrite func(ctx context.Context, uid types.UID)
}

// Mirrors maintains the mirror pods of one node. A change of a mirror pod never changes the static pod: a deleted
// mirror pod is created again, and a mirror pod without a static pod is deleted.
type Mirrors struct {
	MirrorDeps
	node string

	mu     sync.Mutex               // guards the fields below
	loop   *follow.Loop[follow.Key] // nil: not yet running
	listed bool                     // the pods of the API are known
	want   map[follow.Key]*corev1.Pod
	have   map[follow.Key]*corev1.Pod // mirror pods in the API
	ended  map[types.UID]bool         // UIDs of mirror pods whose static pod has ended
	failed map[follow.Key]string      // the last error of each pod
}

// NewMirrors returns the Mirrors of a node. They do nothing until SetList is called.
func NewMirrors(deps MirrorDeps, node string) *Mirrors {
	return &Mirrors{
		MirrorDeps: deps, node: node,
		want: map[follow.Key]*corev1.Pod{}, have: map[follow.Key]*corev1.Pod{},
		ended: map[types.UID]bool{}, failed: map[follow.Key]string{},
	}
}

// RestoreStatuses sets the statuses of static pods to those of their mirror pods, which an earlier agent wrote. It does
// nothing if the API does not respond.
func (m *Mirrors) RestoreStatuses(ctx context.Context, pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	mine := fields.OneTermEqualSelector("spec.nodeName", m.node)
	stored, err := client.List[*corev1.Pod](ctx, m.Client, client.Selector{Fields: mine})
	if err != nil {
		m.Log.Warn("failed to read the mirror pods: static pods start without their former statuses", zap.Error(err))
		return
	}
	for _, mirror := range stored {
		for _, pod := range pods {
			if uid, ok := static.Mirrored(mirror); ok && uid == pod.UID && follow.KeyOf(mirror) == follow.KeyOf(pod) {
				if past := restoredStatus(mirror); past != nil {
					pod.Status = *past
				}
			}
		}
	}
}

// SetStatic sets the desired static pods of the node.
func (m *Mirrors) SetStatic(pods []*corev1.Pod) {
	want := map[follow.Key]*corev1.Pod{}
	for _, pod := range pods {
		want[follow.KeyOf(pod)] = pod
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.want = want
	m.wakeAll()
}

// SetList sets the mirror pods to those in a full list of the node's pods, and returns the others.
func (m *Mirrors) SetList(ctx context.Context, list []*corev1.Pod) (pods []*corev1.Pod) {
	have := map[follow.Key]*corev1.Pod{}
	for _, pod := range list {
		if _, mirror := static.Mirrored(pod); mirror {
			have[follow.KeyOf(pod)] = pod
		} else {
			pods = append(pods, pod)
		}
	}
	m.mu.Lock()
	m.have, m.listed = have, true
	m.mu.Unlock()
	for _, pod := range list {
		if _, mirror := static.Mirrored(pod); mirror {
			m.writeStatus(ctx, pod)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wakeAll()
	return pods
}

// Changed records a mirror pod that has changed or is gone. It returns false for other pods.
func (m *Mirrors) Changed(ctx context.Context, pod *corev1.Pod, gone bool) bool {
	if _, mirror := static.Mirrored(pod); !mirror {
		return false
	}
	name := follow.KeyOf(pod)
	m.mu.Lock()
	old := m.have[name]
	switch {
	case !gone:
		m.have[name] = pod
	case old != nil && old.UID == pod.UID:
		delete(m.have, name)
	}
	if gone {
		delete(m.ended, pod.UID)
	}
	m.mu.Unlock()
	if !gone && (old == nil || old.UID != pod.UID) {
		m.writeStatus(ctx, pod)
	}
	if gone || pod.DeletionTimestamp != nil || old == nil {
		m.wake(name)
	}
	return true
}

// writeStatus stores the static pod's status in a new mirror pod.
func (m *Mirrors) writeStatus(ctx context.Context, mirror *corev1.Pod) {
	if uid, _ := static.Mirrored(mirror); m.Runs(uid, mirror.Namespace, mirror.Name) {
		m.Rewrite(ctx, uid)
	}
}

// Ended records that nothing is left of a static pod. Its mirror pod is deleted, even if the static pod starts again:
// the new pod has a new status.
func (m *Mirrors) Ended(pod *corev1.Pod) {
	name := follow.KeyOf(pod)
	m.mu.Lock()
	if mirror := m.have[name]; mirror != nil && mirror.Annotations[corev1.MirrorPodAnnotationKey] == string(pod.UID) {
		m.ended[mirror.UID] = true
	}
	m.mu.Unlock()
	m.wake(name)
}

// StaticPod returns a mirror pod with the UID of its static pod, and any other pod as it is. The annotation alone is
// not enough, because every user may write it: the node must run the static pod.
func (m *Mirrors) StaticPod(pod *corev1.Pod) *corev1.Pod {
	uid, mirror := static.Mirrored(pod)
	if !mirror || !m.Runs(uid, pod.Namespace, pod.Name) {
		return pod
	}
	shown := *pod
	shown.UID = uid
	return &shown
}

func (m *Mirrors) wake(name follow.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loop != nil {
		m.loop.Add(name)
	}
}

// wakeAll reconciles every static pod and every mirror pod. The caller holds mu.
func (m *Mirrors) wakeAll() {
	if m.loop == nil {
		return
	}
	m.loop.Add(slices.Collect(maps.Keys(m.have))...)
	m.loop.Add(slices.Collect(maps.Keys(m.want))...)
}

// Run creates and deletes mirror pods until ctx ends. reconcile logs failures, once each, instead of the loop.
func (m *Mirrors) Run(ctx context.Context) {
	loop := follow.New(follow.Deps{
		Client: m.Client, Clock: m.Clock, Log: m.Log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel)), Metrics: m.Metrics,
	}, follow.Config[follow.Key]{
		Name: "mirrors", MinRetry: backoff.WriteInitial, MaxRetry: retryMax,
		Reconcile: func(within context.Context, name follow.Key) (time.Duration, error) {
			made, err := m.reconcile(within, name)
			if made != nil {
				m.Changed(ctx, made, false) // starts a write of the status, which must not end with this reconcile
			}
			return 0, err
		},
	})
	m.mu.Lock()
	m.loop = loop
	m.wakeAll()
	m.mu.Unlock()
	guard.Raise(loop.Run(ctx))
}

// reconcile deletes a useless mirror pod, or creates and returns a missing one. It logs an error that differs from the
// last one.
func (m *Mirrors) reconcile(ctx context.Context, name follow.Key) (made *corev1.Pod, err error) {
	m.mu.Lock()
	mirror, want := m.have[name], m.want[name]
	listed, useless := m.listed, mirror != nil && m.useless(name, mirror)
	m.mu.Unlock()
	switch {
	case !listed:
	case useless:
		err = m.remove(ctx, mirror)
	case mirror == nil && want != nil:
		made, err = m.create(ctx, name, want)
	}
	if err == nil || ctx.Err() != nil {
		return made, err
	}
	m.mu.Lock()
	again := m.failed[name] == err.Error()
	m.failed[name] = err.Error()
	m.mu.Unlock()
	if !again && !errors.Is(err, context.Canceled) {
		m.Log.Warn("static pod not shown in the API", zap.String("namespace", name.Namespace), zap.String("pod", name.Name),
			zap.Error(err))
	}
	return made, err
}

// useless reports whether a mirror pod represents neither the desired static pod of its name nor one that still
// terminates. The caller holds mu.
func (m *Mirrors) useless(name follow.Key, mirror *corev1.Pod) bool {
	if mirror.DeletionTimestamp != nil || m.ended[mirror.UID] {
		return true
	}
	uid, _ := static.Mirrored(mirror)
	if want := m.want[name]; want != nil {
		return want.UID != uid
	}
	return !m.Runs(uid, name.Namespace, name.Name)
}

// create creates the mirror pod of a static pod, owned by the node.
func (m *Mirrors) create(ctx context.Context, name follow.Key, pod *corev1.Pod) (*corev1.Pod, error) {
	node, err := client.Get[*corev1.Node](ctx, m.Client, "", m.node)
	if err != nil {
		return nil, fmt.Errorf("mirror needs its node: %w", err)
	}
	made, err := m.Client.Create(ctx, static.Mirror(pod, node.UID))
	if err != nil {
		return nil, fmt.Errorf("create mirror: %w", err)
	}
	m.mu.Lock()
	delete(m.failed, name)
	m.mu.Unlock()
	return made.(*corev1.Pod), nil
}

// remove deletes a mirror pod with grace period 0. Finalizers may keep it; the watch reports when it is gone.
func (m *Mirrors) remove(ctx context.Context, mirror *corev1.Pod) error {
	if g := mirror.DeletionGracePeriodSeconds; g != nil && *g == 0 {
		return nil
	}
	_, err := m.Client.Delete(ctx, client.RefOf(mirror), metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: new(mirror.UID)},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete mirror: %w", err)
}

// restoredStatus returns the status of a mirror pod; nil if its static pod was rejected before any container started.
func restoredStatus(mirror *corev1.Pod) *corev1.PodStatus {
	s := &mirror.Status
	if status.Finished(s.Phase) && len(s.ContainerStatuses) == 0 {
		return nil
	}
	return s.DeepCopy()
}
