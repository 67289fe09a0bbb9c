package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/static"
	"monopod/agent/status"
	"monopod/apiserver/client"
)

// statusWriter stores pods' statuses: at once, the newest only, one write of a
// pod at a time, again until it is stored or the pod is gone.
type statusWriter struct {
	client client.Client
	clock  clock.Clock
	log    *zap.Logger
	writes sync.WaitGroup

	mu   sync.Mutex // guards pods and the slots
	pods map[types.UID]*slot
}

// slot is what one pod's status should be and whether it is.
type slot struct {
	pod     *corev1.Pod
	want    *corev1.PodStatus
	version int // of want
	stored  int
	writing bool
	gone    bool
	changed chan struct{} // closed and replaced whenever stored or gone moves
}

func newStatusWriter(c client.Client, clk clock.Clock, log *zap.Logger) *statusWriter {
	return &statusWriter{client: c, clock: clk, log: log, pods: map[types.UID]*slot{}}
}

// set makes want the status of pod, which it equals or will soon.
func (w *statusWriter) set(ctx context.Context, pod *corev1.Pod, want *corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.pods[pod.UID]
	if s == nil {
		s = &slot{changed: make(chan struct{})}
		w.pods[pod.UID] = s
	}
	s.pod, s.want = pod, want
	w.renew(ctx, s)
}

// renew has the slot written, by the writer that it has or a new one. mu is held.
func (w *statusWriter) renew(ctx context.Context, s *slot) {
	s.version++
	if !s.writing {
		s.writing = true
		w.writes.Go(func() { w.write(ctx, s) })
	}
}

// again stores the status once more: a static pod has got another mirror.
func (w *statusWriter) again(ctx context.Context, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[uid]; s != nil {
		s.gone = false
		w.renew(ctx, s)
	}
}

// flush waits until the status last set is stored, or the pod is gone.
func (w *statusWriter) flush(ctx context.Context, uid types.UID) error {
	for {
		w.mu.Lock()
		s := w.pods[uid]
		if s == nil || s.gone || s.stored == s.version {
			w.mu.Unlock()
			return nil
		}
		changed := s.changed
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (w *statusWriter) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[uid]; s != nil {
		s.gone = true
		delete(w.pods, uid)
	}
}

func (w *statusWriter) wait() { w.writes.Wait() }

// Retries of a write that failed, as for the node: 100 ms doubled up to 7 s.
const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 7 * time.Second
)

// write stores the newest status until there is no newer one.
func (w *statusWriter) write(ctx context.Context, s *slot) {
	delay := retryFirst
	for {
		pod, want, version, ok := w.next(s)
		if !ok {
			return
		}
		err := w.store(ctx, pod, want)
		switch {
		case err == nil, isGone(err):
			w.done(s, version, err != nil)
			delay = retryFirst
			continue
		case ctx.Err() == nil:
			w.log.Warn("pod status not stored", zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.clock.After(delay):
			delay = min(2*delay, retryMax)
		}
	}
}

// next is what to write now; false ends the writing.
func (w *statusWriter) next(s *slot) (*corev1.Pod, *corev1.PodStatus, int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.gone || s.stored == s.version {
		s.writing = false
		return nil, nil, 0, false
	}
	return s.pod, s.want, s.version, true
}

func (w *statusWriter) done(s *slot, version int, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.stored = version
	s.gone = s.gone || gone && version == s.version
	close(s.changed)
	s.changed = make(chan struct{})
}

// errReplaced: another pod has the name now.
var errReplaced = errors.New("pod was replaced")

func isGone(err error) bool { return apierrors.IsNotFound(err) || errors.Is(err, errReplaced) }

func (w *statusWriter) store(ctx context.Context, pod *corev1.Pod, want *corev1.PodStatus) error {
	_, err := client.Update(ctx, w.client, pod, "status", func(cur *corev1.Pod) error {
		if shows, _ := static.Mirrored(cur); cur.UID != pod.UID && shows != pod.UID {
			return errReplaced
		}
		next := merge(&cur.Status, want)
		if !apiequality.Semantic.DeepEqual(&cur.Status, next) {
			cur.Status = *next
		}
		return nil
	})
	return err
}

// merge puts the agent's word over what is stored: conditions of others are
// theirs, and a finished pod stays so.
func merge(cur, want *corev1.PodStatus) *corev1.PodStatus {
	next := want.DeepCopy()
	next.Conditions = foreign(next.Conditions, cur.Conditions)
	next.NominatedNodeName, next.Resize = cur.NominatedNodeName, cur.Resize
	if status.Finished(cur.Phase) && !status.Finished(next.Phase) {
		next.Phase, next.Reason, next.Message = cur.Phase, cur.Reason, cur.Message
	}
	return next
}

// foreign replaces, in own, the conditions that are not the agent's by those of
// theirs.
func foreign(own, theirs []corev1.PodCondition) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range own {
		if ours(c.Type) || c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonTerminationByKubelet {
			out = append(out, c)
		}
	}
	for _, c := range theirs {
		if !ours(c.Type) && status.Condition(out, c.Type) == nil {
			out = append(out, c)
		}
	}
	return out
}

func ours(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
		corev1.PodResizePending, corev1.PodResizeInProgress:
		return true
	}
	return false
}
