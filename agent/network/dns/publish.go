package dns

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Key is the key of the Service by which pods reach the server. Upstream's DNS servers use the same name.
var Key = follow.Key{Namespace: metav1.NamespaceSystem, Name: "kube-dns"}

// manager is the label of the EndpointSlice that Publish writes.
const manager = "dns.monopod"

// Publish creates the Service at the addresses, one of each IP family, and an EndpointSlice for each family that leads
// to the server on this node. A Service with a selector belongs to another DNS server and is not changed. Nothing is
// written if all are up to date.
func Publish(ctx context.Context, c client.Client, addresses []netip.Addr, servers []netip.AddrPort,
	node string) error {
	svc, err := client.Get[*corev1.Service](ctx, c, Key.Namespace, Key.Name)
	if apierrors.IsNotFound(err) {
		svc = service(addresses, servers[0].Port())
		_, err = c.Create(ctx, svc)
	}
	if err != nil || len(svc.Spec.Selector) > 0 {
		return err
	}
	// Add the address of the second family to a Service that was created with one, unless its address is of another
	// range, to which resolv.conf does not lead.
	if len(svc.Spec.ClusterIPs) == 1 && len(addresses) > 1 && svc.Spec.ClusterIPs[0] == addresses[0].String() {
		_, err := client.Update(ctx, c, svc, "", func(cur *corev1.Service) error {
			next := service(addresses, 0).Spec
			cur.Spec.ClusterIPs, cur.Spec.IPFamilyPolicy, cur.Spec.IPFamilies = next.ClusterIPs, next.IPFamilyPolicy, nil
			return nil
		})
		if err != nil {
			return err
		}
	}
	var errs []error
	for i, server := range servers {
		errs = append(errs, publishSlice(ctx, c, slice(server, i, node)))
	}
	return errors.Join(errs...)
}

// Local returns the Service as it is on this node, with EndpointSlices that lead to the server of this node: every node
// has one, and the published slices lead to that of one node. It returns a Service with a selector, which belongs to
// another DNS server, as it is.
func Local(svc *corev1.Service, addresses []netip.Addr, servers []netip.AddrPort, node string,
	eps []*discoveryv1.EndpointSlice) (*corev1.Service, []*discoveryv1.EndpointSlice) {
	if svc != nil && len(svc.Spec.Selector) > 0 || len(addresses) == 0 || len(servers) == 0 {
		return svc, eps
	}
	if svc == nil {
		svc = service(addresses, servers[0].Port())
	}
	var local []*discoveryv1.EndpointSlice
	for i, server := range servers {
		local = append(local, slice(server, i, node))
	}
	return svc, local
}

// service returns the Service to create.
func service(addresses []netip.Addr, port uint16) *corev1.Service {
	target := intstr.FromInt32(int32(port))
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: Key.Name, Labels: map[string]string{
			"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: addresses[0].String(),
			Ports: []corev1.ServicePort{
				{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: target},
				{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: target},
			},
		},
	}
	if len(addresses) > 1 {
		svc.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	}
	for _, ip := range addresses {
		svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, ip.String())
	}
	return svc
}

// slice returns the EndpointSlice of a server; that of the first one has the Service's name.
func slice(server netip.AddrPort, i int, node string) *discoveryv1.EndpointSlice {
	name, family := Key.Name, discoveryv1.AddressTypeIPv4
	if server.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	if i > 0 {
		name += "-" + strings.ToLower(string(family))
	}
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: Key.Name, discoveryv1.LabelManagedBy: manager,
		}},
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{server.Addr().String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		}},
	}
	for _, p := range service([]netip.Addr{server.Addr()}, 0).Spec.Ports {
		out.Ports = append(out.Ports,
			discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(int32(server.Port()))})
	}
	return out
}

func publishSlice(ctx context.Context, c client.Client, slice *discoveryv1.EndpointSlice) error {
	ref := client.RefOf(slice)
	old, err := client.Get[*discoveryv1.EndpointSlice](ctx, c, slice.Namespace, slice.Name)
	if err == nil && old.AddressType != slice.AddressType { // which is immutable
		_, err = c.Delete(ctx, ref, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			_, err = c.Create(ctx, slice)
		}
		return err
	}
	if apierrors.IsNotFound(err) {
		_, err = c.Create(ctx, slice)
		return err
	}
	if err != nil {
		return err
	}
	_, err = c.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*discoveryv1.EndpointSlice)
		next.Endpoints, next.Ports = slice.Endpoints, slice.Ports
		return next, nil
	})
	return err
}
