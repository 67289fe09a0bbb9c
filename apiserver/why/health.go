package why

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// HealthPath is the API server's path of the objects of a kind that are not well: GET with the parameters kind and
// namespace (empty: all) returns a Health by UID.
const HealthPath = "/monopod/health"

// Health says in a few words what is not well with an object, by the object alone. Lists, monopod status and
// monopod why use it; an Answer also knows the cause.
type Health struct {
	State  string `json:"state"`  // Waiting or Bad; empty: well, or nothing is known
	Reason string `json:"reason"` // such as "CrashLoopBackOff", or "not ready for 5m"
}

// The states of objects that are not well.
const (
	Waiting = "wait" // it may become well by itself
	Bad     = "bad"
)

// patience is how long an object may take to become well until it is bad.
const patience = time.Minute

// HealthOf returns the health of an object.
func HealthOf(o client.Object, now time.Time) Health {
	if t := o.GetDeletionTimestamp(); t != nil { // a pod's is in the future while its grace period lasts
		if since := now.Sub(t.Time); since > deletionTime {
			return Health{Bad, "terminating for " + words.Ago(since)}
		}
		return Health{}
	}
	switch o := o.(type) {
	case *corev1.Pod:
		return podHealth(o, now)
	case *corev1.Node:
		return nodeHealth(o)
	case *appsv1.Deployment:
		return deploymentHealth(o, now)
	case *appsv1.ReplicaSet:
		return readyHealth(ptr.Deref(o.Spec.Replicas, 1), o.Status.ReadyReplicas, o.CreationTimestamp, now)
	case *appsv1.StatefulSet:
		return readyHealth(ptr.Deref(o.Spec.Replicas, 1), o.Status.ReadyReplicas, o.CreationTimestamp, now)
	case *appsv1.DaemonSet:
		return readyHealth(o.Status.DesiredNumberScheduled, o.Status.NumberReady, o.CreationTimestamp, now)
	case *batchv1.Job:
		if c := jobCondition(o, batchv1.JobFailed); c != nil {
			return Health{Bad, cmp.Or(c.Reason, "Failed")}
		}
		return Health{}
	case *corev1.PersistentVolumeClaim:
		switch {
		case o.Status.Phase == corev1.ClaimLost:
			return Health{Bad, "its volume is gone"}
		case o.Status.Phase != corev1.ClaimBound:
			return Health{Waiting, "not bound"}
		}
	case *corev1.Service:
		if o.Spec.Type == corev1.ServiceTypeLoadBalancer && len(o.Status.LoadBalancer.Ingress) == 0 {
			return late("no address", o.CreationTimestamp, now)
		}
		return Health{}
	}
	for _, c := range words.Conditions(o) {
		if bad(c) {
			return Health{Bad, c.Type + ": " + cmp.Or(c.Reason, string(c.Status))}
		}
	}
	return Health{}
}

// late is waiting, and bad after a while.
func late(what string, since metav1.Time, now time.Time) Health {
	if t := now.Sub(since.Time); !since.IsZero() && t > patience {
		return Health{Bad, what + " for " + words.Ago(t)}
	}
	return Health{Waiting, what}
}

func podHealth(p *corev1.Pod, now time.Time) Health {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return Health{}
	case corev1.PodFailed:
		return Health{Bad, cmp.Or(p.Status.Reason, "failed")}
	}
	if c := facts.PodCondition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		if c.Reason == corev1.PodReasonUnschedulable {
			return Health{Bad, words.Reason(c.Reason, c.Message)}
		}
		return Health{Waiting, c.Reason}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch {
		case !facts.ContainerTrouble(c):
		case c.State.Waiting != nil:
			return Health{Bad, "container " + c.Name + ", " + c.State.Waiting.Reason}
		default:
			return Health{Bad, fmt.Sprintf("container %s, exit code %d", c.Name, c.State.Terminated.ExitCode)}
		}
	}
	ready := facts.PodCondition(p, corev1.PodReady)
	switch {
	case ready == nil:
		return late("not started", p.CreationTimestamp, now)
	case ready.Status != corev1.ConditionTrue:
		return late("not ready", ready.LastTransitionTime, now)
	}
	return Health{}
}

func nodeHealth(n *corev1.Node) Health {
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue:
			return Health{Bad, cmp.Or(c.Reason, "not ready")}
		case c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue:
			return Health{Bad, string(c.Type)}
		}
	}
	if n.Spec.Unschedulable {
		return Health{Waiting, "cordoned"}
	}
	return Health{}
}

func deploymentHealth(d *appsv1.Deployment, now time.Time) Health {
	want, s := ptr.Deref(d.Spec.Replicas, 1), d.Status
	available := d.CreationTimestamp
	for _, c := range s.Conditions {
		switch {
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse,
			c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			return Health{Bad, c.Reason}
		case c.Type == appsv1.DeploymentAvailable:
			available = c.LastTransitionTime
		}
	}
	switch {
	case s.ReadyReplicas < want:
		return readyHealth(want, s.ReadyReplicas, available, now)
	case s.UpdatedReplicas < want, s.Replicas > want:
		return Health{Waiting, fmt.Sprintf("%d of %d updated", s.UpdatedReplicas, want)}
	}
	return Health{}
}

// readyHealth is waiting while some replicas are ready, and bad if none is after a while.
func readyHealth(want, ready int32, since metav1.Time, now time.Time) Health {
	what := fmt.Sprintf("%d of %d ready", ready, want)
	switch {
	case ready >= want:
		return Health{}
	case ready > 0:
		return Health{Waiting, what}
	}
	return late(what, since, now)
}
