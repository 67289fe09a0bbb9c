// Package kubernetesservice publishes the API server as the Service default/kubernetes, which pods use to reach it.
// Every server runs it, and no flag disables it: it is not in controllers.All.
//
// Of several servers on one state each has an EndpointSlice of its own, which it removes when it stops. When the Node of
// a server has not reported for a while, the others mark its endpoint as not ready. The Endpoints, which have no place for
// servers with different ports, are those of the server that has started last.
package kubernetesservice

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
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
	// farewell limits the removal of the EndpointSlice when the server stops.
	farewell = 2 * time.Second
)

// Config of a Controller.
type Config struct {
	Server    func() (netip.AddrPort, error) // returns the current address of the API
	ClusterIP netip.Addr                     // of the Service
	// Node is the name of this server's Node, if it shares its state with other servers; empty: it does not.
	Node string
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
		Reconcile: func(ctx context.Context, key string) (time.Duration, error) {
			if node, ok := strings.CutPrefix(key, nodeKey); ok {
				return 0, c.mark(ctx, node)
			}
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
				Resource: kind, Namespace: metav1.NamespaceDefault,
				Fields: fields.OneTermEqualSelector("metadata.name", c.name(kind)),
			},
			Keys: follow.Plain(onDeletion),
		})
	}
	if c.cfg.Node != "" {
		cfg.Sources = append(cfg.Sources, follow.Source[string]{
			Selector: client.Selector{Resource: client.Nodes}, Keys: follow.Plain(c.onNode),
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
	if c.cfg.Node != "" {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer done()
		err = errors.Join(err, c.forget(last, c.slice(c.cfg.Node)))
	}
	return err
}

// name returns the name of this server's object of a kind.
func (c *Controller) name(kind schema.GroupVersionResource) string {
	if kind == client.EndpointSlices && c.cfg.Node != "" {
		return service + "-" + c.cfg.Node
	}
	return service
}

// slice returns the EndpointSlice of a server among several.
func (c *Controller) slice(node string) client.Ref {
	return client.Ref{Resource: client.EndpointSlices, Namespace: metav1.NamespaceDefault, Name: service + "-" + node}
}

// nodeKey begins the key of the Node of another server.
const nodeKey = "node/"

// onNode wakes the EndpointSlice of another server when its Node stops or begins to report, or is deleted.
func (c *Controller) onNode(old, next client.Object) []string {
	silent := func(obj client.Object) bool { node, ok := obj.(*corev1.Node); return !ok || isSilent(node) }
	name := ""
	switch {
	case next == nil:
		name = old.GetName()
	case old == nil || silent(old) != silent(next):
		name = next.GetName()
	}
	if name == "" || name == c.cfg.Node {
		return nil
	}
	return []string{nodeKey + name}
}

// isSilent reports whether a node has not reported for so long that its conditions are unknown.
func isSilent(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// mark makes the endpoint of another server ready while its Node reports, and removes it with the Node.
func (c *Controller) mark(ctx context.Context, name string) error {
	ref := c.slice(name)
	if _, err := c.deps.Client.Get(ctx, ref); err != nil {
		return ignoreNotFound(err) // the node is not that of a server
	}
	node, err := client.Get[*corev1.Node](ctx, c.deps.Client, "", name)
	if apierrors.IsNotFound(err) {
		return c.forget(ctx, ref)
	}
	if err != nil {
		return err
	}
	_, err = c.deps.Client.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*discoveryv1.EndpointSlice)
		for i := range next.Endpoints {
			next.Endpoints[i].Conditions.Ready = new(!isSilent(node))
		}
		return next, nil
	})
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
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
		ref.Resource, ref.Name = client.EndpointSlices, c.name(client.EndpointSlices)
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
	if c.cfg.Node != "" {
		slice.Name, slice.Endpoints[0].NodeName = c.name(client.EndpointSlices), new(c.cfg.Node)
		ref := client.Ref{Resource: client.EndpointSlices, Namespace: metav1.NamespaceDefault, Name: service}
		if err := c.forget(ctx, ref); err != nil { // of a version that had one for all servers
			return err
		}
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
	return ignoreNotFound(err)
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
