// Package serviceloadbalancer assigns addresses to Services of type LoadBalancer: those of the nodes, or one of a pool.
// Each node translates them itself: nothing outside of the cluster has to be set up or cleaned up, so no finalizer is
// needed.
//
// The controller ignores Services with a loadBalancerClass, which belong to another controller.
package serviceloadbalancer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
)

// The name and the source of Events are upstream's.
const (
	Name      = "service-lb-controller"
	Component = "service-controller"
)

// finalizer is upstream's, for controllers that clean up load balancers. This controller removes it, because a Service
// may have got it in another cluster.
const finalizer = "service.kubernetes.io/load-balancer-cleanup"

// ParsePool parses a comma-separated list of ranges.
func ParsePool(text string) ([]netip.Prefix, error) {
	var pool []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		p, err := netip.ParsePrefix(part)
		switch {
		case err != nil:
			return nil, err
		case p != p.Masked():
			return nil, fmt.Errorf("%s is not a range; did you mean %s?", p, p.Masked())
		case p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsUnspecified():
			return nil, fmt.Errorf("other machines cannot reach the addresses of %s", p)
		case slices.ContainsFunc(pool, p.Overlaps):
			return nil, fmt.Errorf("%s overlaps another range", p)
		}
		pool = append(pool, p)
	}
	return pool, nil
}

// Controller assigns the addresses.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	pool   []netip.Prefix
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller; without a pool it assigns the addresses of the nodes.
func New(deps follow.Deps, events record.Eventer, pool []netip.Prefix) *Controller {
	return &Controller{deps: deps, events: events, pool: pool}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, services: map[follow.Key]*corev1.Service{}, nodes: map[string]node{},
		waiting: map[follow.Key]string{}}
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: 1, // so that two Services never choose the same address
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Services}, Keys: follow.Plain(r.onService)},
			{Selector: client.Selector{Resource: client.Nodes}, Keys: follow.Plain(r.onNode)},
		},
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	mu       sync.Mutex                     // guards the fields below
	services map[follow.Key]*corev1.Service // Services that request, or have, addresses of this controller
	nodes    map[string]node
	waiting  map[follow.Key]string // reasons why Services have no address
}

// concerns reports whether the controller handles a Service.
func concerns(s *corev1.Service) bool { return wants(s) || stale(s) }

// wants reports whether a Service gets addresses from this controller.
func wants(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
}

// stale reports whether a Service that is no longer of type LoadBalancer still has the status or the finalizer of one.
func stale(s *corev1.Service) bool {
	is := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if is && (s.Spec.LoadBalancerClass != nil || s.DeletionTimestamp == nil) {
		return false
	}
	return !is && len(s.Status.LoadBalancer.Ingress) > 0 || slices.Contains(s.Finalizers, finalizer)
}

// onService wakes the Service. If the Service may have released an address, it also wakes all that wait for one.
func (r *run) onService(old, next client.Object) []follow.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	obj := next
	if next == nil {
		obj = old
	}
	key := follow.KeyOf(obj)
	had := r.services[key]
	var now *corev1.Service
	if next != nil && concerns(next.(*corev1.Service)) {
		now = next.(*corev1.Service)
	}
	if had == nil && now == nil {
		return nil
	}
	keys := []follow.Key{key}
	if had != nil &&
		(now == nil || !wants(now) || !slices.Equal(addresses(had), addresses(now)) ||
			!slices.EqualFunc(had.Spec.Ports, now.Spec.Ports, samePort)) {
		keys = slices.AppendSeq(keys, maps.Keys(r.waiting))
	}
	if now != nil {
		r.services[key] = now
	} else {
		delete(r.services, key)
		delete(r.waiting, key)
	}
	return keys
}

// onNode wakes all Services if the addresses of nodes have changed.
func (r *run) onNode(old, next client.Object) []follow.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next == nil {
		delete(r.nodes, old.GetName())
	} else {
		now := nodeOf(next.(*corev1.Node))
		if had, known := r.nodes[next.GetName()]; known && had.ready == now.ready &&
			slices.Equal(had.addresses, now.addresses) {
			return nil
		}
		r.nodes[next.GetName()] = now
	}
	return slices.Collect(maps.Keys(r.services))
}

// reconcile assigns addresses to one Service, or removes them.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	s, err := client.Get[*corev1.Service](ctx, r.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) || err == nil && !concerns(s) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !wants(s) {
		return 0, r.remove(ctx, s)
	}
	ingress, problem := choose(s, r.others(key), r.nodeAddresses(), r.pool)
	if r.recordProblem(key, problem) {
		r.events.Eventf(s, corev1.EventTypeWarning, "SyncLoadBalancerFailed",
			"Error syncing load balancer: failed to ensure load balancer: %s", problem)
	}
	had := addresses(s)
	if slices.Equal(had, ingress) {
		return 0, nil
	}
	if len(had) == 0 {
		r.events.Eventf(s, corev1.EventTypeNormal, "EnsuringLoadBalancer", "Ensuring load balancer")
	}
	if err := r.write(ctx, s, ingress); err != nil {
		return 0, err
	}
	switch {
	case len(had) == 0:
		r.events.Eventf(s, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	case len(ingress) > 0:
		r.events.Eventf(s, corev1.EventTypeNormal, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
	}
	return 0, nil
}

// recordProblem records the reason why a Service has no address, and reports whether the reason is new.
func (r *run) recordProblem(key follow.Key, problem string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if problem == "" {
		delete(r.waiting, key)
		return false
	}
	was := r.waiting[key]
	r.waiting[key] = problem
	return was != problem
}

// others returns the other Services with addresses, oldest first.
func (r *run) others(key follow.Key) []*corev1.Service {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*corev1.Service
	for other, s := range r.services {
		if other != key && wants(s) && len(s.Status.LoadBalancer.Ingress) > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, older)
	return all
}

// nodeAddresses returns the addresses of the ready nodes. If none is ready, for example during a restart of the only
// one, it returns those of all nodes, whose kernels still have the rules.
func (r *run) nodeAddresses() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all, ready []netip.Addr
	for _, name := range slices.Sorted(maps.Keys(r.nodes)) {
		n := r.nodes[name]
		all = append(all, n.addresses...)
		if n.ready {
			ready = append(ready, n.addresses...)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return all
}

// remove removes the status and the finalizer of a load balancer.
func (r *run) remove(ctx context.Context, s *corev1.Service) error {
	r.recordProblem(follow.KeyOf(s), "")
	r.events.Eventf(s, corev1.EventTypeNormal, "DeletingLoadBalancer", "Deleting load balancer")
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) > 0 {
		if err := r.write(ctx, s, nil); err != nil {
			return err
		}
	}
	if slices.Contains(s.Finalizers, finalizer) {
		_, err := client.Update(ctx, r.deps.Client, s, "", func(next *corev1.Service) error {
			next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == finalizer })
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	r.events.Eventf(s, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	return nil
}

// write writes the addresses to the status and to the index, so that the next choice considers them.
func (r *run) write(ctx context.Context, s *corev1.Service, ips []netip.Addr) error {
	var ingress []corev1.LoadBalancerIngress
	for _, ip := range ips {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: ip.String(), IPMode: new(corev1.LoadBalancerIPModeVIP)})
	}
	next, err := client.Update(ctx, r.deps.Client, s, "status", func(next *corev1.Service) error {
		next.Status.LoadBalancer.Ingress = ingress
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if key := follow.KeyOf(s); r.services[key] != nil {
		r.services[key] = next
	}
	return nil
}

func older(a, b *corev1.Service) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name))
}
