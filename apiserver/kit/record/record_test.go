package record

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a Client that stores events.
type shelf struct {
	client.Client
	mu   sync.Mutex
	all  map[string]*corev1.Event
	slow time.Duration

	refuses, panics bool
}

func (s *shelf) Create(_ context.Context, obj client.Object) (client.Object, error) {
	time.Sleep(s.slow)
	if s.panics {
		panic("boom")
	}
	if s.refuses {
		return nil, apierrors.NewForbidden(client.Events.GroupResource(), obj.GetName(), nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[obj.GetName()] = obj.(*corev1.Event)
	return obj, nil
}

func (s *shelf) Update(_ context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cur := s.all[ref.Name]
	if cur == nil {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	next, err := change(cur)
	if err == nil {
		s.all[ref.Name] = next.(*corev1.Event)
	}
	return next, err
}

// counts returns all events as "reason message xcount", in no order.
func (s *shelf) counts() map[string]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int32{}
	for _, e := range s.all {
		out[e.Reason+" "+e.Message] += e.Count
	}
	return out
}

func testPod(version string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid", ResourceVersion: version},
	}
}

func within(t *testing.T, test func(t *testing.T, s *shelf, r *Recorder)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{all: map[string]*corev1.Event{}}
		m, err := NewMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		r := New(Config{Client: s, Component: "tester", Host: "host", Clock: clock.RealClock{}, Metrics: m})
		test(t, s, r)
		r.Close()
	})
}

func TestOneEvent(t *testing.T) {
	within(t, func(t *testing.T, s *shelf, r *Recorder) {
		r.Eventf(testPod("1"), corev1.EventTypeWarning, "Broken", "it %s", "broke")
		synctest.Wait()
		for name, e := range s.all {
			if !strings.HasPrefix(name, "p.") || e.Namespace != "ns" || e.InvolvedObject.Kind != "Pod" ||
				e.InvolvedObject.UID != "uid" ||
				e.Source.Component != "tester" || e.Source.Host != "host" || e.Count != 1 || e.Type != "Warning" ||
				e.Message != "it broke" ||
				e.FirstTimestamp.IsZero() || e.LastTimestamp.IsZero() {
				t.Errorf("event %+v", e)
			}
		}
		if len(s.all) != 1 {
			t.Errorf("%d events", len(s.all))
		}
	})
}

func TestRepetitionsAreCounted(t *testing.T) {
	within(t, func(t *testing.T, s *shelf, r *Recorder) {
		for i := range 5 {
			r.Eventf(testPod(fmt.Sprint(i)), corev1.EventTypeNormal, "Same", "again")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if got := s.counts(); len(s.all) != 1 || got["Same again"] != 5 {
			t.Errorf("got %v in %d events", got, len(s.all))
		}
		clear(s.all) // expired
		r.Eventf(testPod("9"), corev1.EventTypeNormal, "Same", "again")
		synctest.Wait()
		if got := s.counts(); got["Same again"] != 1 {
			t.Errorf("after it expired: %v", got)
		}
	})
}

func TestSimilarEventsAreAggregated(t *testing.T) {
	within(t, func(t *testing.T, s *shelf, r *Recorder) {
		for i := range 15 {
			r.Eventf(testPod("1"), corev1.EventTypeNormal, "Many", "number %d", i)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		got := s.counts()
		if len(s.all) != 10 || got["Many (combined from similar events): number 14"] != 6 {
			t.Errorf("got %v in %d events", got, len(s.all))
		}
	})
}

func TestEventsPerObjectAreLimited(t *testing.T) {
	within(t, func(t *testing.T, s *shelf, r *Recorder) {
		for i := range 100 {
			r.Eventf(testPod("1"), corev1.EventTypeNormal, fmt.Sprint("Reason", i), "x")
		}
		synctest.Wait()
		if len(s.all) != spamBurst || dropped(r, spam) != 100-spamBurst {
			t.Errorf("%d stored, %v dropped", len(s.all), dropped(r, spam))
		}
		time.Sleep(spamRefill)
		r.Eventf(testPod("1"), corev1.EventTypeNormal, "Later", "x")
		synctest.Wait()
		if s.counts()["Later x"] != 1 {
			t.Error("an event was dropped although its rate is below the limit again")
		}
	})
}

func TestNeverBlocksAndCloseWaits(t *testing.T) {
	within(t, func(t *testing.T, s *shelf, r *Recorder) {
		s.slow = 100 * time.Millisecond
		begin := time.Now()
		for i := range 2 * queueLength {
			p := testPod("1")
			p.Name = fmt.Sprint("p", i)
			r.Eventf(p, corev1.EventTypeNormal, "Flood", "x")
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("blocked for %v", d)
		}
		r.Close()
		if d := time.Since(begin); d > drainTime+time.Second || len(s.all) < 15 {
			t.Errorf("closed after %v with %d written", d, len(s.all))
		}
		r.Eventf(testPod("1"), corev1.EventTypeNormal, "Late", "x")
		late := dropped(r, closed)
		if all := len(s.all) + int(dropped(r, full)+late); late == 0 || all != 2*queueLength+1 {
			t.Errorf("%d events are written or counted, %v of them late", all, late)
		}
	})
}

// dropped returns the value of the metric.
func dropped(r *Recorder, why string) float64 {
	var m dto.Metric
	if err := r.cfg.Metrics.dropped.WithLabelValues("tester", why).Write(&m); err != nil {
		panic(err)
	}
	return m.Counter.GetValue()
}

// A panic drops only the event that caused it.
func TestPanicDropsOneEvent(t *testing.T) {
	within(t, func(t *testing.T, s *shelf, r *Recorder) {
		s.panics = true
		r.Eventf(testPod("1"), corev1.EventTypeNormal, "First", "x")
		synctest.Wait()
		s.panics = false
		r.Eventf(testPod("1"), corev1.EventTypeNormal, "Second", "x")
		synctest.Wait()
		if got := s.counts(); dropped(r, panicked) != 1 || len(got) != 1 || got["Second x"] != 1 {
			t.Errorf("stored %v, %v dropped", got, dropped(r, panicked))
		}
	})
}

func TestRefusedEventsAreCounted(t *testing.T) {
	within(t, func(t *testing.T, s *shelf, r *Recorder) {
		s.refuses = true
		r.Eventf(testPod("1"), corev1.EventTypeNormal, "Reason", "x")
		synctest.Wait()
		if dropped(r, refused) != 1 {
			t.Error("not counted")
		}
	})
}

// TestRecordersShareTheMetric: a process has several recorders.
func TestRecordersShareTheMetric(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	a, err1 := NewMetrics(reg)
	b, err2 := NewMetrics(reg)
	if err1 != nil || err2 != nil || a.dropped != b.dropped {
		t.Error(err1, err2)
	}
}
