// Package mirror keeps, for every static pod of a node, the pod that shows it in the
// API: its mirror. What happens to a mirror never happens to its pod: one that is
// deleted is made anew, and one that shows no pod of the node is deleted.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/pod/status"
	"monopod/agent/source/static"
	"monopod/apiserver/client"
	"monopod/apiserver/process/backoff"
)

const (
	// recallLimit bounds how long the first static pods wait for an API that does
	// not answer.
	recallLimit = time.Second
	// retryMax is the longest pause before a mirror that the API refused is tried
	// again.
	retryMax = 20 * time.Second
)

// Deps are what Mirrors work with. All are required.
type Deps struct {
	Client client.Client
	Clock  clock.Clock
	Log    *zap.Logger
	// Runs says whether the node runs the static pod of that UID and name, or ends it.
	Runs func(uid types.UID, namespace, name string) bool
	// Again has the status of a static pod stored anew.
	Again func(ctx context.Context, uid types.UID)
}

// Mirrors are those of one node.
type Mirrors struct {
	Deps
	node string
	wake chan struct{}

	mu     sync.Mutex // guards what follows
	listed bool       // the pods of the API are known
	want   map[types.NamespacedName]*corev1.Pod
	have   map[types.NamespacedName]*corev1.Pod // from the API
	spent  map[types.UID]bool                   // of mirrors whose pod has ended
	told   map[types.NamespacedName]string      // the last failure
}

// New is about the node of that name. The mirrors there are become known with Take.
func New(deps Deps, node string) *Mirrors {
	return &Mirrors{
		Deps: deps, node: node, wake: make(chan struct{}, 1),
		want: map[types.NamespacedName]*corev1.Pod{}, have: map[types.NamespacedName]*corev1.Pod{},
		spent: map[types.UID]bool{}, told: map[types.NamespacedName]string{},
	}
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// Recall gives pods the status that their mirrors show: what an agent before this
// one knew of them. An API that does not answer has nothing to say.
func (m *Mirrors) Recall(ctx context.Context, pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recallLimit)
	defer cancel()
	mine := fields.OneTermEqualSelector("spec.nodeName", m.node)
	stored, err := client.List[*corev1.Pod](ctx, m.Client, client.Selector{Fields: mine})
	if err != nil {
		m.Log.Warn("static pods start without their past", zap.Error(err))
		return
	}
	for _, mirror := range stored {
		for _, pod := range pods {
			if uid, ok := static.Mirrored(mirror); ok && uid == pod.UID && nameOf(mirror) == nameOf(pod) {
				if past := recalled(mirror); past != nil {
					pod.Status = *past
				}
			}
		}
	}
}

// Expect says which static pods there are.
func (m *Mirrors) Expect(pods []*corev1.Pod) {
	want := map[types.NamespacedName]*corev1.Pod{}
	for _, pod := range pods {
		want[nameOf(pod)] = pod
	}
	m.mu.Lock()
	m.want = want
	m.mu.Unlock()
	m.poke()
}

// Take keeps a list of pods to those that are no mirrors, and notes the others.
func (m *Mirrors) Take(ctx context.Context, list []*corev1.Pod) (pods []*corev1.Pod) {
	have := map[types.NamespacedName]*corev1.Pod{}
	for _, pod := range list {
		if _, mirror := static.Mirrored(pod); mirror {
			have[nameOf(pod)] = pod
		} else {
			pods = append(pods, pod)
		}
	}
	m.mu.Lock()
	m.have, m.listed = have, true
	m.mu.Unlock()
	for _, pod := range list {
		if _, mirror := static.Mirrored(pod); mirror {
			m.show(ctx, pod)
		}
	}
	m.poke()
	return pods
}

// Changed notes a mirror that changed or is gone; false: the pod is none.
func (m *Mirrors) Changed(ctx context.Context, pod *corev1.Pod, gone bool) bool {
	if _, mirror := static.Mirrored(pod); !mirror {
		return false
	}
	name := nameOf(pod)
	m.mu.Lock()
	old := m.have[name]
	switch {
	case !gone:
		m.have[name] = pod
	case old != nil && old.UID == pod.UID:
		delete(m.have, name)
	}
	if gone {
		delete(m.spent, pod.UID)
	}
	m.mu.Unlock()
	if !gone && (old == nil || old.UID != pod.UID) {
		m.show(ctx, pod)
	}
	if gone || pod.DeletionTimestamp != nil || old == nil {
		m.poke()
	}
	return true
}

// show has a new mirror show the status that its pod has.
func (m *Mirrors) show(ctx context.Context, mirror *corev1.Pod) {
	if uid, _ := static.Mirrored(mirror); m.Runs(uid, mirror.Namespace, mirror.Name) {
		m.Again(ctx, uid)
	}
}

// Ended says that nothing is left of a static pod. Its mirror goes, also when the
// pod starts anew: that one has no past.
func (m *Mirrors) Ended(pod *corev1.Pod) {
	m.mu.Lock()
	if mirror := m.have[nameOf(pod)]; mirror != nil && mirror.Annotations[corev1.MirrorPodAnnotationKey] == string(pod.UID) {
		m.spent[mirror.UID] = true
	}
	m.mu.Unlock()
	m.poke()
}

// Behind is the pod that a user means who asks for a mirror: the static one. The
// UID alone does not do: anybody may write the annotation.
func (m *Mirrors) Behind(pod *corev1.Pod) *corev1.Pod {
	uid, mirror := static.Mirrored(pod)
	if !mirror || !m.Runs(uid, pod.Namespace, pod.Name) {
		return pod
	}
	shown := *pod
	shown.UID = uid
	return &shown
}

func (m *Mirrors) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run makes the API show the static pods until ctx ends: at once when something
// changed, and again, ever slower, what the API refused.
func (m *Mirrors) Run(ctx context.Context) {
	pauses := backoff.Retry{First: backoff.WriteInitial, Most: retryMax}
	retry := m.Clock.NewTimer(retryMax)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
			pauses.Reset()
		case <-retry.C():
		}
		retry.Stop()
		if !m.pass(ctx) {
			retry.Reset(pauses.Next())
		}
	}
}

// pass does what there is to do now and says whether all of it was done.
func (m *Mirrors) pass(ctx context.Context) bool {
	done := true
	for _, j := range m.jobs() {
		if ctx.Err() != nil {
			return true
		}
		if err := m.do(ctx, j); err != nil && ctx.Err() == nil {
			done = false
			m.complain(j, err)
		}
	}
	return done
}

// job is a mirror to delete, or one to make.
type job struct {
	name   types.NamespacedName
	delete *corev1.Pod
	create *corev1.Pod // the static pod
}

func (m *Mirrors) jobs() []job {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.listed {
		return nil
	}
	var jobs []job
	for name, mirror := range m.have {
		if m.useless(name, mirror) {
			jobs = append(jobs, job{name: name, delete: mirror})
		}
	}
	for name, pod := range m.want {
		if m.have[name] == nil {
			jobs = append(jobs, job{name: name, create: pod})
		}
	}
	return jobs
}

// useless: it does not show the pod that is wanted, nor one that still ends.
func (m *Mirrors) useless(name types.NamespacedName, mirror *corev1.Pod) bool {
	if mirror.DeletionTimestamp != nil || m.spent[mirror.UID] {
		return true
	}
	uid, _ := static.Mirrored(mirror)
	if want := m.want[name]; want != nil {
		return want.UID != uid
	}
	return !m.Runs(uid, name.Namespace, name.Name)
}

func (m *Mirrors) do(ctx context.Context, j job) error {
	if j.delete != nil {
		return m.remove(ctx, j.delete)
	}
	node, err := client.Get[*corev1.Node](ctx, m.Client, "", m.node)
	if err != nil {
		return fmt.Errorf("mirror needs its node: %w", err)
	}
	made, err := m.Client.Create(ctx, static.Mirror(j.create, node.UID))
	if err != nil {
		return fmt.Errorf("create mirror: %w", err)
	}
	m.Changed(ctx, made.(*corev1.Pod), false)
	m.mu.Lock()
	delete(m.told, j.name)
	m.mu.Unlock()
	return nil
}

// remove deletes the object at once; finalizers may hold it, and then its end is
// waited for. The watch says when it is gone.
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

// complain logs a failure once.
func (m *Mirrors) complain(j job, err error) {
	m.mu.Lock()
	again := m.told[j.name] == err.Error()
	m.told[j.name] = err.Error()
	m.mu.Unlock()
	if !again && !errors.Is(err, context.Canceled) {
		m.Log.Warn("static pod not shown in the API", zap.String("namespace", j.name.Namespace), zap.String("pod", j.name.Name), zap.Error(err))
	}
}

// recalled is what a mirror's status says of its pod's past; nil: nothing that
// counts, as when the pod was refused before it began.
func recalled(mirror *corev1.Pod) *corev1.PodStatus {
	s := &mirror.Status
	if status.Finished(s.Phase) && len(s.ContainerStatuses) == 0 {
		return nil
	}
	return s.DeepCopy()
}
