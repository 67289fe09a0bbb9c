package agent

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/spec"
	"monopod/agent/static"
	"monopod/agent/status"
)

const (
	// manifestPeriod is how often the folder is read though nothing told of a change
	// (upstream: fileCheckFrequency).
	manifestPeriod = 20 * time.Second
	// manifestPause is how long files must lie still: one half written is no pod.
	manifestPause = 100 * time.Millisecond
	// reasonManifest is why an event is about a file (upstream: FailedValidation).
	reasonManifest = "FailedValidation"
)

// manifests tells of the static pods in ManifestDir.
type manifests struct {
	a       *Agent
	dir     *static.Dir
	updates chan []*corev1.Pod // all of them, each time
}

func newManifests(a *Agent) *manifests {
	m := &manifests{a: a, updates: make(chan []*corev1.Pod)}
	if a.cfg.ManifestDir != "" {
		m.dir = static.New(static.Config{Path: a.cfg.ManifestDir, Node: a.cfg.NodeName, Complete: a.Complete, Now: a.Clock.Now})
	}
	return m
}

// run reads the folder once, and again whenever it may have changed, until ctx
// ends. The first pods, if only none, are always told.
func (m *manifests) run(ctx context.Context) {
	if m.dir == nil {
		m.send(ctx, nil)
		return
	}
	changed, stop, err := m.a.Notify(m.a.cfg.ManifestDir)
	if err != nil {
		m.a.log.Warn("changes of static pods are noticed late", zap.String("dir", m.a.cfg.ManifestDir), zap.Error(err))
	} else {
		defer stop()
	}
	first, _ := m.read()
	m.a.mirrors.recall(ctx, first)
	if m.send(ctx, first) {
		m.follow(ctx, changed, first)
	}
}

// follow tells of the pods whenever they are others than last.
func (m *manifests) follow(ctx context.Context, changed <-chan struct{}, last []*corev1.Pod) {
	look := m.a.Clock.NewTicker(manifestPeriod)
	defer look.Stop()
	pause := m.a.Clock.NewTimer(manifestPeriod)
	pause.Stop()
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			pause.Reset(manifestPause)
			continue
		case <-pause.C():
		case <-look.C():
		}
		pods, ok := m.read()
		if !ok || sameUIDs(pods, last) {
			continue
		}
		if last = pods; !m.send(ctx, pods) {
			return
		}
	}
}

func sameUIDs(a, b []*corev1.Pod) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].UID != b[i].UID {
			return false
		}
	}
	return true
}

// read tells of what is wrong in the folder; false: it cannot be read.
func (m *manifests) read() ([]*corev1.Pod, bool) {
	pods, problems, err := m.dir.Read()
	if err != nil {
		m.a.log.Warn("static pods not read", zap.String("dir", m.a.cfg.ManifestDir), zap.Error(err))
		return nil, false
	}
	for _, p := range problems {
		if p.Ignored {
			m.a.log.Warn("part of a static pod has no meaning", zap.String("file", p.File), zap.Error(p.Err))
			continue
		}
		m.a.log.Error("file of a static pod ignored", zap.String("file", p.File), zap.Error(p.Err))
		m.a.node.Event(corev1.EventTypeWarning, reasonManifest, "Static pod file %s: %v", p.File, p.Err)
	}
	return pods, true
}

func (m *manifests) send(ctx context.Context, pods []*corev1.Pod) bool {
	select {
	case <-ctx.Done():
		return false
	case m.updates <- pods:
		return true
	}
}

// statics are the static pods as the loop, whose goroutine they belong to, has
// them.
type statics struct {
	want map[types.UID]*corev1.Pod
	over chan struct{} // a worker of one is done: who waits for it may begin
}

func newStatics() statics { return statics{over: make(chan struct{}, 1)} }

// staticOver says that nothing is left of a static pod.
func (a *Agent) staticOver(pod *corev1.Pod) {
	a.mirrors.ended(pod)
	a.retryStatics()
}

// retryStatics has those that may run now do so.
func (a *Agent) retryStatics() {
	select {
	case a.statics.over <- struct{}{}:
	default:
	}
}

// staticsChanged takes over what the folder holds now.
func (a *Agent) staticsChanged(ctx context.Context, pods []*corev1.Pod, found map[types.UID]*inRuntime) {
	a.statics.want = map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		a.statics.want[pod.UID] = pod
	}
	a.mirrors.expect(pods)
	a.orphans(ctx, a.predecessors(found), nil)
	a.runStatics(ctx, found)
}

// predecessors are what the runtime holds of pods that had the name of a static
// pod and are not it: a file changed while no agent ran.
func (a *Agent) predecessors(found map[types.UID]*inRuntime) map[types.UID]*inRuntime {
	names := map[types.NamespacedName]bool{}
	for _, pod := range a.statics.want {
		names[nameOf(pod)] = true
	}
	old := map[types.UID]*inRuntime{}
	for uid, r := range found {
		if a.statics.want[uid] == nil && names[types.NamespacedName{Namespace: r.identity.Namespace, Name: r.identity.Name}] {
			old[uid] = r
		}
	}
	return old
}

// runStatics ends the static pods that nobody wants any more and starts those
// that do not run. One that was ended and is wanted again starts when it is gone.
func (a *Agent) runStatics(ctx context.Context, found map[types.UID]*inRuntime) {
	again := a.drain.takeAgain()
	for uid, w := range a.all() {
		if w.static && (a.statics.want[uid] == nil || again[uid]) && w.current.Load().DeletionTimestamp == nil {
			w.changed(a.withdrawn(w.current.Load()))
		}
	}
	for uid, pod := range a.statics.want {
		if a.worker(uid) == nil {
			a.add(ctx, pod, a.judge(ctx, pod), func(in *inbox) { in.relist = found[uid] != nil })
		}
	}
}

// withdrawn is a static pod whose file is gone: it ends as one deleted in the API.
func (a *Agent) withdrawn(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = new(metav1.NewTime(a.Clock.Now()))
	pod.DeletionGracePeriodSeconds = new(int64(spec.Grace(pod) / time.Second))
	return pod
}

// runsStatic says whether a worker runs the static pod of that UID and name.
func (a *Agent) runsStatic(uid types.UID, namespace, name string) bool {
	w := a.worker(uid)
	if w == nil || !w.static {
		return false
	}
	pod := w.current.Load()
	return pod.Namespace == namespace && pod.Name == name
}

// behind is the pod that a user means who asks for a mirror: the static one. The
// UID alone does not do: anybody may write the annotation.
func (a *Agent) behind(pod *corev1.Pod) *corev1.Pod {
	uid, mirror := static.Mirrored(pod)
	if !mirror || !a.runsStatic(uid, pod.Namespace, pod.Name) {
		return pod
	}
	shown := *pod
	shown.UID = uid
	return &shown
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

// configured is false where static pods are asked for and cannot be completed.
func (d Deps) configured(cfg Config) error {
	if cfg.ManifestDir != "" && d.Complete == nil {
		return fmt.Errorf("agent: ManifestDir needs Complete")
	}
	return nil
}
