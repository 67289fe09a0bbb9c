// Package quota computes what objects use of a ResourceQuota: Of returns the usage of one object, Sum that of
// many, Matches whether a quota's scopes match an object, Must what a quota requires objects to specify.
// Admission and the controller of the quotas' status use it.
//
// Upstream's resources can be limited: count/<resource>.<group> for all stored kinds, some also by a short name;
// cpu, memory, ephemeral-storage, huge pages and extended resources of pods; storage of claims, in total and by
// class; node ports and load balancers of services.
package quota

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
)

// Applies reports whether quotas apply to the resource. They do not apply to events.
func Applies(gr schema.GroupResource) bool { return gr.Resource != "events" }

// CountName returns the quota's name for the number of objects of a resource.
func CountName(gr schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName("count/" + gr.String())
}

// short lists the resources whose number has a name without "count/".
func short(gr schema.GroupResource) bool {
	return gr.Group == "" && slices.Contains([]string{"configmaps", "persistentvolumeclaims", "replicationcontrollers",
		"resourcequotas", "secrets", "services"}, gr.Resource)
}

// Of returns obj's usage of the resources in wanted; nil means all.
func Of(gr schema.GroupResource, obj client.Object, wanted corev1.ResourceList, now time.Time) corev1.ResourceList {
	u := useOf(gr, wanted)
	u.object(obj, now)
	return u.used
}

// Sum returns the total usage of those objs that match the quota's scopes.
func Sum(spec *corev1.ResourceQuotaSpec, gr schema.GroupResource, objs []client.Object, wanted corev1.ResourceList,
	now time.Time) corev1.ResourceList {
	u := useOf(gr, wanted)
	for _, obj := range objs {
		if Matches(spec, obj) {
			u.object(obj, now)
		}
	}
	return u.used
}

// use sums the usage of objects of one resource.
type use struct {
	wanted, used corev1.ResourceList
	names        []corev1.ResourceName // names of the number of objects
}

func useOf(gr schema.GroupResource, wanted corev1.ResourceList) use {
	u := use{wanted: wanted, used: make(corev1.ResourceList, len(wanted)), names: []corev1.ResourceName{CountName(gr)}}
	if short(gr) {
		u.names = append(u.names, corev1.ResourceName(gr.Resource))
	}
	return u
}

func (u use) object(obj client.Object, now time.Time) {
	for _, name := range u.names {
		u.count(name, 1)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		if alive(o, now) {
			u.pod(o)
		}
	case *corev1.Service:
		u.service(o)
	case *corev1.PersistentVolumeClaim:
		u.claim(o)
	}
}

func (u use) wants(name corev1.ResourceName) bool {
	if u.wanted == nil {
		return true
	}
	_, ok := u.wanted[name]
	return ok
}

func (u use) amount(name corev1.ResourceName, amount resource.Quantity) {
	if !u.wants(name) {
		return
	}
	if had, ok := u.used[name]; ok {
		amount = amount.DeepCopy()
		amount.Add(had)
	}
	u.used[name] = amount
}

func (u use) count(name corev1.ResourceName, n int) {
	u.amount(name, *resource.NewQuantity(int64(n), resource.DecimalSI))
}

// Names reports whether objects of the resource can use the quota's resource name.
func Names(gr schema.GroupResource, name corev1.ResourceName) bool {
	if name == CountName(gr) || short(gr) && string(name) == gr.Resource {
		return true
	}
	if gr.Group != "" || strings.HasPrefix(string(name), "count/") {
		return false
	}
	switch gr.Resource {
	case "services":
		return name == corev1.ResourceServicesNodePorts || name == corev1.ResourceServicesLoadBalancers
	case "persistentvolumeclaims":
		return name == corev1.ResourceRequestsStorage || strings.Contains(string(name), classInfix)
	case "pods":
		return name == corev1.ResourcePods || podName(name)
	}
	return false
}

func (u use) service(s *corev1.Service) {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		u.count(corev1.ResourceServicesNodePorts, len(s.Spec.Ports))
	case corev1.ServiceTypeLoadBalancer:
		u.count(corev1.ResourceServicesLoadBalancers, 1)
		u.count(corev1.ResourceServicesNodePorts, nodePorts(&s.Spec))
	}
}

// nodePorts returns the number of node ports of a load balancer, which may have none.
func nodePorts(spec *corev1.ServiceSpec) int {
	if spec.AllocateLoadBalancerNodePorts == nil || *spec.AllocateLoadBalancerNodePorts {
		return len(spec.Ports)
	}
	n := 0
	for _, p := range spec.Ports {
		if p.NodePort != 0 {
			n++
		}
	}
	return n
}

// classInfix separates a storage class from the resource that is limited for its claims.
const classInfix = ".storageclass.storage.k8s.io/"

func (u use) claim(c *corev1.PersistentVolumeClaim) {
	amount, asked := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if given := c.Status.AllocatedResources[corev1.ResourceStorage]; given.Cmp(amount) > 0 {
		amount = given
	}
	if asked {
		u.amount(corev1.ResourceRequestsStorage, amount)
	}
	class := claimClass(c)
	if class == "" {
		return
	}
	u.count(corev1.ResourceName(class+classInfix)+corev1.ResourcePersistentVolumeClaims, 1)
	if asked {
		u.amount(corev1.ResourceName(class+classInfix)+corev1.ResourceRequestsStorage, amount)
	}
}

func claimClass(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

// Add adds from to sum.
func Add(sum, from corev1.ResourceList) {
	for name, amount := range from {
		total := sum[name].DeepCopy() // it may share memory with a stored object
		total.Add(amount)
		sum[name] = total
	}
}

// Exceeded returns by how much a exceeds b, for each resource where it does.
func Exceeded(a, b corev1.ResourceList) corev1.ResourceList {
	over := corev1.ResourceList{}
	for name, amount := range a {
		amount = amount.DeepCopy()
		amount.Sub(b[name])
		if amount.Sign() > 0 {
			over[name] = amount
		}
	}
	return over
}
