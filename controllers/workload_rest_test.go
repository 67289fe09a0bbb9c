package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

// deletions is the client of the controllers. It records deletions of pods that only the pods' owner can have a reason
// for.
type deletions struct {
	*apitest.Link
	load atomic.Int64 // CPU load of all pods of web together, in milli

	mu   sync.Mutex // guards the fields below
	made []deletion // each needs an Event about the owner
	of   map[types.UID]int
}

type deletion struct {
	pod   string
	owner metav1.OwnerReference
	at    time.Time
}

// explainedAtMost is the number of creations and deletions of an owner's pods after which explain ignores deletions:
// the recorder drops Events about one object after 25 in a row, as client-go's does.
const explainedAtMost = 20

// Create implements client.Client.
func (d *deletions) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	created, err := d.Link.Create(ctx, obj)
	if owner := metav1.GetControllerOf(obj); err == nil && owner != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.of[owner.UID]++
	}
	return created, err
}

// Delete implements client.Client.
func (d *deletions) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	var pod *corev1.Pod
	if ref.Resource == client.Pods {
		pod, _ = client.Get[*corev1.Pod](ctx, d.Client, ref.Namespace, ref.Name)
	}
	obj, err := d.Link.Delete(ctx, ref, opts)
	if err != nil || pod == nil || pod.DeletionTimestamp != nil || !d.kept(ctx, pod) {
		return obj, err
	}
	owner := metav1.GetControllerOf(pod)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of[owner.UID]++; d.of[owner.UID] <= explainedAtMost {
		d.made = append(d.made, deletion{pod.Name, *owner, time.Now()})
	}
	return obj, err
}

// kept reports whether only the pod's owner has a reason to delete the pod: owner and node exist, and the node has no
// NoExecute taint.
func (d *deletions) kept(ctx context.Context, pod *corev1.Pod) bool {
	ref := metav1.GetControllerOf(pod)
	if ref == nil {
		return false
	}
	if pod.Spec.NodeName != "" {
		node, err := client.Get[*corev1.Node](ctx, d.Client, "", pod.Spec.NodeName)
		if err != nil ||
			slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }) {
			return false
		}
	}
	resource := map[string]schema.GroupVersionResource{"ReplicaSet": client.ReplicaSets,
		"StatefulSet": client.StatefulSets, "DaemonSet": client.DaemonSets, "Job": client.Jobs}[ref.Kind]
	owner, err := d.Get(ctx, client.Ref{Resource: resource, Namespace: pod.Namespace, Name: ref.Name})
	return err == nil && owner.GetUID() == ref.UID && owner.GetDeletionTimestamp() == nil
}

// explain checks that an Event about the owner reports each recorded deletion.
func (w *town) explain() {
	events := apitest.List[*corev1.Event](w.API, "default")
	w.link.mu.Lock()
	defer w.link.mu.Unlock()
	for _, d := range w.link.made {
		if !slices.ContainsFunc(events, func(e *corev1.Event) bool {
			last := e.LastTimestamp.Time
			if e.Series != nil {
				last = e.Series.LastObservedTime.Time
			}
			return e.InvolvedObject.UID == d.owner.UID && e.Reason == "SuccessfulDelete" &&
				!last.Before(d.at.Truncate(time.Second))
		}) {
			w.T.Errorf("no Event explains the deletion of pod %s of %s %s, after %q", d.pod, d.owner.Kind, d.owner.Name, w.said)
		}
	}
	w.link.made = nil
}

// atRest reports whether the statuses of the workloads match their specs.
func (w *town) atRest() bool {
	d, ok := apitest.Get[*appsv1.Deployment](w.API, "default", "web")
	s, ok2 := apitest.Get[*appsv1.StatefulSet](w.API, "default", "db")
	ds, ok3 := apitest.Get[*appsv1.DaemonSet](w.API, "default", "agent")
	if !ok || !ok2 || !ok3 {
		return false
	}
	n, m := *d.Spec.Replicas, *s.Spec.Replicas
	return (n == 0 || n >= fewestOfWeb && n <= mostOfWeb) && !d.Spec.Paused &&
		d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == n && d.Status.UpdatedReplicas == n &&
		d.Status.AvailableReplicas == n &&
		s.Status.ObservedGeneration == s.Generation && s.Status.Replicas == m && s.Status.AvailableReplicas == m &&
		s.Status.UpdatedReplicas == m &&
		ds.Status.ObservedGeneration == ds.Generation && ds.Status.NumberAvailable == nodesOfTown &&
		ds.Status.UpdatedNumberScheduled == nodesOfTown
}

// describe lists the pods.
func (w *town) describe() (out string) {
	for _, p := range apitest.List[*corev1.Pod](w.API, "default") {
		out += fmt.Sprintf("\n%s on %q %s %s deleted %v %s", p.Name, p.Spec.NodeName, p.Spec.Containers[0].Image,
			p.Status.Phase, p.DeletionTimestamp, p.Status.Message)
	}
	return out
}

// finish waits until all workloads are at rest, and checks the result.
func (w *town) finish() {
	w.say(true, "finish")
	w.create()
	d, _ := apitest.Get[*appsv1.Deployment](w.API, "default", "web")
	apitest.Change(w.API, d, "", func(d *appsv1.Deployment) { d.Spec.Paused = false })
	cj, _ := apitest.Get[*batchv1.CronJob](w.API, "default", "cron")
	apitest.Change(w.API, cj, "", func(cj *batchv1.CronJob) { cj.Spec.Suspend = new(true) })
	// A released pod may have the name of a pod of the StatefulSet.
	for _, p := range apitest.List[*corev1.Pod](w.API, "default") {
		if p.Labels["app"] == "debug" && p.DeletionTimestamp == nil {
			w.API.Delete(p, "")
		}
	}
	w.template("last")
	apitest.Settle(30 * time.Minute)
	w.explain()
	if !w.atRest() {
		w.T.Errorf("not at rest, after %q: %s", w.said, w.describe())
	}
	w.scaledByLoad()
	for _, job := range apitest.List[*batchv1.Job](w.API, "default") {
		s := job.Status
		if !slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobComplete }) ||
			s.Active != 0 || s.Succeeded != *job.Spec.Completions {
			w.T.Errorf("Job %s: %+v, after %q", job.Name, s, w.said)
		}
	}
	for _, p := range apitest.List[*corev1.Pod](w.API, "default") {
		app := p.Labels["app"]
		owner := metav1.GetControllerOf(p)
		// A finished Job does not release its pods.
		if owner == nil && app != "debug" || app == "debug" && owner != nil && owner.Kind != "Job" {
			w.T.Errorf("pod %s of app %s is owned by %v, after %q", p.Name, app, owner, w.said)
		}
	}
	// The autoscaler evaluates periodically, so it would never be at rest.
	w.API.Delete(apitest.Existing[*autoscalingv2.HorizontalPodAutoscaler](w.API, "default", "web"), "")
	apitest.Settle(4 * time.Hour) // until the Events have expired
	before, syncs := w.Store.Revision(), w.reconciles()
	apitest.Settle(24 * time.Hour)
	if after := w.Store.Revision(); after != before {
		w.T.Errorf("%d writes at rest", after-before)
	}
	for name, n := range w.reconciles() {
		if n != syncs[name] && name != "podgc" {
			w.T.Errorf("%d reconciles of %s at rest", n-syncs[name], name)
		}
	}
}

// reconciles returns the number of reconciles of each controller.
func (w *town) reconciles() map[string]uint64 {
	families, err := w.Registry.Gather()
	if err != nil {
		w.T.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, f := range families {
		if f.GetName() == "workqueue_work_duration_seconds" {
			for _, m := range f.GetMetric() {
				counts[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	return maps.Clone(counts)
}
