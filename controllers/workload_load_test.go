package controllers

import (
	"context"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/metrics"
	"monopod/controllers/internal/apitest"
	"monopod/controllers/podstate"
)

// perPod is the average CPU of a pod of web that the HorizontalPodAutoscaler targets, in milli.
const perPod = 100

// loads are the possible CPU loads of all pods of web together, in milli. Each needs a number of pods that the
// tolerance of the autoscaler does not change.
func loads() []int64 { return []int64{50, 250, 350, 900} }

// wantedFor returns the number of pods that a load needs, within the limits of the autoscaler.
func wantedFor(load int64) int32 {
	return max(fewestOfWeb, min(mostOfWeb, int32((load+perPod-1)/perPod)))
}

// byCPU returns the metrics of the autoscaler.
func byCPU() []autoscalingv2.MetricSpec {
	return []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType,
				AverageValue: resource.NewMilliQuantity(perPod, resource.DecimalSI)},
		}}}
}

// List implements client.Client. It serves PodMetrics: the ready pods share the load equally.
func (d *deletions) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	if sel.Resource != metrics.Pods() {
		return d.Link.List(ctx, sel)
	}
	pods, err := client.List[*corev1.Pod](ctx, d.Client, client.Selector{Namespace: sel.Namespace, Labels: sel.Labels})
	var ready []*corev1.Pod
	for _, p := range pods {
		if podstate.Ready(p) && p.DeletionTimestamp == nil {
			ready = append(ready, p)
		}
	}
	var out []client.Object
	for _, p := range ready {
		share := resource.NewMilliQuantity(d.load.Load()/int64(len(ready)), resource.DecimalSI)
		out = append(out, &metrics.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			Timestamp: metav1.Now(), Window: metav1.Duration{Duration: time.Second},
			Containers: []metrics.ContainerMetrics{{Name: "c", Usage: corev1.ResourceList{corev1.ResourceCPU: *share}}}})
	}
	return out, "", err
}

// busy changes the load of web.
func (w *town) busy() {
	load := loads()[w.rng.IntN(len(loads()))]
	w.say(true, "load %d", load)
	w.link.load.Store(load)
}

// sleepy suspends the CronJob for a while, in which it must not create Jobs, and resumes it. The CronJob must then
// create the last missed Job, unless another one is active.
func (w *town) sleepy() {
	w.say(false, "suspend")
	suspend := func(yes bool) {
		cj := apitest.Existing[*batchv1.CronJob](w.API, "default", "cron")
		apitest.Change(w.API, cj, "", func(cj *batchv1.CronJob) { cj.Spec.Suspend = &yes })
		apitest.Settle(5 * time.Second)
	}
	suspend(true)
	since := time.Now()
	apitest.Settle(time.Duration(w.rng.IntN(600)) * time.Second)
	for _, job := range apitest.List[*batchv1.Job](w.API, "default") {
		if owner := metav1.GetControllerOf(job); owner != nil && owner.Kind == "CronJob" &&
			job.CreationTimestamp.After(since) {
			w.T.Errorf("the suspended CronJob created Job %s, after %q", job.Name, w.said)
		}
	}
	suspend(false)
	s := apitest.Existing[*batchv1.CronJob](w.API, "default", "cron").Status
	if at := time.Now().Truncate(cronPeriod); len(s.Active) == 0 && (s.LastScheduleTime == nil ||
		s.LastScheduleTime.Time.Before(at)) && time.Since(w.began) > 2*cronPeriod {
		w.T.Errorf("the resumed CronJob created no Job for %v: %+v, after %q", at, s, w.said)
	}
}

// cronPeriod is the period of the CronJob's schedule.
const cronPeriod = 3 * time.Minute

// scaledByLoad checks that web has the replicas that its load needs.
func (w *town) scaledByLoad() {
	d := apitest.Existing[*appsv1.Deployment](w.API, "default", "web")
	if n, want := *d.Spec.Replicas, wantedFor(w.link.load.Load()); n != 0 && n != want {
		hpa := apitest.Existing[*autoscalingv2.HorizontalPodAutoscaler](w.API, "default", "web")
		w.T.Errorf("web has %d replicas for a load of %d, want %d: %+v, after %q", n, w.link.load.Load(), want, hpa.Status,
			w.said)
	}
}

// someLoad returns a random load.
func someLoad(rng *rand.Rand) int64 { return loads()[rng.IntN(len(loads()))] }
