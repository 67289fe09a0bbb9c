// Package quota tells what objects use of a ResourceQuota: Of is an object's
// use, Matches whether a quota's scopes are about it, Must what a quota makes it
// say. Admission charges by them, and the controller of the quotas' status adds
// up by them.
//
// What may be limited is upstream's: count/<resource>.<group> for everything
// stored, some of it by a short name too; cpu, memory, ephemeral-storage, huge
// pages and extended resources of pods; storage of claims, in all and by class;
// node ports and load balancers of services.
package quota

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
)

// Counted says whether quotas know of the resource. They leave events alone.
func Counted(gr schema.GroupResource) bool { return gr.Resource != "events" }

// CountName is how a quota calls the number of objects of a resource.
func CountName(gr schema.GroupResource) corev1.ResourceName {
	return corev1.ResourceName("count/" + gr.String())
}

// short are the resources whose number has a name without "count/".
func short(gr schema.GroupResource) bool {
	return gr.Group == "" && slices.Contains([]string{"configmaps", "persistentvolumeclaims", "replicationcontrollers",
		"resourcequotas", "secrets", "services"}, gr.Resource)
}

// Of is what obj uses, of all that a quota could limit.
func Of(gr schema.GroupResource, obj client.Object, now time.Time) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	used := corev1.ResourceList{CountName(gr): one}
	if short(gr) {
		used[corev1.ResourceName(gr.Resource)] = one
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		if alive(o, now) {
			addPod(used, o)
		}
	case *corev1.Service:
		addService(used, o)
	case *corev1.PersistentVolumeClaim:
		addClaim(used, o)
	}
	return used
}

// Names says whether objects of the resource can use what a quota calls name.
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

func addService(used corev1.ResourceList, s *corev1.Service) {
	count := func(name corev1.ResourceName, n int) {
		used[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		count(corev1.ResourceServicesNodePorts, len(s.Spec.Ports))
	case corev1.ServiceTypeLoadBalancer:
		count(corev1.ResourceServicesLoadBalancers, 1)
		count(corev1.ResourceServicesNodePorts, nodePorts(&s.Spec))
	}
}

// nodePorts are those of a load balancer, which may do without.
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

// classInfix parts a storage class from what is limited for its claims.
const classInfix = ".storageclass.storage.k8s.io/"

func addClaim(used corev1.ResourceList, c *corev1.PersistentVolumeClaim) {
	amount, asked := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if given := c.Status.AllocatedResources[corev1.ResourceStorage]; given.Cmp(amount) > 0 {
		amount = given
	}
	if asked {
		used[corev1.ResourceRequestsStorage] = amount
	}
	class := claimClass(c)
	if class == "" {
		return
	}
	used[corev1.ResourceName(class+classInfix)+corev1.ResourcePersistentVolumeClaims] = *resource.NewQuantity(1, resource.DecimalSI)
	if asked {
		used[corev1.ResourceName(class+classInfix)+corev1.ResourceRequestsStorage] = amount
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
		total := sum[name]
		total.Add(amount)
		sum[name] = total
	}
}

// Over are those of a that are more than b has, and by how much.
func Over(a, b corev1.ResourceList) corev1.ResourceList {
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

// Only is what of has under the names that mask has.
func Only(of, mask corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name := range mask {
		if amount, ok := of[name]; ok {
			out[name] = amount
		}
	}
	return out
}
