package client

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources that controllers and the agent use.
var (
	Pods            = core("pods")
	Nodes           = core("nodes")
	Namespaces      = core("namespaces")
	Events          = core("events")
	ConfigMaps      = core("configmaps")
	Secrets         = core("secrets")
	ServiceAccounts = core("serviceaccounts")
	ReplicaSets     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	Leases          = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	PriorityClasses = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}

	LimitRanges            = core("limitranges")
	ResourceQuotas         = core("resourcequotas")
	PersistentVolumes      = core("persistentvolumes")
	PersistentVolumeClaims = core("persistentvolumeclaims")

	StorageClasses          = storage("storageclasses")
	CSIDrivers              = storage("csidrivers")
	CSINodes                = storage("csinodes")
	CSIStorageCapacities    = storage("csistoragecapacities")
	VolumeAttachments       = storage("volumeattachments")
	VolumeAttributesClasses = storage("volumeattributesclasses")

	Roles               = rbac("roles")
	RoleBindings        = rbac("rolebindings")
	ClusterRoles        = rbac("clusterroles")
	ClusterRoleBindings = rbac("clusterrolebindings")

	Services          = core("services")
	Endpoints         = core("endpoints")
	EndpointSlices    = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	Ingresses         = networking("ingresses")
	IngressClasses    = networking("ingressclasses")
	NetworkPolicies   = networking("networkpolicies")
	PodTemplates      = core("podtemplates")
	NewEvents         = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"} // a view of Events
	ComponentStatuses = core("componentstatuses")
	Bindings          = core("bindings")

	RuntimeClasses = schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}
)

// ResourceOf returns the resource a typed object belongs to; false for a type
// that is not served.
func ResourceOf(obj Object) (schema.GroupVersionResource, bool) {
	switch obj.(type) {
	case *corev1.Pod:
		return Pods, true
	case *corev1.Node:
		return Nodes, true
	case *corev1.Namespace:
		return Namespaces, true
	case *corev1.Event:
		return Events, true
	case *corev1.ConfigMap:
		return ConfigMaps, true
	case *corev1.Secret:
		return Secrets, true
	case *corev1.ServiceAccount:
		return ServiceAccounts, true
	case *appsv1.ReplicaSet:
		return ReplicaSets, true
	case *coordinationv1.Lease:
		return Leases, true
	case *schedulingv1.PriorityClass:
		return PriorityClasses, true
	case *corev1.LimitRange:
		return LimitRanges, true
	case *corev1.ResourceQuota:
		return ResourceQuotas, true
	case *corev1.PersistentVolume:
		return PersistentVolumes, true
	case *corev1.PersistentVolumeClaim:
		return PersistentVolumeClaims, true
	case *storagev1.StorageClass:
		return StorageClasses, true
	case *storagev1.CSIDriver:
		return CSIDrivers, true
	case *storagev1.CSINode:
		return CSINodes, true
	case *storagev1.CSIStorageCapacity:
		return CSIStorageCapacities, true
	case *storagev1.VolumeAttachment:
		return VolumeAttachments, true
	case *storagev1.VolumeAttributesClass:
		return VolumeAttributesClasses, true
	case *rbacv1.Role:
		return Roles, true
	case *rbacv1.RoleBinding:
		return RoleBindings, true
	case *rbacv1.ClusterRole:
		return ClusterRoles, true
	case *rbacv1.ClusterRoleBinding:
		return ClusterRoleBindings, true
	case *nodev1.RuntimeClass:
		return RuntimeClasses, true
	case *corev1.Service:
		return Services, true
	case *corev1.Endpoints:
		return Endpoints, true
	case *discoveryv1.EndpointSlice:
		return EndpointSlices, true
	case *networkingv1.Ingress:
		return Ingresses, true
	case *networkingv1.IngressClass:
		return IngressClasses, true
	case *networkingv1.NetworkPolicy:
		return NetworkPolicies, true
	case *corev1.PodTemplate:
		return PodTemplates, true
	case *eventsv1.Event:
		return NewEvents, true
	case *corev1.ComponentStatus:
		return ComponentStatuses, true
	case *corev1.Binding:
		return Bindings, true
	}
	return workloadOf(obj)
}

// RefOf names the object; it panics for a type that is not served.
func RefOf(obj Object) Ref {
	gvr, ok := ResourceOf(obj)
	if !ok {
		panic(fmt.Sprintf("client: %T is not served", obj))
	}
	return Ref{Resource: gvr, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Status is the ref's status subresource.
func (r Ref) Status() Ref { return r.Sub("status") }

// Sub is the ref's named subresource.
func (r Ref) Sub(subresource string) Ref {
	r.Subresource = subresource
	return r
}

// Get returns the object at namespace/name with its type.
func Get[T Object](ctx context.Context, c Client, namespace, name string) (T, error) {
	var zero T
	gvr, _ := ResourceOf(zero)
	obj, err := c.Get(ctx, Ref{Resource: gvr, Namespace: namespace, Name: name})
	if err != nil {
		return zero, err
	}
	return obj.(T), nil
}

// List returns the objects of type T that sel selects; sel.Resource is set by T.
func List[T Object](ctx context.Context, c Client, sel Selector) ([]T, error) {
	var zero T
	sel.Resource, _ = ResourceOf(zero)
	objs, _, err := c.List(ctx, sel)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(objs))
	for i, o := range objs {
		out[i] = o.(T)
	}
	return out, nil
}

// Update changes obj's current state, or the part of it that sub names: change
// gets a copy of its own to modify. Returning an error stops the update;
// leaving the copy as it was writes nothing.
func Update[T Object](ctx context.Context, c Client, obj T, sub string, change func(T) error) (T, error) {
	var zero T
	out, err := c.Update(ctx, RefOf(obj).Sub(sub), func(cur Object) (Object, error) {
		next := cur.DeepCopyObject().(T)
		if err := change(next); err != nil {
			return nil, err
		}
		return next, nil
	})
	if err != nil {
		return zero, err
	}
	return out.(T), nil
}
