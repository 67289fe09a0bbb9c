// Package sliceset maintains the EndpointSlices of one object: a Service, or mirrored Endpoints.
//
//   - Owner and Group: the desired contents of the slices.
//   - Plan: the changes towards them, to as few slices as possible.
//   - Index: the existing slices, as seen by the watch or as last written.
//   - Writer: carries out a Plan.
//   - Metrics: upstream's metrics of both controllers.
package sliceset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
)

// Owner is the object that the slices belong to, with the metadata that they share.
type Owner struct {
	Object client.Object
	Kind   schema.GroupVersionKind
	Labels map[string]string // all labels of every slice
	// Annotations contains the annotations of every slice; nil keeps the existing ones.
	Annotations map[string]string
}

// Group contains the endpoints with the same ports and address type.
type Group struct {
	Family    discoveryv1.AddressType
	Ports     []discoveryv1.EndpointPort
	Endpoints []discoveryv1.Endpoint // empty: the group has one empty slice
}

// Labels returns the labels of the slices of a Service: those of the Service or its Endpoints, and the labels that
// identify the Service and the controller.
func Labels(inherited map[string]string, service, managedBy string, headless bool) map[string]string {
	labels := make(map[string]string, len(inherited)+3)
	maps.Copy(labels, inherited)
	delete(labels, corev1.IsHeadlessService)
	if headless {
		labels[corev1.IsHeadlessService] = ""
	}
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = service, managedBy
	return labels
}

// owns reports whether the slice belongs to the object, and not to an earlier object of its name.
func (o Owner) owns(slice *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(slice.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.UID == o.Object.GetUID() && ref.Kind == o.Kind.Kind && ref.APIVersion == o.Kind.GroupVersion().String()
	})
}

// current reports whether the slice has the owner's labels and annotations.
func (o Owner) current(slice *discoveryv1.EndpointSlice) bool {
	return maps.Equal(slice.Labels, o.Labels) &&
		(o.Annotations == nil || maps.Equal(unstamped(slice.Annotations), o.Annotations))
}

// unstamped returns the annotations without the trigger time.
func unstamped(annotations map[string]string) map[string]string {
	if _, ok := annotations[corev1.EndpointsLastChangeTriggerTime]; !ok {
		return annotations
	}
	rest := maps.Clone(annotations)
	delete(rest, corev1.EndpointsLastChangeTriggerTime)
	return rest
}

// slice returns a new slice of a group.
func (o Owner) slice(g Group, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	prefix := o.Object.GetName() + "-"
	if len(validation.NameIsDNSSubdomain(prefix, true)) > 0 {
		prefix = o.Object.GetName()
	}
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Object.GetNamespace(), GenerateName: prefix,
			Labels: maps.Clone(o.Labels), Annotations: maps.Clone(o.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.Object, o.Kind)},
		},
		AddressType: g.Family, Ports: g.Ports, Endpoints: endpoints,
	}
}

// updated returns a slice with other endpoints.
func (o Owner) updated(
	slice *discoveryv1.EndpointSlice, ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint,
) *discoveryv1.EndpointSlice {
	next := *slice
	next.Labels, next.Annotations = maps.Clone(o.Labels), maps.Clone(slice.Annotations)
	if o.Annotations != nil {
		next.Annotations = maps.Clone(o.Annotations)
	}
	next.Ports, next.Endpoints = ports, endpoints
	return &next
}

// key identifies a group.
type key struct {
	family discoveryv1.AddressType
	ports  string
}

func keyOf(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) key {
	return key{family, PortKey(ports)}
}

// PortKey returns a text that is equal for equal sets of ports.
func PortKey(ports []discoveryv1.EndpointPort) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf("%s/%s/%s/%s", ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP),
			number(p.Port), ptr.Deref(p.AppProtocol, ""))
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

func number(p *int32) string {
	if p == nil {
		return "*"
	}
	return fmt.Sprint(*p)
}

// identity contains the properties of an endpoint that do not change with its conditions and topology.
type identity struct{ addresses, hostname, namespace, name string }

func identityOf(e *discoveryv1.Endpoint) identity {
	id := identity{hostname: ptr.Deref(e.Hostname, "")}
	if len(e.Addresses) == 1 {
		id.addresses = e.Addresses[0]
	} else {
		id.addresses = strings.Join(slices.Sorted(slices.Values(e.Addresses)), ",")
	}
	if e.TargetRef != nil {
		id.namespace, id.name = e.TargetRef.Namespace, e.TargetRef.Name
	}
	return id
}

func (id identity) compare(other identity) int {
	return cmp.Or(cmp.Compare(id.namespace, other.namespace), cmp.Compare(id.name, other.name),
		cmp.Compare(id.addresses, other.addresses), cmp.Compare(id.hostname, other.hostname))
}
