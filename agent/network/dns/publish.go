package dns

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
)

// Key is the Service by which pods reach the server. Upstream's DNS servers have the same one.
var Key = follow.Key{Namespace: metav1.NamespaceSystem, Name: "kube-dns"}

// manager is the label of the EndpointSlice that Publish writes.
const manager = "dns.monopod"

// Publish creates the Service at the address, and its EndpointSlice that leads to the server on this node. A Service
// with a selector belongs to another DNS server and is not changed. Nothing is written if both are up to date.
func Publish(ctx context.Context, c client.Client, address netip.Addr, server netip.AddrPort, node string) error {
	target := intstr.FromInt32(int32(server.Port()))
	ports := []corev1.ServicePort{
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: target}, {Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: target},
	}
	svc, err := client.Get[*corev1.Service](ctx, c, Key.Namespace, Key.Name)
	if apierrors.IsNotFound(err) {
		svc = &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: Key.Name, Labels: map[string]string{
				"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
			}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: address.String(), Ports: ports},
		}
		_, err = c.Create(ctx, svc)
	}
	if err != nil || len(svc.Spec.Selector) > 0 {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: Key.Name, Labels: map[string]string{
			discoveryv1.LabelServiceName: Key.Name, discoveryv1.LabelManagedBy: manager,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{server.Addr().String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		}},
	}
	for _, p := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(int32(server.Port()))})
	}
	if server.Addr().Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	ref := client.RefOf(slice)
	_, err = c.Get(ctx, ref)
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
