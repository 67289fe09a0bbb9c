package why

import (
	"cmp"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/why/facts"
)

// Report lists everything that is wrong now, the worst first.
type Report struct {
	Problems []Problem `json:"problems"`
	More     int       `json:"more,omitempty"`   // number of objects that look wrong and are not explained
	Hidden   []string  `json:"hidden,omitempty"` // Forbidden errors: the report is incomplete
	// Pods is the number of pods by phase, of those that the caller may list.
	Pods map[corev1.PodPhase]int `json:"pods,omitempty"`
}

// Problem explains an object with which something is wrong.
type Problem struct {
	Kind      string `json:"kind"`
	Resource  string `json:"resource"` // with the group, such as deployments.apps
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Answer
}

// MaxProblems is the maximum number of problems in a Report.
const MaxProblems = 20

// Judged returns the resources whose objects Suspects judges, in addition to those of custom kinds. A report about one
// namespace needs only the namespaced ones.
func Judged() (namespaced, others []schema.GroupVersionResource) {
	return []schema.GroupVersionResource{client.Pods, client.Deployments, client.ReplicaSets, client.StatefulSets,
			client.DaemonSets, client.Jobs, client.CronJobs,
			client.PersistentVolumeClaims, client.Services, client.Ingresses, client.HorizontalPodAutoscalers},
		[]schema.GroupVersionResource{client.Nodes, client.Namespaces, client.APIServices, client.CustomResourceDefinitions,
			client.ValidatingWebhookConfigurations, client.MutatingWebhookConfigurations}
}

// Severities, the worst first.
const (
	clusterDown = iota // no pod runs, or no object can be created
	stopped            // a workload has no ready pod
	degraded           // a workload has fewer ready pods than it should have
	other
	fine
)

// deletionTime is how long a deletion may take until it counts as a problem.
const deletionTime = 30 * time.Second

// Suspects returns the objects that look wrong, the worst first. A pod counts for its owner, so that each cause is
// found once. An object is a problem only if its Answer has something to do.
func Suspects(objects []client.Object, now time.Time) []client.Object {
	w := judge{now: now, byUID: map[types.UID]client.Object{}, severity: map[client.Object]int{}}
	for _, o := range objects {
		w.byUID[o.GetUID()] = o
		switch t := o.(type) {
		case *corev1.Pod:
			w.pods = append(w.pods, t)
		case *batchv1.Job:
			w.jobs = append(w.jobs, t)
		}
	}
	var all []client.Object
	for _, o := range objects {
		if at, severity := w.judge(o); severity < fine {
			if old, ok := w.severity[at]; !ok {
				all = append(all, at)
				w.severity[at] = severity
			} else {
				w.severity[at] = min(old, severity)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(w.severity[a], w.severity[b]), cmp.Compare(a.GetNamespace(), b.GetNamespace()),
			cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}

type judge struct {
	now      time.Time
	byUID    map[types.UID]client.Object
	pods     []*corev1.Pod
	jobs     []*batchv1.Job
	severity map[client.Object]int
}

// judge returns the severity of an object's state, and the object that explains it.
func (w *judge) judge(o client.Object) (at client.Object, severity int) {
	if o.GetDeletionTimestamp() != nil {
		return o, wrongIf(HealthOf(o, w.now).State == Bad, degraded)
	}
	switch o := o.(type) {
	case *corev1.Node:
		return o, wrongIf(HealthOf(o, w.now).State == Bad, clusterDown) // it accepts no pods
	case *corev1.Pod:
		return w.pod(o)
	case *appsv1.Deployment:
		want := ptr.Deref(o.Spec.Replicas, 1)
		return o, replicas(want, o.Status.ReadyReplicas, o.Status.ReadyReplicas < want || o.Status.UpdatedReplicas < want ||
			o.Status.Replicas != want)
	case *appsv1.ReplicaSet:
		if metav1.GetControllerOf(o) != nil {
			return o, fine
		}
		want := ptr.Deref(o.Spec.Replicas, 1)
		return o, replicas(want, o.Status.ReadyReplicas, o.Status.ReadyReplicas < want)
	case *appsv1.StatefulSet:
		want := ptr.Deref(o.Spec.Replicas, 1)
		return o, replicas(want, o.Status.ReadyReplicas, o.Status.ReadyReplicas < want)
	case *appsv1.DaemonSet:
		want := o.Status.DesiredNumberScheduled
		return o, replicas(want, o.Status.NumberReady, o.Status.NumberReady < want)
	case *batchv1.Job:
		return o, wrongIf(HealthOf(o, w.now).State == Bad && w.newest(o), other)
	case *batchv1.CronJob:
		_, at := nextStart(o, w.now)
		return o, wrongIf(at.IsZero() && !ptr.Deref(o.Spec.Suspend, false), other)
	case *corev1.PersistentVolumeClaim:
		if o.Status.Phase == corev1.ClaimLost {
			return o, stopped
		}
		return o, wrongIf(o.Status.Phase != corev1.ClaimBound && !w.used(o) || changeFails(o), other)
	case *corev1.Service:
		return o, wrongIf(w.selectsNothing(o) || o.Spec.Type == corev1.ServiceTypeLoadBalancer &&
			len(o.Status.LoadBalancer.Ingress) == 0, other)
	case *networkingv1.Ingress:
		return o, wrongIf(len(o.Status.LoadBalancer.Ingress) == 0, other)
	case *autoscalingv2.HorizontalPodAutoscaler:
		return o, wrongIf(
			slices.ContainsFunc(o.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
				return c.Status == corev1.ConditionFalse && c.Reason != "ScalingDisabled" && c.Type != autoscalingv2.ScalingLimited
			}), other)
	case *admissionregistrationv1.ValidatingWebhookConfiguration, *admissionregistrationv1.MutatingWebhookConfiguration:
		return o, clusterDown // its explanation checks the Service
	case *corev1.Namespace:
		return o, fine
	case *crd.Definition:
		if facts.Conversion(o) != nil {
			return o, stopped // its explanation checks the Service
		}
	}
	return o, wrongIf(HealthOf(o, w.now).State == Bad, other)
}

func wrongIf(wrong bool, severity int) int {
	if wrong {
		return severity
	}
	return fine
}

func replicas(want, ready int32, wrong bool) int {
	switch {
	case !wrong:
		return fine
	case ready == 0 && want > 0:
		return stopped
	}
	return degraded
}

// pod judges a pod, or its Job. Other owners count their ready pods themselves.
func (w *judge) pod(p *corev1.Pod) (client.Object, int) {
	owner := metav1.GetControllerOf(p)
	if owner != nil {
		switch o := w.byUID[owner.UID].(type) {
		case *appsv1.ReplicaSet, *appsv1.StatefulSet, *appsv1.DaemonSet:
			return p, fine
		case *batchv1.Job: // its status counts only failed pods
			scheduled := facts.PodCondition(p, corev1.PodScheduled)
			return o, wrongIf(p.Status.Phase != corev1.PodFailed &&
				(facts.Trouble(p) || scheduled != nil && scheduled.Status == corev1.ConditionFalse), stopped)
		}
	}
	ready := facts.PodCondition(p, corev1.PodReady)
	switch {
	case p.Status.Phase == corev1.PodFailed:
		return p, other
	case p.Status.Phase == corev1.PodSucceeded, ready != nil && ready.Status == corev1.ConditionTrue:
		return p, fine
	}
	return p, stopped
}

// newest reports whether a Job is the newest of its CronJob, or has none.
func (w *judge) newest(j *batchv1.Job) bool {
	owner := metav1.GetControllerOf(j)
	return owner == nil || !slices.ContainsFunc(w.jobs, func(later *batchv1.Job) bool {
		o := metav1.GetControllerOf(later)
		return o != nil && o.UID == owner.UID && later.CreationTimestamp.After(j.CreationTimestamp.Time)
	})
}

// used reports whether a pod uses a claim. In that case the pod or its owner is the problem, not the claim.
func (w *judge) used(c *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(w.pods, func(p *corev1.Pod) bool {
		return p.Namespace == c.Namespace && slices.Contains(facts.Claims(p), c.Name)
	})
}

// selectsNothing reports whether a Service selects no pod, and no pod that a workload would create.
func (w *judge) selectsNothing(s *corev1.Service) bool {
	if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	for _, o := range w.byUID {
		var of map[string]string
		switch o := o.(type) {
		case *corev1.Pod:
			of = o.Labels
		case *appsv1.Deployment:
			of = o.Spec.Template.Labels
		case *appsv1.StatefulSet:
			of = o.Spec.Template.Labels
		case *appsv1.DaemonSet:
			of = o.Spec.Template.Labels
		case *appsv1.ReplicaSet:
			of = o.Spec.Template.Labels
		case *batchv1.CronJob:
			of = o.Spec.JobTemplate.Spec.Template.Labels
		}
		if of != nil && o.GetNamespace() == s.Namespace && selector.Matches(labels.Set(of)) {
			return false
		}
	}
	return true
}
