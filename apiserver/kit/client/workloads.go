package client

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources that create pods, and policies about them.
var (
	ReplicationControllers   = core("replicationcontrollers")
	Deployments              = apps("deployments")
	DaemonSets               = apps("daemonsets")
	StatefulSets             = apps("statefulsets")
	ControllerRevisions      = apps("controllerrevisions")
	Jobs                     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	CronJobs                 = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	HorizontalPodAutoscalers = schema.GroupVersionResource{Group: "autoscaling", Version: "v2",
		Resource: "horizontalpodautoscalers"}
	PodDisruptionBudgets = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}

	// HorizontalPodAutoscalersV1 is a view of HorizontalPodAutoscalers.
	HorizontalPodAutoscalersV1 = schema.GroupVersionResource{Group: "autoscaling", Version: "v1",
		Resource: "horizontalpodautoscalers"}
)

func apps(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}
}
