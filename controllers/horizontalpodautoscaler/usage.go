package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"monopod/apiserver/kit/metrics"
	"monopod/controllers/podstate"
)

// sample is the usage of a resource by a pod or one of its containers, in thousandths.
type sample struct {
	value  int64
	at     time.Time
	window time.Duration // of the sample, before at
}

// byResource computes the number of pods at which their average usage of a resource reaches the target.
type byResource struct {
	name      corev1.ResourceName
	container string // empty: the whole pod
	target    autoscalingv2.MetricTarget
}

// pods returns the number of pods, and the average now.
func (a byResource) pods(in *input) (int32, autoscalingv2.MetricValueStatus, error) {
	var none autoscalingv2.MetricValueStatus
	if a.target.AverageValue == nil && a.target.AverageUtilization == nil {
		return 0, none,
			errors.New("invalid resource metric source: " +
				"neither an average utilization target nor an average value (usage) target was set")
	}
	what := "utilization"
	if a.target.AverageValue != nil {
		what = "usage"
	}
	n, status, err := a.count(in)
	if err != nil {
		return 0, none, fmt.Errorf("failed to get %s %s: %w", a.name, what, err)
	}
	return n, status, nil
}

func (a byResource) count(in *input) (int32, autoscalingv2.MetricValueStatus, error) {
	var none autoscalingv2.MetricValueStatus
	samples, err := a.samples(in.usage)
	if err != nil {
		return 0, none, fmt.Errorf("unable to get metrics for resource %s: %w", a.name, err)
	}
	if len(in.pods) == 0 {
		return 0, none, errors.New("no pods returned by selector while calculating replica count")
	}
	g := group(in, samples, a.name)
	for _, name := range append(g.ignored, g.unready...) {
		delete(samples, name)
	}
	if len(samples) == 0 {
		return 0, none, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	m, err := a.measure(in.pods)
	if err != nil {
		return 0, none, err
	}
	ratio, status, err := m.ratio(samples)
	if err != nil {
		return 0, none, err
	}
	n, err := g.replicas(in, samples, ratio, m)
	return n, status, err
}

// samples returns the sample of every pod whose usage is known.
func (a byResource) samples(u usage) (map[string]sample, error) {
	if u.err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", u.err)
	}
	if len(u.pods) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	out := make(map[string]sample, len(u.pods))
	for _, p := range u.pods {
		value, known, found := a.used(p)
		if a.container != "" && !found {
			return nil, fmt.Errorf("failed to get container metrics: container %s not present in metrics for pod %s/%s",
				a.container, p.Namespace, p.Name)
		}
		if known {
			out[p.Name] = sample{value: value, at: p.Timestamp.Time, window: p.Window.Duration}
		}
	}
	return out, nil
}

// used returns the usage of the pod or the container. known: every considered container has the resource; found: there
// is such a container.
func (a byResource) used(p *metrics.PodMetrics) (sum int64, known, found bool) {
	known = true
	for i := range p.Containers {
		c := &p.Containers[i]
		if a.container != "" && c.Name != a.container {
			continue
		}
		q, ok := c.Usage[a.name]
		found, known = true, known && ok
		sum += q.MilliValue()
	}
	return sum, known && found, found
}

// measure compares samples with the target.
type measure struct {
	requests    map[string]int64 // by pod, in thousandths; nil: the target is a value
	utilization int32            // target, percent of the requests
	value       int64            // target, thousandths
}

func (a byResource) measure(pods []*corev1.Pod) (measure, error) {
	if a.target.AverageValue != nil {
		return measure{value: a.target.AverageValue.MilliValue()}, nil
	}
	m := measure{requests: make(map[string]int64, len(pods)), utilization: *a.target.AverageUtilization}
	for _, p := range pods {
		n, err := a.request(p)
		if err != nil {
			return m, err
		}
		m.requests[p.Name] = n
	}
	return m, nil
}

// request returns what the pod or the container requests, in thousandths.
func (a byResource) request(p *corev1.Pod) (int64, error) {
	if a.container == "" && resourcehelper.IsPodLevelRequestsSet(p) {
		q, ok := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})[a.name]
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", a.name, p.Name)
		}
		return q.MilliValue(), nil
	}
	var sum int64
	found := false
	for c := range running(p) {
		if a.container != "" && c.Name != a.container {
			continue
		}
		q, ok := c.Resources.Requests[a.name]
		if !ok {
			return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", a.name, c.Name, p.Name)
		}
		found, sum = true, sum+q.MilliValue()
	}
	if a.container != "" && !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", a.container, p.Name)
	}
	return sum, nil
}

// running iterates over the containers that run for the pod's whole life: regular containers and sidecars.
func running(p *corev1.Pod) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for i := range p.Spec.Containers {
			if !yield(&p.Spec.Containers[i]) {
				return
			}
		}
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && !yield(c) {
				return
			}
		}
	}
}

// ratio returns the ratio of the samples to the target, and the average usage.
func (m measure) ratio(samples map[string]sample) (float64, autoscalingv2.MetricValueStatus, error) {
	var status autoscalingv2.MetricValueStatus
	var total, requested, n int64
	for pod, s := range samples {
		request, ok := m.requests[pod]
		if m.requests != nil && !ok {
			continue // its pod is not selected
		}
		total, requested, n = total+s.value, requested+request, n+1
	}
	if m.requests == nil {
		average := total / n
		status.AverageValue = resource.NewMilliQuantity(average, resource.DecimalSI)
		return float64(average) / float64(m.value), status, nil
	}
	if requested == 0 {
		return 0, status, errors.New("no metrics returned matched known pods")
	}
	percent := clamp(float64(total/requested*100 + total%requested*100/requested))
	status.AverageUtilization, status.AverageValue = &percent, resource.NewMilliQuantity(total/n, resource.DecimalSI)
	return float64(percent) / float64(m.utilization), status, nil
}

// all is the usage that a pod without a sample is assumed to have for a scale-down: the larger of its request and the
// target.
func (m measure) all(pod string) int64 {
	if m.requests == nil {
		return m.value
	}
	return m.requests[pod] * int64(max(100, m.utilization)) / 100
}

// groups divides the pods by how their samples are used.
type groups struct {
	ready   int      // number of pods whose sample counts
	unready []string // starting pods, and pods whose sample is older than their readiness
	missing []string // pods without a sample
	ignored []string // pods that have failed or are being deleted
}

// group sorts the pods. Readiness matters only for CPU, because a starting pod uses much of it.
func group(in *input, samples map[string]sample, name corev1.ResourceName) (g groups) {
	for _, p := range in.pods {
		s, sampled := samples[p.Name]
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed:
			g.ignored = append(g.ignored, p.Name)
		case p.Status.Phase == corev1.PodPending:
			g.unready = append(g.unready, p.Name)
		case !sampled:
			g.missing = append(g.missing, p.Name)
		case name == corev1.ResourceCPU && in.starting(p, s):
			g.unready = append(g.unready, p.Name)
		default:
			g.ready++
		}
	}
	return g
}

// starting reports whether the CPU usage of a pod is ignored because the pod is starting.
func (in *input) starting(p *corev1.Pod, s sample) bool {
	ready, startedAt := podstate.Condition(p, corev1.PodReady), p.Status.StartTime
	if ready == nil || startedAt == nil {
		return true
	}
	if startedAt.Add(in.CPUInitializationPeriod).After(in.now) {
		return ready.Status == corev1.ConditionFalse || s.at.Before(ready.LastTransitionTime.Add(s.window))
	}
	return ready.Status == corev1.ConditionFalse &&
		startedAt.Add(in.InitialReadinessDelay).After(ready.LastTransitionTime.Time)
}

// replicas returns the number of pods at which the ratio would be 1. For pods without a usable sample it assumes the
// usage that makes the change smaller. It modifies samples.
func (g groups) replicas(in *input, samples map[string]sample, ratio float64, m measure) (int32, error) {
	grow := len(g.unready) > 0 && ratio > 1
	if !grow && len(g.missing) == 0 {
		if in.tolerated(ratio) {
			return in.current, nil
		}
		return clamp(math.Ceil(ratio * float64(g.ready))), nil
	}
	for _, pod := range g.missing {
		switch {
		case ratio < 1:
			samples[pod] = sample{value: m.all(pod)}
		case ratio > 1:
			samples[pod] = sample{}
		}
	}
	if grow {
		for _, pod := range g.unready {
			samples[pod] = sample{}
		}
	}
	corrected, _, err := m.ratio(samples)
	if err != nil {
		return 0, err
	}
	if in.tolerated(corrected) || ratio < 1 && corrected > 1 || ratio > 1 && corrected < 1 {
		return in.current, nil
	}
	n := clamp(math.Ceil(corrected * float64(len(samples))))
	if corrected < 1 && n > in.current || corrected > 1 && n < in.current {
		return in.current, nil
	}
	return n, nil
}

// tolerated reports whether a ratio is too close to 1 for a change.
func (in *input) tolerated(ratio float64) bool {
	up, down := in.Tolerance, in.Tolerance
	if b := in.hpa.Spec.Behavior; b != nil {
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
	}
	return 1-down <= ratio && ratio <= 1+up
}

// clamp returns the int32 nearest to n.
func clamp(n float64) int32 {
	return int32(min(max(n, math.MinInt32), math.MaxInt32))
}
