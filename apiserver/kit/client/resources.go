package client

import (
	"context"
	"fmt"

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

	Services        = core("services")
	Endpoints       = core("endpoints")
	EndpointSlices  = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	Ingresses       = networking("ingresses")
	IngressClasses  = networking("ingressclasses")
	ServiceCIDRs    = networking("servicecidrs")
	IPAddresses     = networking("ipaddresses")
	NetworkPolicies = networking("networkpolicies")
	PodTemplates    = core("podtemplates")
	// a view of Events
	NewEvents         = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	ComponentStatuses = core("componentstatuses")
	Bindings          = core("bindings")

	CertificateSigningRequests = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1",
		Resource: "certificatesigningrequests"}
	ClusterTrustBundles = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1",
		Resource: "clustertrustbundles"}
	PodCertificateRequests = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1",
		Resource: "podcertificaterequests"}

	APIServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

	ValidatingWebhookConfigurations = admission("validatingwebhookconfigurations")
	MutatingWebhookConfigurations   = admission("mutatingwebhookconfigurations")

	ValidatingAdmissionPolicies       = admission("validatingadmissionpolicies")
	ValidatingAdmissionPolicyBindings = admission("validatingadmissionpolicybindings")
	MutatingAdmissionPolicies         = admission("mutatingadmissionpolicies")
	MutatingAdmissionPolicyBindings   = admission("mutatingadmissionpolicybindings")

	CustomResourceDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}

	DeviceClasses          = dra("deviceclasses")
	DeviceTaintRules       = dra("devicetaintrules")
	ResourceClaims         = dra("resourceclaims")
	ResourceClaimTemplates = dra("resourceclaimtemplates")
	ResourceSlices         = dra("resourceslices")

	StorageVersionMigrations = schema.GroupVersionResource{Group: "storagemigration.k8s.io", Version: "v1",
		Resource: "storageversionmigrations"}

	FlowSchemas                 = flowcontrol("flowschemas")
	PriorityLevelConfigurations = flowcontrol("prioritylevelconfigurations")

	RuntimeClasses = schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}
)

// RefOf returns the Ref of obj; it panics if ResourceOf does not know obj's type.
func RefOf(obj Object) Ref {
	gvr, ok := ResourceOf(obj)
	if !ok {
		panic(fmt.Sprintf("client: %T is not a type of the API", obj))
	}
	return Ref{Resource: gvr, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Status returns the Ref of the status subresource.
func (r Ref) Status() Ref { return r.Sub("status") }

// Sub returns the Ref of the subresource.
func (r Ref) Sub(subresource string) Ref {
	r.Subresource = subresource
	return r
}

// Get returns the object at namespace/name as a T.
func Get[T Object](ctx context.Context, c Client, namespace, name string) (T, error) {
	var zero T
	gvr, _ := ResourceOf(zero)
	obj, err := c.Get(ctx, Ref{Resource: gvr, Namespace: namespace, Name: name})
	if err != nil {
		return zero, err
	}
	return obj.(T), nil
}

// List returns the objects of type T that sel selects; T sets sel.Resource.
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

// Update changes obj's current state, or the subresource sub of it. change gets a copy that it modifies. An
// error stops the update; an unchanged copy writes nothing.
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

func admission(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: name}
}

func flowcontrol(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: name}
}

func dra(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: name}
}
