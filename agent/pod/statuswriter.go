package pod

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"monopod/agent/podapi/status"
	"monopod/agent/source/static"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// StatusWriter writes pods' statuses to the API. It writes on goroutines of its own, which end with the context of the
// call that started them; Wait waits for them.
type StatusWriter struct {
	client client.Client
	clock  clock.Clock
	log    *zap.Logger
	guard  *guard.Guard
	writes sync.WaitGroup

	mu   sync.Mutex // guards pods and the slots
	pods map[types.UID]*slot
}

// slot is the desired status of one pod, and whether it is stored.
type slot struct {
	pod     *corev1.Pod
	want    *corev1.PodStatus
	version int // of want
	stored  int
	writing bool
	gone    bool
	changed chan struct{} // closed and replaced whenever stored or gone changes
}

// NewStatusWriter returns a StatusWriter to c. It retries a write that panics like one that fails.
func NewStatusWriter(c client.Client, clk clock.Clock, log *zap.Logger, g *guard.Guard) *StatusWriter {
	return &StatusWriter{client: c, clock: clk, log: log, guard: g, pods: map[types.UID]*slot{}}
}

// Set makes want the desired status of pod.
func (w *StatusWriter) Set(ctx context.Context, pod *corev1.Pod, want *corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.pods[pod.UID]
	if s == nil {
		s = &slot{changed: make(chan struct{})}
		w.pods[pod.UID] = s
	}
	s.pod, s.want = pod, want
	w.rewrite(ctx, s)
}

// rewrite makes the running writer or a new one store the slot. The caller holds mu.
func (w *StatusWriter) rewrite(ctx context.Context, s *slot) {
	s.version++
	if !s.writing {
		s.writing = true
		w.guard.Go(&w.writes, "status", func() { w.write(ctx, s) })
	}
}

// Restore stores the status of pod again if another component has changed it, like the node lifecycle controller does
// while the node does not report. It does nothing during a write, or if pod is older than the stored version.
func (w *StatusWriter) Restore(ctx context.Context, pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.pods[pod.UID]
	if s == nil || s.gone || s.stored != s.version || s.pod.UID != pod.UID || !newer(pod, s.pod) {
		return
	}
	s.pod = pod
	if !apiequality.Semantic.DeepEqual(&pod.Status, status.Merge(&pod.Status, s.want)) {
		w.rewrite(ctx, s)
	}
}

// newer reports whether a is a later state of the same object than b.
func newer(a, b *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

// Rewrite stores the status again, because a static pod has a new mirror pod.
func (w *StatusWriter) Rewrite(ctx context.Context, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[uid]; s != nil {
		s.gone = false
		w.rewrite(ctx, s)
	}
}

// Flush waits until the last status is stored, or the pod is gone.
func (w *StatusWriter) Flush(ctx context.Context, uid types.UID) error {
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

// Forget removes the status of a pod of which nothing is left.
func (w *StatusWriter) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[uid]; s != nil {
		s.gone = true
		delete(w.pods, uid)
	}
}

// Wait waits for running writes.
func (w *StatusWriter) Wait() { w.writes.Wait() }

// errReplaced means that another pod has the name now.
var errReplaced = errors.New("pod was replaced")

// write stores the newest status until there is no newer one.
func (w *StatusWriter) write(ctx context.Context, s *slot) {
	retry := backoff.Retry{First: backoff.WriteInitial, Most: backoff.WriteMax}
	for {
		pod, want, version, ok := w.next(s)
		if !ok {
			return
		}
		var stored *corev1.Pod
		err := w.guard.Call("status", func() (err error) {
			stored, err = client.Update(ctx, w.client, pod, "status", func(cur *corev1.Pod) error {
				if shows, _ := static.Mirrored(cur); cur.UID != pod.UID && shows != pod.UID {
					return errReplaced
				}
				if next := status.Merge(&cur.Status, want); !apiequality.Semantic.DeepEqual(&cur.Status, next) {
					cur.Status = *next
				}
				return nil
			})
			return err
		})
		switch {
		case err == nil, apierrors.IsNotFound(err), errors.Is(err, errReplaced):
			w.done(s, version, stored)
			retry.Reset()
			continue
		case ctx.Err() == nil:
			w.log.Warn("pod status not stored", zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name),
				zap.Error(err))
		}
		if !retry.Wait(ctx, w.clock) {
			return
		}
	}
}

// next returns the status to write now. It returns false if there is nothing to write.
func (w *StatusWriter) next(s *slot) (*corev1.Pod, *corev1.PodStatus, int, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.gone || s.stored == s.version {
		s.writing = false
		return nil, nil, 0, false
	}
	return s.pod, s.want, s.version, true
}

// done records that a version is stored, and that stored is the pod with it; nil: the pod is gone. The slot then shares
// the memory of the stored object.
func (w *StatusWriter) done(s *slot, version int, stored *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.stored = version
	switch {
	case version != s.version:
	case stored == nil:
		s.gone = true
	case stored.UID == s.pod.UID: // not a mirror pod
		s.pod, s.want = stored, &stored.Status
	}
	close(s.changed)
	s.changed = make(chan struct{})
}
