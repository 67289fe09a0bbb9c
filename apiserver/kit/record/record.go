// Package record writes core/v1 Events about objects.
//
// A Recorder never blocks and never fails its caller: a bounded queue passes events to one goroutine, which runs
// only while events wait. It counts repetitions in one Event, combines many similar ones, and drops those of an object
// with too many. The limits are client-go's (tools/record).
package record

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

const (
	queueLength = 1000            // maximum number of waiting events; more are dropped
	drainTime   = 2 * time.Second // time to write waiting events at Close
)

// Eventer is the interface of a Recorder for its users.
type Eventer interface {
	Eventf(obj client.Object, eventtype, reason, format string, args ...any)
}

// Config of a Recorder. Host and Guard may be empty.
type Config struct {
	Client          client.Client
	Component, Host string // the source of the events
	Clock           clock.PassiveClock
	Metrics         *Metrics
	Guard           *guard.Guard
}

// Recorder writes events of one source.
type Recorder struct {
	cfg    Config
	source corev1.EventSource

	last   atomic.Int64    // last number in an event's name
	ctx    context.Context // of writes
	cancel context.CancelFunc
	done   sync.WaitGroup // of run

	mu      sync.Mutex // guards what follows
	queue   []*corev1.Event
	running bool // run runs
	ended   bool

	seen *correlator // of run
}

var _ Eventer = (*Recorder)(nil)

// New returns a recorder. Close ends it.
func New(cfg Config) *Recorder {
	ctx, cancel := context.WithCancel(context.Background())
	return &Recorder{cfg: cfg, source: corev1.EventSource{Component: cfg.Component, Host: cfg.Host}, ctx: ctx,
		cancel: cancel, seen: newCorrelator(cfg.Clock)}
}

// Eventf records an event about obj: eventtype is Normal or Warning, reason is CamelCase, and the message a
// sentence. It returns at once.
func (r *Recorder) Eventf(obj client.Object, eventtype, reason, format string, args ...any) {
	r.Reference(ReferenceTo(obj), eventtype, reason, format, args...)
}

// Reference is Eventf for a part of an object, ref.FieldPath, or an object that the caller does not have.
func (r *Recorder) Reference(ref corev1.ObjectReference, eventtype, reason, format string, args ...any) {
	e := r.event(ref, eventtype, reason, fmt.Sprintf(format, args...))
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		r.drop(closed)
		return
	case len(r.queue) == queueLength:
		r.drop(full)
		return
	}
	r.queue = append(r.queue, e)
	if !r.running {
		r.running = true
		r.cfg.Guard.Go(&r.done, "events", r.run)
	}
}

// drop counts an event that is not written.
func (r *Recorder) drop(why string) {
	r.cfg.Metrics.dropped.WithLabelValues(r.source.Component, why).Inc()
}

// Close writes waiting events, for at most two seconds, and ends the recorder. Later events are dropped.
func (r *Recorder) Close() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	defer time.AfterFunc(drainTime, r.cancel).Stop()
	r.done.Wait()
	r.cancel()
}

// ReferenceTo returns the reference to obj in events.
func ReferenceTo(obj client.Object) corev1.ObjectReference {
	apiVersion, kind := obj.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	return corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Namespace: obj.GetNamespace(), Name: obj.GetName(),
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
	}
}

func (r *Recorder) event(ref corev1.ObjectReference, eventtype, reason, message string) *corev1.Event {
	now := metav1.NewTime(r.cfg.Clock.Now())
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.%x", ref.Name, r.unique(now.UnixNano())),
			Namespace: namespace,
		},
		InvolvedObject: ref,
		Type:           eventtype, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: r.source, ReportingController: r.source.Component, ReportingInstance: r.source.Host,
	}
}

// unique returns now, or the next number that was not used.
func (r *Recorder) unique(now int64) int64 {
	for {
		last := r.last.Load()
		if next := max(now, last+1); r.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// run writes events until none waits. One whose write panics is dropped.
func (r *Recorder) run() {
	for e := r.next(); e != nil; e = r.next() {
		why := panicked
		r.cfg.Guard.Run("events", func() { why = r.write(r.ctx, r.seen, e) })
		if why != "" {
			r.drop(why)
		}
	}
}

// next takes the next event from the queue; nil if none waits, and run ends.
func (r *Recorder) next() *corev1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		r.queue, r.running = nil, false
		return nil
	}
	e := r.queue[0]
	r.queue[0] = nil
	r.queue = r.queue[1:]
	return e
}

// write stores an event, as a repetition or as a new one. It returns the reason if it did not.
func (r *Recorder) write(ctx context.Context, seen *correlator, e *corev1.Event) (why string) {
	prior, ok := seen.observe(e)
	if !ok {
		return spam
	}
	if ctx.Err() != nil {
		return closed
	}
	if prior != "" {
		e.Name = prior
		// Update the event that e repeats.
		_, err := client.Update(ctx, r.cfg.Client, e, "", func(cur *corev1.Event) error {
			cur.Count++
			cur.LastTimestamp = e.LastTimestamp
			cur.Message = e.Message
			return nil
		})
		if err == nil {
			return ""
		}
		if !apierrors.IsNotFound(err) {
			return refused
		}
	}
	key, name := storedKey(e), e.Name
	if _, err := r.cfg.Client.Create(ctx, e); err != nil {
		return refused
	}
	seen.names.Add(seen.key(key), name)
	return ""
}
