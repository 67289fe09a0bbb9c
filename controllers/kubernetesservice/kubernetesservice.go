// Package kubernetesservice publishes the API server as the Service default/kubernetes, which pods use to reach it.
// Every server runs it, and no flag disables it: it is not in controllers.All.
package kubernetesservice

import (
	"context"
	"net/netip"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
)

const (
	// Name of the controller.
	Name = "kubernetesservice"
	// service is the name of the Service, its Endpoints and its EndpointSlice.
	service = "kubernetes"
	// port is the Service's port.
	port = 443
	// retry is the delay after a failure (upstream: the interval of the kubernetesservice controller).
	retry = 10 * time.Second
	// settleDelay is the delay between a change of the machine's addresses and updating the endpoints: a change of an
	// interface, or the start of a pod, causes many events.
	settleDelay = time.Second
)

// Config of a Controller.
type Config struct {
	Server    func() (netip.AddrPort, error) // returns the current address of the API
	ClusterIP netip.Addr                     // of the Service
	// Moved send when the result of Server may have changed, until ctx ends.
	Moved []func(ctx context.Context) <-chan struct{}
}

// Controller maintains the Service.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, cfg Config) *Controller { return &Controller{deps: deps, cfg: cfg} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller: it publishes at the start, when the server's address changes, when a client
// deletes the Service or its endpoints, and again after a failure.
func (c *Controller) Run(ctx context.Context) error {
	cfg := follow.Config[string]{
		Name:  Name,
		Start: []string{service},
		Reconcile: func(ctx context.Context, _ string) (time.Duration, error) {
			if err := c.publish(ctx); err != nil && ctx.Err() == nil {
				c.deps.Log.Error("failed to publish the Service kubernetes, trying again", zap.Duration("in", retry),
					zap.Error(err))
				return retry, nil
			}
			return 0, nil
		},
	}
	for _, kind := range []schema.GroupVersionResource{client.Services, client.Endpoints, client.EndpointSlices} {
		cfg.Sources = append(cfg.Sources, follow.Source[string]{
			Selector: client.Selector{
				Resource: kind, Namespace: metav1.NamespaceDefault, Fields: fields.OneTermEqualSelector("metadata.name", service),
			},
			Keys: follow.Plain(onDeletion),
		})
	}
	loop := follow.New(c.deps, cfg)
	ctx, cancel := context.WithCancel(ctx)
	var err error
	parts := []func(context.Context){func(ctx context.Context) {
		defer cancel()
		err = loop.Run(ctx)
	}}
	for _, moved := range c.cfg.Moved {
		parts = append(parts, func(ctx context.Context) {
			for range moved(ctx) {
				loop.AddAfter(settleDelay, service)
			}
		})
	}
	guard.Together(ctx, parts...)
	return err
}

// onDeletion wakes the Service when an object is deleted. It ignores other changes, which another server on the same
// etcd may have made to publish its own address.
func onDeletion(_, new client.Object) []string {
	if new != nil {
		return nil
	}
	return []string{service}
}

// publish creates or updates the Service, and its Endpoints unless the server listens only on loopback, where pods
// cannot reach it. It writes only changes.
func (c *Controller) publish(ctx context.Context) error {
	server, err := c.cfg.Server()
	if err != nil {
		return err
	}
	ports := []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: port,
		TargetPort: intstr.FromInt32(int32(server.Port()))}}
	wanted := &corev1.Service{
		ObjectMeta: serverMeta(map[string]string{"component": "apiserver", "provider": "kubernetes"}),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: c.cfg.ClusterIP.String(), Ports: ports,
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
	err = createOrUpdate(ctx, c.deps.Client, wanted, func(s *corev1.Service) { s.Spec.Ports = ports })
	if err != nil {
		return err
	}
	if server.Addr().IsLoopback() || server.Addr().IsUnspecified() { // remove the endpoints of a previous address
		ref := client.Ref{Namespace: metav1.NamespaceDefault, Name: service, Resource: client.Endpoints}
		if err := c.forget(ctx, ref); err != nil {
			return err
		}
		ref.Resource = client.EndpointSlices
		return c.forget(ctx, ref)
	}
	subsets := []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: server.Addr().String()}},
		Ports:     []corev1.EndpointPort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: int32(server.Port())}},
	}}
	endpoints := &corev1.Endpoints{
		ObjectMeta: serverMeta(map[string]string{discoveryv1.LabelSkipMirror: "true"}), Subsets: subsets,
	}
	err = createOrUpdate(ctx, c.deps.Client, endpoints, func(e *corev1.Endpoints) { e.Subsets = subsets })
	if err != nil {
		return err
	}
	return c.publishSlice(ctx, server)
}

func (c *Controller) publishSlice(ctx context.Context, server netip.AddrPort) error {
	family := discoveryv1.AddressTypeIPv4
	if server.Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  serverMeta(map[string]string{discoveryv1.LabelServiceName: service}),
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{server.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: new("https"), Protocol: new(corev1.ProtocolTCP),
			Port: new(int32(server.Port()))}},
	}
	old, err := client.Get[*discoveryv1.EndpointSlice](ctx, c.deps.Client, slice.Namespace, slice.Name)
	if err == nil && old.AddressType != family { // which is immutable
		err = c.forget(ctx, client.RefOf(slice))
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	endpoints, ports := slice.Endpoints, slice.Ports
	return createOrUpdate(ctx, c.deps.Client, slice,
		func(s *discoveryv1.EndpointSlice) { s.Endpoints, s.Ports = endpoints, ports })
}

func (c *Controller) forget(ctx context.Context, ref client.Ref) error {
	_, err := c.deps.Client.Delete(ctx, ref, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func serverMeta(labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: service, Labels: labels}
}

// createOrUpdate creates obj, or updates the existing object.
func createOrUpdate[T client.Object](ctx context.Context, c client.Client, obj T, right func(T)) error {
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
