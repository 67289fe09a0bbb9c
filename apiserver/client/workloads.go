package client

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources that make pods, and those that watch over them.
var (
	ReplicationControllers   = core("replicationcontrollers")
	Deployments              = apps("deployments")
	DaemonSets               = apps("daemonsets")
	StatefulSets             = apps("statefulsets")
	ControllerRevisions      = apps("controllerrevisions")
	Jobs                     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	CronJobs                 = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	HorizontalPodAutoscalers = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	PodDisruptionBudgets     = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}

	// HorizontalPodAutoscalersV1 is a view of HorizontalPodAutoscalers.
	HorizontalPodAutoscalersV1 = schema.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"}
)

func apps(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
}

// workloadOf is ResourceOf for the kinds above.
func workloadOf(obj Object) (schema.GroupVersionResource, bool) {
	switch obj.(type) {
	case *corev1.ReplicationController:
		return ReplicationControllers, true
	case *appsv1.Deployment:
		return Deployments, true
	case *appsv1.DaemonSet:
		return DaemonSets, true
	case *appsv1.StatefulSet:
		return StatefulSets, true
	case *appsv1.ControllerRevision:
		return ControllerRevisions, true
	case *batchv1.Job:
		return Jobs, true
	case *batchv1.CronJob:
		return CronJobs, true
	case *autoscalingv2.HorizontalPodAutoscaler:
		return HorizontalPodAutoscalers, true
	case *autoscalingv1.HorizontalPodAutoscaler:
		return HorizontalPodAutoscalersV1, true
	case *policyv1.PodDisruptionBudget:
		return PodDisruptionBudgets, true
	}
	return schema.GroupVersionResource{}, false
}
