// Package kubernetesservice publishes the Service kubernetes, by which pods find the
// API, and its endpoints.
package kubernetesservice

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
	"k8s.io/utils/clock"

	"monopod/apiserver/client"
)

// name is that of the Service, and of what belongs to it.
const name = "kubernetes"

// serverPort is where pods reach the API through its Service.
const serverPort = 443

// publishRetry is the time after which a failed attempt is repeated, and a closed
// watch opened again (upstream: the interval of the kubernetesservice controller).
const publishRetry = 10 * time.Second

// Config of a Controller. All but Clock and Log are required.
type Config struct {
	Client  client.Client
	Server  netip.AddrPort // where the API is
	Address netip.Addr     // the Service's
	Clock   clock.Clock    // nil: the real one
	Log     *zap.Logger    // nil: silent
}

// Controller keeps the Service published.
type Controller struct{ cfg Config }

// New returns a Controller.
func New(cfg Config) *Controller {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Controller{cfg}
}

// Run publishes until ctx ends: again when somebody deletes the Service, and when a
// write failed.
func (c *Controller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := c.publishUntilGone(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error("the Service kubernetes is not as it should be", zap.Error(err))
		} else if err == nil {
			continue
		}
		select {
		case <-c.cfg.Clock.After(publishRetry):
		case <-ctx.Done():
		}
	}
	return nil
}

var errWatchEnded = errors.New("the watch of the Service kubernetes ended")

// publishUntilGone publishes and returns nil when the Service was deleted.
func (c *Controller) publishUntilGone(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sel := client.Selector{Resource: client.Services, Namespace: metav1.NamespaceDefault, Fields: fields.OneTermEqualSelector("metadata.name", name)}
	_, version, err := c.cfg.Client.List(ctx, sel)
	if err != nil {
		return err
	}
	events, err := c.cfg.Client.Watch(ctx, sel, version)
	if err != nil {
		return err
	}
	if err := c.Publish(ctx); err != nil {
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
// find the API. Endpoints are published too unless the server is on
// loopback, where pods do not reach it. What is right already is not written.
func (c *Controller) Publish(ctx context.Context) error {
	server := c.cfg.Server
	if err := c.publishService(ctx, int32(server.Port())); err != nil {
		return err
	}
	if server.Addr().IsLoopback() || server.Addr().IsUnspecified() {
		return c.unpublish(ctx)
	}
	if err := c.publishEndpoints(ctx, server); err != nil {
		return err
	}
	return c.publishSlice(ctx, server)
}

func (c *Controller) publishService(ctx context.Context, port int32) error {
	ports := []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: serverPort, TargetPort: intstr.FromInt32(port)}}
	service := &corev1.Service{
		ObjectMeta: serverMeta(map[string]string{"component": "apiserver", "provider": "kubernetes"}),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: c.cfg.Address.String(), Ports: ports,
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
	return keep(ctx, c.cfg.Client, service, func(s *corev1.Service) { s.Spec.Ports = ports })
}

func (c *Controller) publishEndpoints(ctx context.Context, server netip.AddrPort) error {
	subsets := []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: server.Addr().String()}},
		Ports:     []corev1.EndpointPort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: int32(server.Port())}},
	}}
	endpoints := &corev1.Endpoints{
		ObjectMeta: serverMeta(map[string]string{discoveryv1.LabelSkipMirror: "true"}), Subsets: subsets,
	}
	return keep(ctx, c.cfg.Client, endpoints, func(e *corev1.Endpoints) { e.Subsets = subsets })
}

func (c *Controller) publishSlice(ctx context.Context, server netip.AddrPort) error {
	family := discoveryv1.AddressTypeIPv4
	if server.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  serverMeta(map[string]string{discoveryv1.LabelServiceName: name}),
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{server.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: new("https"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(server.Port()))}},
	}
	old, err := client.Get[*discoveryv1.EndpointSlice](ctx, c.cfg.Client, slice.Namespace, slice.Name)
	if err == nil && old.AddressType != family { // which may not change
		err = c.forget(ctx, client.RefOf(slice))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	endpoints, ports := slice.Endpoints, slice.Ports
	return keep(ctx, c.cfg.Client, slice, func(s *discoveryv1.EndpointSlice) { s.Endpoints, s.Ports = endpoints, ports })
}

// unpublish removes the endpoints of an address that the server had before.
func (c *Controller) unpublish(ctx context.Context) error {
	ref := client.Ref{Namespace: metav1.NamespaceDefault, Name: name, Resource: client.Endpoints}
	if err := c.forget(ctx, ref); err != nil {
		return err
	}
	ref.Resource = client.EndpointSlices
	return c.forget(ctx, ref)
}

func (c *Controller) forget(ctx context.Context, ref client.Ref) error {
	_, err := c.cfg.Client.Delete(ctx, ref, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func serverMeta(labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: labels}
}

// keep creates obj, or makes what is there right.
func keep[T client.Object](ctx context.Context, c client.Client, obj T, right func(T)) error {
	ref := client.RefOf(obj)
	_, err := c.Get(ctx, ref)
	if apierrors.IsNotFound(err) {
		_, err = c.Create(ctx, obj)
		return err
	}
	if err != nil {
		return err
	}
	_, err = c.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(T)
		right(next)
		return next, nil
	})
	return err
}
