package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/metrics"
)

// now is the time of every evaluation of these tests.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// testPod is a pod with its usage. The zero value requests 100m and 100Mi, and has been ready for an hour.
type testPod struct {
	cpu, memory int64 // used, milli and Mi
	unmeasured  bool
	phase       corev1.PodPhase // empty: Running
	unready     bool
	deleting    bool
	age, ready  time.Duration // since its start and its last change of readiness; 0: an hour
	noRequest   bool
	podLevel    string // CPU requested by the pod as a whole
	sidecar     bool   // a sidecar requests 100m and uses as much as the container
}

func ago(d time.Duration) metav1.Time {
	if d == 0 {
		d = time.Hour
	}
	return metav1.NewTime(now.Add(-d))
}

func (p testPod) pod(i int) *corev1.Pod {
	requests := corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("100Mi")}
	if p.noRequest {
		requests = nil
	}
	c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}
	started, status := ago(p.age), corev1.ConditionTrue
	if p.unready {
		status = corev1.ConditionFalse
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", i),
			Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{c}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status, LastTransitionTime: ago(p.ready)}}},
	}
	if p.phase != "" {
		pod.Status.Phase = p.phase
	}
	if p.deleting {
		pod.DeletionTimestamp = &started
	}
	if p.podLevel != "" {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(
			p.podLevel)}}
	}
	if p.sidecar {
		c.Name, c.RestartPolicy = "side", new(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c, corev1.Container{Name: "setup"})
	}
	return pod
}

func (p testPod) metrics(i int) *metrics.PodMetrics {
	c := metrics.ContainerMetrics{Name: "c", Usage: corev1.ResourceList{
		"cpu": *resource.NewMilliQuantity(p.cpu, resource.DecimalSI), "memory": *resource.NewQuantity(p.memory<<20,
			resource.BinarySI)}}
	m := &metrics.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", i)},
		Timestamp: metav1.NewTime(now), Window: metav1.Duration{Duration: 15 * time.Second},
		Containers: []metrics.ContainerMetrics{c}}
	if p.sidecar {
		c.Name = "side"
		m.Containers = append(m.Containers, c)
	}
	return m
}

func some(n int, p testPod) []testPod {
	out := make([]testPod, n)
	for i := range out {
		out[i] = p
	}
	return out
}

func use(cpu ...int64) []testPod {
	out := make([]testPod, len(cpu))
	for i := range cpu {
		out[i].cpu = cpu[i]
	}
	return out
}

func cpuAt(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType,
				AverageUtilization: &percent}}}
}

func averageOf(name corev1.ResourceName, value string) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType,
				AverageValue: new(resource.MustParse(value))}}}
}

func containerAt(name string, percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType,
		ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
			Container: name, Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType,
				AverageUtilization: &percent}}}
}

func value(s string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: new(resource.MustParse(s))}
}

var (
	ofPods = autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "hits"},
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType,
			AverageValue: new(resource.MustParse("1"))}}}
	ofObject = autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType,
		Object: &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "Ingress", Name: "main"},
			Metric:          autoscalingv2.MetricIdentifier{Name: "hits"}, Target: value("1")}}
	external = autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType,
		External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: value("1")}}
)

// rules returns scaling rules: the stabilization window in seconds, selectPolicy, and policies.
func rules(window int32, choose autoscalingv2.ScalingPolicySelect,
	policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window, SelectPolicy: &choose, Policies: policies}
}

func podsPolicy(n, seconds int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: seconds}
}

func percentPolicy(n, seconds int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: n, PeriodSeconds: seconds}
}

const (
	most     = autoscalingv2.MaxChangePolicySelect
	fewest   = autoscalingv2.MinChangePolicySelect
	disabled = autoscalingv2.DisabledPolicySelect
)

func free() *autoscalingv2.HPAScalingRules { return rules(0, most, percentPolicy(900, 15)) }

func behavior(up, down *autoscalingv2.HPAScalingRules) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: up, ScaleDown: down}
}

func tolerant(r *autoscalingv2.HPAScalingRules, share string) *autoscalingv2.HPAScalingRules {
	r.Tolerance = new(resource.MustParse(share))
	return r
}

// decision is one row of the table. By default the range is 1 to 10, and the target is 50 % of the requested CPU.
type decision struct {
	name         string
	current      int32 // 0: the number of pods
	min, max     int32 // 0: 1 and 10
	zero         bool  // the target has 0 pods, or min is 0
	byAutoscaler bool  // the target was scaled to 0 by an autoscaler
	metrics      []autoscalingv2.MetricSpec
	behavior     *autoscalingv2.HorizontalPodAutoscalerBehavior
	pods         []testPod
	usageErr     error
	history      history
	fresh        bool         // the first evaluation
	badText      string       // an invalid selector of the scale; "-": an empty one
	rivals       []follow.Key // other autoscalers of the same pods

	want   int32  // 0: no change; -1: no pods
	why    string // a part of the event's reason, of the error's text, or of a condition's message
	able   string // the reason of AbleToScale; ! marks status False
	active string
	limits string
}

func (d decision) input() *input {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &d.min, MaxReplicas: d.max, Metrics: d.metrics,
			Behavior: d.behavior},
	}
	if d.max == 0 {
		hpa.Spec.MaxReplicas = 10
	}
	if d.min == 0 && !d.zero {
		hpa.Spec.MinReplicas = nil
	}
	if d.metrics == nil {
		hpa.Spec.Metrics = []autoscalingv2.MetricSpec{cpuAt(50)}
	}
	if d.byAutoscaler {
		hpa.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScaledToZero,
			Status: corev1.ConditionTrue}}
	}
	in := &input{hpa: hpa, current: d.current, now: now, history: d.history, rivals: d.rivals,
		selection: labels.Everything(),
		Settings: Settings{Tolerance: 0.1, DownscaleStabilization: 5 * time.Minute, CPUInitializationPeriod: 5 * time.Minute,
			InitialReadinessDelay: 30 * time.Second}}
	in.usage.err = d.usageErr
	if d.badText != "" {
		_, in.selectErr = parse(strings.Trim(d.badText, "-"))
	}
	for i, p := range d.pods {
		in.pods = append(in.pods, p.pod(i))
		if !p.unmeasured {
			in.usage.pods = append(in.usage.pods, p.metrics(i))
		}
	}
	if d.current == 0 && len(d.pods) > 0 {
		in.current = int32(len(d.pods))
	}
	if !d.fresh && len(in.history.recommended) == 0 {
		in.history.recommended = []entry{minutes(in.current, time.Hour)}
	}
	return in
}

// reasonOf returns reason and message of a condition; ! before the reason marks status False.
func reasonOf(s *autoscalingv2.HorizontalPodAutoscalerStatus, t autoscalingv2.HorizontalPodAutoscalerConditionType) (
	reason, message string) {
	for _, c := range s.Conditions {
		if c.Type == t {
			if c.Status == corev1.ConditionFalse {
				return "!" + c.Reason, c.Message
			}
			return c.Reason, c.Message
		}
	}
	return "", ""
}

func (d decision) check(t *testing.T) {
	in := d.input()
	v := decide(in)
	want := max(d.want, 0)
	if d.want == 0 {
		want = in.current
	}
	switch {
	case v.rescale && (v.replicas != want || want == in.current):
		t.Errorf("scaled from %d to %d (%s), want %d", in.current, v.replicas, v.reason, want)
	case !v.rescale && want != in.current:
		t.Errorf("not scaled from %d to %d: %v", in.current, want, v.err)
	}
	if v.status.CurrentReplicas != in.current || v.err == nil && v.status.DesiredReplicas != want {
		t.Errorf("status: currentReplicas %d, desiredReplicas %d, want %d and %d", v.status.CurrentReplicas,
			v.status.DesiredReplicas, in.current, want)
	}
	able, _ := reasonOf(&v.status, autoscalingv2.AbleToScale)
	active, message := reasonOf(&v.status, autoscalingv2.ScalingActive)
	limits, _ := reasonOf(&v.status, autoscalingv2.ScalingLimited)
	for _, c := range [][3]string{{"AbleToScale", able, d.able}, {"ScalingActive", active, d.active},
		{"ScalingLimited", limits, d.limits}} {
		if c[2] != "" && c[1] != c[2] {
			t.Errorf("%s is %s, want %s", c[0], c[1], c[2])
		}
	}
	texts := fmt.Sprint(v.reason, "\n", v.err, "\n", message, "\n", v.events)
	if !strings.Contains(texts, d.why) {
		t.Errorf("want %q in:\n%s", d.why, texts)
	}
}

const (
	within = "!DesiredWithinRange"
	valid  = "ValidMetricFound"
	ready  = "ReadyForNewScale"
)

func minutes(n int32, ago time.Duration) entry { return entry{n, now.Add(-ago)} }

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, d := range []decision{
		// The range applies without a metric.
		{name: "scaled to zero by another client", zero: false, current: 0, active: "!ScalingDisabled",
			able: "SucceededGetScale"},
		{name: "scaled to zero by another client, which is in the range", zero: true,
			metrics: []autoscalingv2.MetricSpec{external}, active: "!ScalingDisabled"},
		{name: "scaled to zero by an autoscaler", zero: true, byAutoscaler: true,
			metrics: []autoscalingv2.MetricSpec{external}, active: "!FailedGetExternalMetric"},
		{name: "scaled to zero by an autoscaler, which is below a new range", byAutoscaler: true, min: 2, want: 2,
			why: "Current number of replicas below Spec.MinReplicas"},
		{name: "above the range", current: 12, want: 10, why: "Current number of replicas above Spec.MaxReplicas"},
		{name: "below the range", current: 1, min: 2, want: 2, why: "Current number of replicas below Spec.MinReplicas"},

		// Utilization.
		{name: "at the target", pods: use(50, 50), active: valid, able: ready, limits: within},
		{name: "within the tolerance above", pods: use(55, 55), active: valid},
		{name: "within the tolerance below", pods: use(45, 45), active: valid},
		{name: "above the tolerance", pods: use(56, 56), want: 3,
			why: "cpu resource utilization (percentage of request) above target"},
		{name: "below the tolerance", pods: use(20, 20), want: 1, why: "All metrics below target", able: ready,
			limits: within},
		{name: "rounded up", pods: use(60, 60, 60), want: 4},
		{name: "down to the minimum", pods: use(0, 0, 0), min: 2, want: 2, limits: "TooFewReplicas"},
		{name: "up to the maximum", pods: use(300, 300), max: 3, want: 3, limits: "TooManyReplicas"},
		{name: "doubled at most", pods: use(400, 400, 400), max: 100, want: 6, limits: "ScaleUpLimit"},
		{name: "up to four at most", pods: use(900), max: 100, want: 4, limits: "ScaleUpLimit"},
		{name: "no usage of idle pods", pods: use(0, 0), want: 1},
		{name: "the pod's requests count", pods: []testPod{{cpu: 100, podLevel: "200m"}}, active: valid},
		{name: "the pod's requests lack the resource", pods: []testPod{{memory: 1, podLevel: "200m", noRequest: true}},
			metrics: []autoscalingv2.MetricSpec{func() autoscalingv2.MetricSpec {
				m := cpuAt(50)
				m.Resource.Name = "memory"
				return m
			}()}, why: "missing pod-level request for memory in Pod p0", active: "!FailedGetResourceMetric"},
		{name: "a sidecar counts", pods: []testPod{{cpu: 50, sidecar: true}}, active: valid},
		{name: "no request", pods: []testPod{{noRequest: true}}, active: "!FailedGetResourceMetric",
			able: "SucceededGetScale",
			why: "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to " +
				"get cpu utilization: missing request for cpu in container c of Pod p0"},
		{name: "no metrics", pods: []testPod{{unmeasured: true}}, active: "!FailedGetResourceMetric",
			why: "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for " +
				"resource cpu: no metrics returned from resource metrics API"},
		{name: "metrics fail", pods: use(1), usageErr: errors.New("no runtime"), active: "!FailedGetResourceMetric",
			why: "unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: no runtime"},

		// Average values.
		{name: "average value at the target", pods: use(50, 50), metrics: []autoscalingv2.MetricSpec{averageOf("cpu", "50m")},
			active: valid},
		{name: "average value above", pods: use(80, 80), metrics: []autoscalingv2.MetricSpec{averageOf("cpu", "50m")},
			want: 4, why: "cpu resource above target"},
		{name: "average value of memory", pods: some(2, testPod{memory: 300}),
			metrics: []autoscalingv2.MetricSpec{averageOf("memory", "100Mi")}, want: 4, limits: "ScaleUpLimit"},
		{name: "average value needs no request", pods: []testPod{{cpu: 100, noRequest: true}},
			metrics: []autoscalingv2.MetricSpec{averageOf("cpu", "50m")}, want: 2},
		{name: "average value fails", pods: []testPod{{unmeasured: true}},
			metrics: []autoscalingv2.MetricSpec{averageOf("cpu", "50m")}, why: "failed to get cpu usage: unable to get metrics"},

		// One container.
		{name: "container above", pods: []testPod{{cpu: 100, sidecar: true}},
			metrics: []autoscalingv2.MetricSpec{containerAt("side", 50)}, want: 2,
			why: "cpu container resource utilization (percentage of request) above target"},
		{name: "container without metrics", pods: use(1), metrics: []autoscalingv2.MetricSpec{containerAt("side", 50)},
			active: "!FailedGetContainerResourceMetric",
			why: "failed to get side container metric value: failed to get cpu utilization: unable to get metrics for " +
				"resource cpu: failed to get container metrics: container side not present in metrics for pod default/p0"},

		// Pods that do not count.
		{name: "a failed pod", pods: []testPod{{cpu: 50}, {cpu: 900, phase: corev1.PodFailed}}, active: valid, want: 0,
			current: 1},
		{name: "a deleted pod", pods: []testPod{{cpu: 50}, {cpu: 900, deleting: true}}, current: 1},
		{name: "a pending pod dampens a scale-up", pods: []testPod{{cpu: 100}, {phase: corev1.PodPending, unmeasured: true}}},
		{name: "a pending pod does not prevent one", pods: []testPod{{cpu: 200}, {phase: corev1.PodPending,
			unmeasured: true}}, want: 4},
		{name: "a pending pod does not count for a scale-down", pods: []testPod{{cpu: 10}, {cpu: 10},
			{phase: corev1.PodPending, unmeasured: true}}, want: 1},
		{name: "a missing pod uses nothing when pods are added", pods: []testPod{{cpu: 100}, {unmeasured: true}}},
		{name: "a missing pod uses its request when pods are removed", pods: []testPod{{cpu: 10}, {cpu: 10}, {cpu: 10},
			{unmeasured: true}}, want: 3},
		{name: "a missing pod uses the target if that is more", pods: []testPod{{cpu: 150}, {cpu: 10}, {cpu: 10},
			{unmeasured: true}}, metrics: []autoscalingv2.MetricSpec{cpuAt(200)}, want: 2},
		{name: "a missing pod does not turn the direction", pods: []testPod{{cpu: 20}, {cpu: 20}, {unmeasured: true}}},
		{name: "all pods start", pods: some(2, testPod{cpu: 900, age: time.Minute, ready: time.Minute, unready: true}),
			active: "!FailedGetResourceMetric",
			why:    "did not receive metrics for targeted pods (pods might be unready)"},
		{name: "a starting pod's CPU does not count", pods: []testPod{{cpu: 50}, {cpu: 900, age: time.Minute,
			ready: time.Minute, unready: true}}, current: 2},
		{name: "a starting pod's memory counts",
			pods:    some(2, testPod{memory: 300, age: time.Minute, ready: time.Minute, unready: true}),
			metrics: []autoscalingv2.MetricSpec{averageOf("memory", "100Mi")}, want: 4},
		{name: "a pod that was ready for a full sample window",
			pods: some(2, testPod{cpu: 100, age: time.Minute, ready: 20 * time.Second}), want: 4},
		{name: "a pod that was ready for a part of the sample window", pods: []testPod{{cpu: 50}, {cpu: 900, age: time.Minute,
			ready: 10 * time.Second}}, current: 2},
		{name: "an older pod that was never ready", pods: []testPod{{cpu: 50}, {cpu: 900, age: 10 * time.Minute,
			ready: 9*time.Minute + 40*time.Second, unready: true}}, current: 2},
		{name: "an older pod that is no longer ready", pods: some(2, testPod{cpu: 100, age: 10 * time.Minute,
			ready: 5 * time.Minute, unready: true}), want: 4},
		{name: "no pods", current: 1, pods: nil, active: "!FailedGetResourceMetric",
			why: "no metrics returned from resource metrics API"},

		// Several metrics, and metrics without an API.
		{name: "the highest counts", pods: []testPod{{cpu: 10, memory: 300}}, metrics: []autoscalingv2.MetricSpec{cpuAt(50),
			averageOf("memory", "100Mi")}, want: 3, why: "memory resource above target"},
		{name: "one metric fails, another adds pods", pods: use(100), metrics: []autoscalingv2.MetricSpec{ofPods, cpuAt(50)},
			want: 2, active: valid,
			why: "{Warning FailedGetPodsMetric unable to get metric hits: unable to fetch metrics from custom metrics API: " +
				"no custom metrics API (custom.metrics.k8s.io) registered}"},
		{name: "one metric fails, another would remove pods", pods: use(1, 1),
			metrics: []autoscalingv2.MetricSpec{cpuAt(50), ofPods}, active: "!FailedGetPodsMetric"},
		{name: "object", pods: use(1), metrics: []autoscalingv2.MetricSpec{ofObject}, active: "!FailedGetObjectMetric",
			why: "failed to get object metric value: unable to get metric hits: Ingress on default main/unable to fetch " +
				"metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"},
		{name: "external", pods: use(1), metrics: []autoscalingv2.MetricSpec{external}, active: "!FailedGetExternalMetric",
			why: "failed to get queue external metric value: failed to get external metric queue: unable to get external " +
				"metric default/queue/nil: unable to fetch metrics from external metrics API: the server could not find the " +
				"requested resource (get queue.external.metrics.k8s.io)"},
		{name: "an unknown type", pods: use(1), metrics: []autoscalingv2.MetricSpec{{Type: "Weather"}},
			active: "!InvalidMetricSourceType", why: `unknown metric source type "Weather"`},

		// The selector.
		{name: "no selector", current: 1, badText: "-", active: "!InvalidSelector",
			why: "{Warning SelectorRequired selector is required}"},
		{name: "invalid selector", current: 1, badText: "a in", active: "!InvalidSelector",
			why: "couldn't convert selector into a corresponding internal selector object: "},
		{name: "ambiguous selector", pods: use(100), rivals: []follow.Key{{Namespace: "default", Name: "a"},
			{Namespace: "default", Name: "web"}}, active: "!AmbiguousSelector",
			why: "are controlled by multiple HPAs: [{a default} {web default}]"},

		// Stabilization without a behavior.
		{name: "a new autoscaler does not remove pods at once", pods: use(10, 10, 10), fresh: true,
			able: "ScaleDownStabilized"},
		{name: "a new autoscaler adds pods at once", pods: use(100, 100), fresh: true, want: 4},
		{name: "stabilized", pods: use(10, 10, 10), history: history{recommended: []entry{minutes(3, 4*time.Minute)}},
			able: "ScaleDownStabilized"},
		{name: "down to the highest recommendation of the window", pods: use(10, 10, 10, 10),
			history: history{recommended: []entry{minutes(4, 6*time.Minute), minutes(2, 3*time.Minute),
				minutes(1, time.Minute)}}, want: 2, able: "ScaleDownStabilized"},
		{name: "the window has passed", pods: use(10, 10, 10),
			history: history{recommended: []entry{minutes(3, 6*time.Minute)}}, want: 1, able: ready},
		{name: "a scale-up is not stabilized", pods: use(100, 100),
			history: history{recommended: []entry{minutes(2, time.Minute)}}, want: 4, able: ready},

		// Policies.
		{name: "up by pods", pods: use(900, 900), behavior: behavior(rules(0, most, podsPolicy(1, 60)), free()), want: 3,
			limits: "ScaleUpLimit"},
		{name: "up by percent", pods: some(4, testPod{cpu: 900}), behavior: behavior(rules(0, most, percentPolicy(50, 60)),
			free()), want: 6, limits: "ScaleUpLimit"},
		{name: "up by percent, rounded up", pods: use(900), behavior: behavior(rules(0, most, percentPolicy(10, 60)), free()),
			want: 2, limits: "ScaleUpLimit"},
		{name: "up by Max", pods: some(4, testPod{cpu: 900}), behavior: behavior(rules(0, most, percentPolicy(50, 60),
			podsPolicy(3, 60)), free()), want: 7},
		{name: "up by Min", pods: some(4, testPod{cpu: 900}), behavior: behavior(rules(0, fewest, percentPolicy(50, 60),
			podsPolicy(3, 60)), free()), want: 6},
		{name: "up disabled", pods: use(900), behavior: behavior(rules(0, disabled, podsPolicy(3, 60)), free()),
			limits: "ScaleUpLimit"},
		{name: "up within the period", pods: some(4, testPod{cpu: 900}), behavior: behavior(rules(0, most, podsPolicy(3, 60)),
			free()), history: history{added: []entry{minutes(2, 30*time.Second)}}, want: 5},
		{name: "up, the limit of the period is reached", pods: some(4, testPod{cpu: 900}),
			behavior: behavior(rules(0, most, podsPolicy(2, 60)), free()),
			history:  history{added: []entry{minutes(3, 30*time.Second)}}, limits: "ScaleUpLimit"},
		{name: "up, the period has passed", pods: some(4, testPod{cpu: 900}),
			behavior: behavior(rules(0, most, podsPolicy(2, 60)), free()),
			history:  history{added: []entry{minutes(2, 90*time.Second)}}, want: 6},
		{name: "up after down in the period", pods: some(2, testPod{cpu: 900}),
			behavior: behavior(rules(0, most, podsPolicy(1, 60)), free()),
			history:  history{removed: []entry{minutes(2, 30*time.Second)}}, want: 5},
		{name: "up to the maximum with a behavior", pods: use(900), max: 3, behavior: behavior(free(), free()), want: 3,
			limits: "TooManyReplicas"},
		{name: "down by pods", pods: some(6, testPod{}), behavior: behavior(free(), rules(0, most, podsPolicy(2, 60))),
			want: 4, limits: "ScaleDownLimit"},
		{name: "down by percent", pods: some(7, testPod{}), behavior: behavior(free(), rules(0, most, percentPolicy(50, 60))),
			want: 3, limits: "ScaleDownLimit"},
		{name: "down by Max", pods: some(6, testPod{}), behavior: behavior(free(), rules(0, most, podsPolicy(2, 60),
			percentPolicy(50, 60))), want: 3},
		{name: "down by Min", pods: some(6, testPod{}), behavior: behavior(free(), rules(0, fewest, podsPolicy(2, 60),
			percentPolicy(50, 60))), want: 4},
		{name: "down disabled", pods: some(6, testPod{}), behavior: behavior(free(), rules(0, disabled, podsPolicy(2, 60))),
			limits: "ScaleDownLimit"},
		{name: "down within the period", pods: some(6, testPod{}), behavior: behavior(free(),
			rules(0, most, podsPolicy(3, 60))), history: history{removed: []entry{minutes(2, 30*time.Second)}}, want: 5},
		{name: "down to the minimum with a behavior", pods: some(6, testPod{}), min: 2, behavior: behavior(free(),
			rules(0, most, percentPolicy(100, 15))), want: 2, limits: "TooFewReplicas"},
		{name: "down to zero", zero: true, pods: some(2, testPod{}), behavior: behavior(free(),
			rules(0, most, percentPolicy(100, 15))), want: -1, limits: within, able: ready},

		// Windows of a behavior.
		{name: "up stabilized", pods: some(2, testPod{cpu: 200}), behavior: behavior(rules(60, most, podsPolicy(100, 60)),
			free()), history: history{recommended: []entry{minutes(3, 30*time.Second)}}, want: 3, able: "ScaleUpStabilized"},
		{name: "up after the window", pods: some(2, testPod{cpu: 200}),
			behavior: behavior(rules(60, most, podsPolicy(100, 60)), free()),
			history:  history{recommended: []entry{minutes(3, 90*time.Second)}}, want: 8, able: ready},
		{name: "down stabilized", pods: some(6, testPod{}), behavior: behavior(free(),
			rules(60, most, percentPolicy(100, 15))), history: history{recommended: []entry{minutes(5, 30*time.Second)}},
			want: 5, able: "ScaleDownStabilized"},
		{name: "down at once", pods: some(6, testPod{}), behavior: behavior(free(), rules(0, most, percentPolicy(100, 15))),
			history: history{recommended: []entry{minutes(5, 30*time.Second)}}, want: 1, able: ready},
		{name: "down by the flag's window", pods: some(6, testPod{}), behavior: behavior(free(),
			&autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{percentPolicy(100, 15)}}),
			history: history{recommended: []entry{minutes(4, 4*time.Minute)}}, want: 4},

		// Tolerance of a behavior.
		{name: "less tolerant upwards", pods: some(10, testPod{cpu: 52}), max: 20,
			behavior: behavior(tolerant(free(), "0.01"), free()), want: 11},
		{name: "more tolerant upwards", pods: some(10, testPod{cpu: 70}), max: 20, behavior: behavior(tolerant(free(), "0.5"),
			free())},
		{name: "less tolerant downwards", pods: some(10, testPod{cpu: 45}), max: 20, behavior: behavior(free(),
			tolerant(rules(0, most, podsPolicy(5, 60)), "0")), want: 9},
		{name: "more tolerant downwards", pods: some(10, testPod{cpu: 30}), max: 20, behavior: behavior(free(),
			tolerant(free(), "0.5"))},
	} {
		t.Run(d.name, func(t *testing.T) { t.Parallel(); d.check(t) })
	}
}
