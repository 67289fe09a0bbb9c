package horizontalpodautoscaler

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/metrics"
	"monopod/controllers/internal/apitest"
)

// measured is a client that serves PodMetrics: each pod uses cpu.
type measured struct {
	client.Client
	cpu   atomic.Int64 // milli
	lists atomic.Int64 // number of lists of PodMetrics
	reads atomic.Int64 // number of gets and lists

	interfere atomic.Pointer[func()] // runs before an update of a scale
}

func (m *measured) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if f := m.interfere.Load(); ref.Subresource == "scale" && f != nil {
		(*f)()
	}
	return m.Client.Update(ctx, ref, change)
}

func (m *measured) Get(ctx context.Context, ref client.Ref) (client.Object, error) {
	m.reads.Add(1)
	return m.Client.Get(ctx, ref)
}

func (m *measured) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	m.reads.Add(1)
	if sel.Resource != metrics.Pods() {
		return m.Client.List(ctx, sel)
	}
	m.lists.Add(1)
	pods, err := client.List[*corev1.Pod](ctx, m.Client, client.Selector{Namespace: sel.Namespace, Labels: sel.Labels})
	var out []client.Object
	for _, p := range pods {
		out = append(out,
			&metrics.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Timestamp: metav1.Now(),
				Containers: []metrics.ContainerMetrics{{Name: "c",
					Usage: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(m.cpu.Load(), resource.DecimalSI)}}}})
	}
	return out, "", err
}

// world is an API with the Deployment web of two ready pods that request 100m each.
type world struct {
	*apitest.API
	measured *measured
}

func start(t *testing.T) *world {
	w := &world{API: apitest.New(t)}
	w.measured = &measured{Client: w.Client}
	w.measured.cpu.Store(50)
	w.Events.Watch()
	w.Create(deployment("web"))
	w.pods("web", 2)
	deps := w.Deps()
	deps.Client = w.measured
	c, err := New(deps, &w.Events, Config{Kinds: apitest.Kinds(), Settings: Settings{Tolerance: 0.1}})
	if err != nil {
		t.Fatal(err)
	}
	w.Run(c)
	return w
}

func deployment(name string) *appsv1.Deployment {
	set := map[string]string{"app": name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: set},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: set}, Spec: apitest.Pod("", "").Spec}},
	}
}

func (w *world) pods(app string, n int) {
	for i := range n {
		p := apitest.Pod("default", fmt.Sprintf("%s-%d", app, i), func(p *corev1.Pod) {
			p.Labels = map[string]string{"app": app}
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m")}
		})
		w.Create(p)
		w.Phase(p, corev1.PodRunning, true)
		apitest.Change(w.API, p, "status",
			func(p *corev1.Pod) { p.Status.StartTime = new(metav1.NewTime(time.Now().Add(-time.Hour))) })
	}
}

func autoscaler(name, kind, target string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: kind, Name: target},
			MaxReplicas:    10, Metrics: []autoscalingv2.MetricSpec{cpuAt(50)}},
	}
}

// is returns the autoscaler and the reasons of its conditions.
func (w *world) is(name string) (*autoscalingv2.HorizontalPodAutoscaler, string) {
	hpa, ok := apitest.Get[*autoscalingv2.HorizontalPodAutoscaler](w.API, "default", name)
	if !ok {
		w.T.Fatalf("no autoscaler %s", name)
	}
	var reasons []string
	for _, c := range hpa.Status.Conditions {
		reason, _ := reasonOf(&hpa.Status, c.Type)
		reasons = append(reasons, reason)
	}
	return hpa, strings.Join(reasons, " ")
}

func (w *world) replicas() int32 {
	d, _ := apitest.Get[*appsv1.Deployment](w.API, "default", "web")
	return *d.Spec.Replicas
}

func TestScales(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.Create(autoscaler("web", "Deployment", "web"))
		synctest.Wait()
		hpa, is := w.is("web")
		if is != "ReadyForNewScale ValidMetricFound !DesiredWithinRange" || hpa.Status.DesiredReplicas != 2 ||
			*hpa.Status.CurrentMetrics[0].Resource.Current.AverageUtilization != 50 {
			t.Fatalf("%s: %+v", is, hpa.Status)
		}

		// Without changes there is one evaluation in each period and no write.
		rev, lists := w.Store.Revision(), w.measured.lists.Load()
		apitest.Settle(5 * time.Minute)
		if n := w.measured.lists.Load() - lists; n != 20 || w.Store.Revision() != rev {
			t.Errorf("%d evaluations in 5 min, and %d writes", n, w.Store.Revision()-rev)
		}

		w.measured.cpu.Store(100)
		apitest.Settle(15 * time.Second)
		hpa, is = w.is("web")
		if w.replicas() != 4 || is != "SucceededRescale ValidMetricFound !DesiredWithinRange" ||
			hpa.Status.LastScaleTime == nil {
			t.Errorf("%d replicas, %s", w.replicas(), is)
		}
		if e := w.Events.Count(); e["SuccessfulRescale"] != 1 || len(e) != 1 {
			t.Errorf("events: %v", e)
		}

		// The controller removes pods only after the stabilization window.
		w.measured.cpu.Store(10)
		apitest.Settle(4 * time.Minute)
		if _, is := w.is("web"); w.replicas() != 4 || !strings.HasPrefix(is, "ScaleDownStabilized") {
			t.Errorf("%d replicas, %s", w.replicas(), is)
		}
		apitest.Settle(2 * time.Minute)
		if w.replicas() != 1 {
			t.Errorf("%d replicas after the window", w.replicas())
		}

		// A change of the spec takes effect at once.
		w.Events.Count()
		apitest.Change(w.API, hpa, "", func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MinReplicas = new(int32(3)) })
		synctest.Wait()
		if w.replicas() != 3 {
			t.Errorf("%d replicas, want the new minimum 3", w.replicas())
		}
		want := `metric_computation_total none none Resource=24
metric_computation_total scale_down none Resource=21
metric_computation_total scale_up none Resource=1
reconciliations_total none none=44
reconciliations_total scale_down none=1
reconciliations_total scale_up none=2`
		if got := w.Counters("horizontal_pod_autoscaler_controller_", ""); got != want {
			t.Errorf("metrics:\n%s\nwant:\n%s", got, want)
		}
	})
}

func TestIdleWithoutAutoscalers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		a := autoscaler("web", "Deployment", "web")
		w.Create(a)
		apitest.Settle(time.Minute)
		w.Delete(a, "")
		apitest.Settle(time.Minute)
		reads := w.measured.reads.Load()
		apitest.Settle(time.Hour)
		if n := w.measured.reads.Load() - reads; n != 0 {
			t.Errorf("%d reads", n)
		}
	})
}

func TestTargets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.Create(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "d"}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"d": "d"}}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"d": "d"}}, Spec: apitest.Pod("", "").Spec}}})
		for _, c := range []struct{ kind, name, message string }{
			{"Deployment", "gone", `deployments.apps "gone" not found`},
			{"Nothing", "web", `no matches for kind "Nothing" in group "apps"`},
			{"DaemonSet", "d", `has no subresource "scale"`},
		} {
			a := autoscaler("a", c.kind, c.name)
			w.Create(a)
			synctest.Wait()
			hpa, is := w.is("a")
			_, message := reasonOf(&hpa.Status, autoscalingv2.AbleToScale)
			if is != "!FailedGetScale" || !strings.Contains(message,
				"the HPA controller was unable to get the target's current scale: ") || !strings.Contains(message, c.message) {
				t.Errorf("%s %s: %s %q", c.kind, c.name, is, message)
			}
			w.Delete(a, "")
			synctest.Wait() // otherwise the creation of the next autoscaler of the same name would be a change of this one
		}
		if e := w.Events.Count(); e["FailedGetScale"] != 3 || len(e) != 1 {
			t.Errorf("events: %v", e)
		}
	})
}

// After a failure the controller evaluates again in the next period, not at once.
func TestFailuresAreNotRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.Create(autoscaler("web", "Deployment", "gone"))
		apitest.Settle(10*time.Minute - time.Second)
		if e := w.Events.Count(); e["FailedGetScale"] != 40 {
			t.Errorf("events in 10 min: %v", e)
		}
		w.Create(deployment("gone"))
		apitest.Settle(15 * time.Second)
		if _, is := w.is("web"); !strings.HasPrefix(is, "SucceededGetScale ") {
			t.Errorf("after the target was created: %s", is)
		}
	})
}

// If the target changes between the evaluation and the update of its scale, the controller evaluates again. It gives up
// after several conflicts.
func TestTargetChangesMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.measured.cpu.Store(100)
		relabel := func() {
			apitest.Change(w.API, deployment("web"), "",
				func(d *appsv1.Deployment) { d.Annotations = map[string]string{"at": fmt.Sprint(w.Store.Revision())} })
		}
		check := func(when string, replicas int32, able string, events map[string]int) {
			t.Helper()
			_, is := w.is("web")
			if w.replicas() != replicas || !strings.HasPrefix(is, able+" ") {
				t.Errorf("%s: %d replicas, %s", when, w.replicas(), is)
			}
			if got := w.Events.Count(); !maps.Equal(got, events) {
				t.Errorf("%s: events %v", when, got)
			}
		}
		w.measured.interfere.Store(new(sync.OnceFunc(relabel)))
		w.Create(autoscaler("web", "Deployment", "web"))
		synctest.Wait()
		check("changed once", 4, "SucceededRescale", map[string]int{"SuccessfulRescale": 1})

		w.measured.cpu.Store(200)
		w.measured.interfere.Store(&relabel)
		apitest.Settle(15 * time.Second)
		check("changed before each update", 4, "!FailedUpdateScale", map[string]int{"FailedRescale": 1})

		w.measured.interfere.Store(new(sync.OnceFunc(func() {
			apitest.Change(w.API, deployment("web"), "", func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) })
		})))
		apitest.Settle(15 * time.Second)
		check("scaled to zero by a user", 0, "SucceededGetScale", map[string]int{})
	})
}

func TestAmbiguousSelector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.measured.cpu.Store(500)
		w.Create(autoscaler("a", "Deployment", "web"))
		synctest.Wait()
		b := autoscaler("b", "Deployment", "web")
		w.Create(b)
		synctest.Wait()
		_, is := w.is("b")
		if !strings.Contains(is, "!AmbiguousSelector") || w.replicas() != 4 {
			t.Errorf("b: %s", is)
		}
		apitest.Settle(15 * time.Second)
		if _, is := w.is("a"); !strings.Contains(is, "!AmbiguousSelector") {
			t.Errorf("a: %s", is)
		}
		w.Delete(b, "")
		apitest.Settle(15 * time.Second)
		if _, is := w.is("a"); strings.Contains(is, "AmbiguousSelector") || w.replicas() == 4 {
			t.Errorf("a without b: %s, %d replicas", is, w.replicas())
		}
	})
}

func TestSelectorsFindPods(t *testing.T) {
	t.Parallel()
	x := newSelectors()
	for name, s := range map[string]string{"app": "app=web", "in": "app in (web)", "any": "app", "other": "app=other",
		"two": "app=web,tier=front"} {
		parsed, err := labels.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		x.put(follow.Key{Namespace: "default", Name: name}, parsed)
		x.put(follow.Key{Namespace: "elsewhere", Name: name}, parsed)
	}
	find := func(set map[string]string) string {
		return fmt.Sprint(names(
			x.selecting([]*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: set}}})))
	}
	if got := find(map[string]string{"app": "web"}); got != "[{any default} {app default} {in default}]" {
		t.Error(got)
	}
	if got := find(map[string]string{"app": "web",
		"tier": "front"}); got != "[{any default} {app default} {in default} {two default}]" {
		t.Error(got)
	}
	for key := range x.of {
		x.put(key, nil)
	}
	if len(x.by) > 0 || len(x.of) > 0 {
		t.Errorf("left in the index: %v, %v", x.by, x.of)
	}
}

func TestOnlyNoticeableChangesAreWritten(t *testing.T) {
	t.Parallel()
	status := func(name corev1.ResourceName, percent int32, value string) *autoscalingv2.HorizontalPodAutoscalerStatus {
		s := &autoscalingv2.ResourceMetricStatus{Name: name,
			Current: autoscalingv2.MetricValueStatus{AverageValue: new(resource.MustParse(value))}}
		if percent >= 0 {
			s.Current.AverageUtilization = &percent
		}
		return &autoscalingv2.HorizontalPodAutoscalerStatus{CurrentMetrics: []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: s}}}
	}
	share, memory := cpuAt(50), averageOf("memory", "100Mi")
	for name, c := range map[string]struct {
		spec         autoscalingv2.MetricSpec
		stored, next *autoscalingv2.HorizontalPodAutoscalerStatus
		want         bool
	}{
		"equal":               {share, status("cpu", 5, "50m"), status("cpu", 5, "50m"), false},
		"the same percentage": {share, status("cpu", 5, "50m"), status("cpu", 5, "52m"), false},
		"another percentage":  {share, status("cpu", 5, "50m"), status("cpu", 6, "60m"), true},
		"about the same":      {memory, status("memory", -1, "50Mi"), status("memory", -1, "50.5Mi"), false},
		"more":                {memory, status("memory", -1, "50Mi"), status("memory", -1, "52Mi"), true},
		"less":                {memory, status("memory", -1, "50Mi"), status("memory", -1, "48Mi"), true},
		"no value yet":        {share, &autoscalingv2.HorizontalPodAutoscalerStatus{}, status("cpu", 5, "50m"), true},
		"no value": {share, status("cpu", 5, "50m"),
			&autoscalingv2.HorizontalPodAutoscalerStatus{CurrentMetrics: make([]autoscalingv2.MetricStatus, 1)}, true},
		"a condition": {share, status("cpu", 5, "50m"), func() *autoscalingv2.HorizontalPodAutoscalerStatus {
			s := status("cpu", 5, "50m")
			s.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.AbleToScale}}
			return s
		}(), true},
	} {
		if got := worthWriting(c.stored, c.next, []autoscalingv2.MetricSpec{c.spec}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Repeated recommendations and scale-ups do not grow the history.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := history{}
	for i := range 10000 {
		h.recommend(int32(i/5000), now.Add(time.Duration(i)*15*time.Second), time.Hour)
		h.scaled(behavior(free(), free()), 1, 2, now.Add(time.Duration(i)*15*time.Second))
	}
	if len(h.recommended) > 2 || len(h.added) > 2 || len(h.removed) > 0 {
		t.Errorf("%d recommendations, %d scale-ups, %d scale-downs", len(h.recommended), len(h.added), len(h.removed))
	}
}
