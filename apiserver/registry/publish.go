package registry

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/allocate"
)

// serverPort is where pods reach the API through its Service.
const serverPort = 443

// publishRetry is the time after which a failed attempt is repeated, and a closed
// watch opened again (upstream: the interval of the kubernetesservice controller).
const publishRetry = 10 * time.Second

// KeepPublished publishes server until ctx ends: again when somebody deletes the
// Service, and when a write failed.
func (r *Registry) KeepPublished(ctx context.Context, server netip.AddrPort) {
	for ctx.Err() == nil {
		if err := r.publishUntilGone(ctx, server); err != nil && ctx.Err() == nil {
			r.log.Error("the Service kubernetes is not as it should be", zap.Error(err))
		} else if err == nil {
			continue
		}
		select {
		case <-r.clock.After(publishRetry):
		case <-ctx.Done():
		}
	}
}

var errWatchEnded = errors.New("the watch of the Service kubernetes ended")

// publishUntilGone publishes and returns nil when the Service was deleted.
func (r *Registry) publishUntilGone(ctx context.Context, server netip.AddrPort) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := r.Watch(ctx, client.Selector{
		Resource: client.Services, Namespace: metav1.NamespaceDefault,
		Fields: fields.OneTermEqualSelector("metadata.name", allocate.TheService),
	}, formatRevision(r.Revision()))
	if err != nil {
		return err
	}
	if err := r.Publish(ctx, server); err != nil {
		return err
	}
	for ev := range events {
		if ev.Type == watch.Deleted {
			return nil
		}
	}
	return errWatchEnded
}

// Publish keeps the Service kubernetes in the namespace default, by which pods
// find the API at server. Endpoints are published too unless server is on
// loopback, where pods do not reach it. What is right already is not written.
func (r *Registry) Publish(ctx context.Context, server netip.AddrPort) error {
	if err := r.publishService(ctx, int32(server.Port())); err != nil {
		return err
	}
	if server.Addr().IsLoopback() || server.Addr().IsUnspecified() {
		return r.unpublish(ctx)
	}
	if err := r.publishEndpoints(ctx, server); err != nil {
		return err
	}
	return r.publishSlice(ctx, server)
}

func (r *Registry) publishService(ctx context.Context, port int32) error {
	ports := []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: serverPort, TargetPort: intstr.FromInt32(port)}}
	service := &corev1.Service{
		ObjectMeta: serverMeta(map[string]string{"component": "apiserver", "provider": "kubernetes"}),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: r.services.First().String(), Ports: ports,
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
	return keep(ctx, r, service, func(s *corev1.Service) { s.Spec.Ports = ports })
}

func (r *Registry) publishEndpoints(ctx context.Context, server netip.AddrPort) error {
	subsets := []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: server.Addr().String()}},
		Ports:     []corev1.EndpointPort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: int32(server.Port())}},
	}}
	endpoints := &corev1.Endpoints{
		ObjectMeta: serverMeta(map[string]string{discoveryv1.LabelSkipMirror: "true"}), Subsets: subsets,
	}
	return keep(ctx, r, endpoints, func(e *corev1.Endpoints) { e.Subsets = subsets })
}

func (r *Registry) publishSlice(ctx context.Context, server netip.AddrPort) error {
	family := discoveryv1.AddressTypeIPv4
	if server.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  serverMeta(map[string]string{discoveryv1.LabelServiceName: allocate.TheService}),
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{server.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: new("https"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(server.Port()))}},
	}
	old, err := client.Get[*discoveryv1.EndpointSlice](ctx, r, slice.Namespace, slice.Name)
	if err == nil && old.AddressType != family { // which may not change
		err = r.forget(ctx, client.RefOf(slice))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	endpoints, ports := slice.Endpoints, slice.Ports
	return keep(ctx, r, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints, s.Ports = endpoints, ports })
}

// unpublish removes the endpoints of an address that the server had before.
func (r *Registry) unpublish(ctx context.Context) error {
	ref := client.Ref{Namespace: metav1.NamespaceDefault, Name: allocate.TheService, Resource: client.Endpoints}
	if err := r.forget(ctx, ref); err != nil {
		return err
	}
	ref.Resource = client.EndpointSlices
	return r.forget(ctx, ref)
}

func (r *Registry) forget(ctx context.Context, ref client.Ref) error {
	_, err := r.Delete(ctx, ref, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func serverMeta(labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: allocate.TheService, Labels: labels}
}

// keep creates obj, or makes what is there right.
func keep[T Object](ctx context.Context, r *Registry, obj T, right func(T)) error {
	ref := client.RefOf(obj)
	_, err := r.Get(ctx, ref)
	if apierrors.IsNotFound(err) {
		_, err = r.Create(ctx, obj)
		return err
	}
	if err != nil {
		return err
	}
	_, err = r.Update(ctx, ref, func(cur Object) (Object, error) {
		next := cur.DeepCopyObject().(T)
		right(next)
		return next, nil
	})
	return err
}
