package agent

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

	"monopod/agent/backoff"
	"monopod/agent/static"
	"monopod/apiserver/client"
)

const (
	// recallLimit bounds how long the first static pods wait for an API that does
	// not answer.
	recallLimit = time.Second
	// mirrorMax is the longest pause before a mirror that the API refused is tried
	// again.
	mirrorMax = 20 * time.Second
)

// mirrors keeps, for every static pod, the pod that shows it in the API. What
// happens to a mirror never happens to its pod.
type mirrors struct {
	a    *Agent
	wake chan struct{}

	mu     sync.Mutex // guards what follows
	listed bool       // the pods of the API are known
	want   map[types.NamespacedName]*corev1.Pod
	have   map[types.NamespacedName]*corev1.Pod // from the API
	spent  map[types.UID]bool                   // of mirrors whose pod has ended
	told   map[types.NamespacedName]string      // the last failure
}

func newMirrors(a *Agent) *mirrors {
	return &mirrors{
		a: a, wake: make(chan struct{}, 1),
		want: map[types.NamespacedName]*corev1.Pod{}, have: map[types.NamespacedName]*corev1.Pod{},
		spent: map[types.UID]bool{}, told: map[types.NamespacedName]string{},
	}
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// recall gives pods the status that their mirrors show: what an agent before this
// one knew of them. An API that does not answer has nothing to say.
func (m *mirrors) recall(ctx context.Context, pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recallLimit)
	defer cancel()
	mine := fields.OneTermEqualSelector("spec.nodeName", m.a.cfg.NodeName)
	stored, err := client.List[*corev1.Pod](ctx, m.a.Client, client.Selector{Fields: mine})
	if err != nil {
		m.a.log.Warn("static pods start without their past", zap.Error(err))
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

// expect says which static pods there are.
func (m *mirrors) expect(pods []*corev1.Pod) {
	want := map[types.NamespacedName]*corev1.Pod{}
	for _, pod := range pods {
		want[nameOf(pod)] = pod
	}
	m.mu.Lock()
	m.want = want
	m.mu.Unlock()
	m.poke()
}

// take keeps a list of pods to those that are no mirrors, and notes the others.
func (m *mirrors) take(ctx context.Context, list []*corev1.Pod) (pods []*corev1.Pod) {
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

// changed notes a mirror that changed or is gone; false: the pod is none.
func (m *mirrors) changed(ctx context.Context, pod *corev1.Pod, gone bool) bool {
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
func (m *mirrors) show(ctx context.Context, mirror *corev1.Pod) {
	if uid, _ := static.Mirrored(mirror); m.a.runsStatic(uid, mirror.Namespace, mirror.Name) {
		m.a.status.Again(ctx, uid)
	}
}

// ended says that nothing is left of a static pod. Its mirror goes, also when the
// pod starts anew: that one has no past.
func (m *mirrors) ended(pod *corev1.Pod) {
	m.mu.Lock()
	if mirror := m.have[nameOf(pod)]; mirror != nil && mirror.Annotations[corev1.MirrorPodAnnotationKey] == string(pod.UID) {
		m.spent[mirror.UID] = true
	}
	m.mu.Unlock()
	m.poke()
}

func (m *mirrors) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run makes the API show the static pods until ctx ends: at once when something
// changed, and again, ever slower, what the API refused.
func (m *mirrors) run(ctx context.Context) {
	delay := backoff.WriteInitial
	retry := m.a.Clock.NewTimer(mirrorMax)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
			delay = backoff.WriteInitial
		case <-retry.C():
			delay = min(2*delay, mirrorMax)
		}
		retry.Stop()
		if !m.pass(ctx) {
			retry.Reset(delay)
		}
	}
}

// pass does what there is to do now and says whether all of it was done.
func (m *mirrors) pass(ctx context.Context) bool {
	done := true
	for _, job := range m.jobs() {
		if ctx.Err() != nil {
			return true
		}
		if err := m.do(ctx, job); err != nil && ctx.Err() == nil {
			done = false
			m.complain(job, err)
		}
	}
	return done
}

// mirrorJob is a mirror to delete, or one to make.
type mirrorJob struct {
	name   types.NamespacedName
	delete *corev1.Pod
	create *corev1.Pod // the static pod
}

func (m *mirrors) jobs() []mirrorJob {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.listed {
		return nil
	}
	var jobs []mirrorJob
	for name, mirror := range m.have {
		if m.useless(name, mirror) {
			jobs = append(jobs, mirrorJob{name: name, delete: mirror})
		}
	}
	for name, pod := range m.want {
		if m.have[name] == nil {
			jobs = append(jobs, mirrorJob{name: name, create: pod})
		}
	}
	return jobs
}

// useless: it does not show the pod that is wanted, nor one that still ends.
func (m *mirrors) useless(name types.NamespacedName, mirror *corev1.Pod) bool {
	if mirror.DeletionTimestamp != nil || m.spent[mirror.UID] {
		return true
	}
	uid, _ := static.Mirrored(mirror)
	if want := m.want[name]; want != nil {
		return want.UID != uid
	}
	return !m.a.runsStatic(uid, name.Namespace, name.Name)
}

func (m *mirrors) do(ctx context.Context, job mirrorJob) error {
	if job.delete != nil {
		return m.remove(ctx, job.delete)
	}
	node, err := client.Get[*corev1.Node](ctx, m.a.Client, "", m.a.cfg.NodeName)
	if err != nil {
		return fmt.Errorf("mirror needs its node: %w", err)
	}
	made, err := m.a.Client.Create(ctx, static.Mirror(job.create, node.UID))
	if err != nil {
		return fmt.Errorf("create mirror: %w", err)
	}
	m.changed(ctx, made.(*corev1.Pod), false)
	m.mu.Lock()
	delete(m.told, job.name)
	m.mu.Unlock()
	return nil
}

// remove deletes the object at once; finalizers may hold it, and then its end is
// waited for. The watch says when it is gone.
func (m *mirrors) remove(ctx context.Context, mirror *corev1.Pod) error {
	if g := mirror.DeletionGracePeriodSeconds; g != nil && *g == 0 {
		return nil
	}
	_, err := m.a.Client.Delete(ctx, client.RefOf(mirror), metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: new(mirror.UID)},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete mirror: %w", err)
}

// complain logs a failure once.
func (m *mirrors) complain(job mirrorJob, err error) {
	m.mu.Lock()
	again := m.told[job.name] == err.Error()
	m.told[job.name] = err.Error()
	m.mu.Unlock()
	if !again && !errors.Is(err, context.Canceled) {
		m.a.log.Warn("static pod not shown in the API", zap.String("namespace", job.name.Namespace), zap.String("pod", job.name.Name), zap.Error(err))
	}
}
