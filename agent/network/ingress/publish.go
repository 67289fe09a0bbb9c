package ingress

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/network/ingress/proxy"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

var errNoSecret = errors.New("it does not exist")

// problemDelay is how long a problem lasts before an Event reports it: an Ingress is often created before its Services.
const problemDelay = 3 * time.Second

// createClasses creates the IngressClasses that do not exist.
func (r *running) createClasses(ctx context.Context) error {
	for _, name := range r.cfg.created() {
		if err := r.createClass(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// createClass creates an IngressClass. That of Monopod becomes the default unless there is another one.
func (r *running) createClass(ctx context.Context, name string) error {
	_, err := client.Get[*networkingv1.IngressClass](ctx, r.deps.Client, "", name)
	if !apierrors.IsNotFound(err) {
		return err
	}
	list, err := client.List[*networkingv1.IngressClass](ctx, r.deps.Client, client.Selector{})
	if err != nil {
		return err
	}
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.IngressClassSpec{Controller: ControllerName}}
	if name == ClassName && !slices.ContainsFunc(list, func(c *networkingv1.IngressClass) bool {
		return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
	}) {
		class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	_, err = r.deps.Client.Create(ctx, class)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// publish writes the status and the events of an Ingress.
func (r *running) publish(ctx context.Context, name follow.Key) (time.Duration, error) {
	r.mu.Lock()
	ing := r.observed.ingresses[name]
	local, others := r.addresses()
	r.mu.Unlock()
	destinations, served := r.destinations[name]
	if ing == nil || !served {
		_, wasServed := r.reported[name]
		delete(r.reported, name)
		r.metrics.Forget(name)
		if ing == nil || !wasServed {
			return 0, nil
		}
		local = nil // this node no longer serves it
	}
	if len(r.ports) == 0 {
		local = nil
	}
	want := statusOf(ing.Status.LoadBalancer.Ingress, local, others, r.statusPorts(ing))
	if !equality.Semantic.DeepEqual(want, ing.Status.LoadBalancer.Ingress) {
		ref := client.RefOf(ing)
		ref.Subresource = "status"
		_, err := r.deps.Client.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
			next := cur.DeepCopyObject().(*networkingv1.Ingress)
			next.Status.LoadBalancer.Ingress = statusOf(next.Status.LoadBalancer.Ingress, local, others, r.statusPorts(next))
			return next, nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	if !served {
		return 0, nil
	}
	return r.report(ing, destinations), nil
}

// report writes one Event about each problem that an Ingress has had for problemDelay. It returns the time until the
// next one is due; 0: there is none.
func (r *running) report(ing *networkingv1.Ingress, destinations []*proxy.Destination) time.Duration {
	name, now := follow.KeyOf(ing), r.deps.Clock.Now()
	problems := slices.Clone(r.problems[name])
	for _, to := range destinations {
		if text := to.Backend.Problem(); text != "" {
			problems = append(problems, problem{"BadBackend", text})
		}
	}
	before, reported := r.reported[name], map[problem]time.Time{}
	again := time.Duration(0)
	for _, p := range problems {
		if _, repeated := reported[p]; repeated {
			continue
		}
		since, ok := before[p]
		if !ok {
			since = now
		}
		reported[p] = since
		if since.IsZero() {
			continue
		}
		if wait := problemDelay - now.Sub(since); wait > 0 {
			again = cmp.Or(min(cmp.Or(again, wait), wait), wait)
			continue
		}
		reported[p] = time.Time{}
		r.events.Eventf(ing, corev1.EventTypeWarning, p.reason, "%s", p.message)
		r.deps.Log.Warn("an Ingress has a problem", zap.Stringer("ingress", name), zap.String("reason", p.reason),
			zap.String("problem", p.message))
	}
	r.reported[name] = reported
	return again
}

// addresses returns the addresses of this node for statuses, and those of the other nodes. The caller holds mu.
func (r *running) addresses() (local, others []string) {
	if list := r.cfg.StatusAddresses; len(list) > 0 {
		return list, nil
	}
	for _, address := range []string{r.cfg.HTTP, r.cfg.HTTPS} {
		if at, err := netip.ParseAddrPort(address); err == nil && !at.Addr().IsUnspecified() {
			local = append(local, at.Addr().String())
		}
	}
	for name, node := range r.observed.nodes {
		switch {
		case name != r.cfg.Node:
			others = append(others, nodeAddresses(node)...)
		case len(local) == 0:
			local = nodeAddresses(node)
		}
	}
	return local, others
}

// statusPorts returns the ports at which an Ingress is served.
func (r *running) statusPorts(ing *networkingv1.Ingress) []networkingv1.IngressPortStatus {
	var ports []networkingv1.IngressPortStatus
	add := func(scheme string) {
		if n, err := strconv.Atoi(r.ports[scheme]); err == nil {
			ports = append(ports, networkingv1.IngressPortStatus{Port: int32(n), Protocol: corev1.ProtocolTCP})
		}
	}
	add("http")
	if len(ing.Spec.TLS) > 0 || len(ports) == 0 {
		add("https")
	}
	return ports
}

// statusOf returns the addresses for the status of an Ingress: those of this node, and those of other nodes in the
// current status. Nodes that share one API thus add themselves and do not remove each other.
func statusOf(current []networkingv1.IngressLoadBalancerIngress, local, others []string,
	ports []networkingv1.IngressPortStatus) []networkingv1.IngressLoadBalancerIngress {
	var list []networkingv1.IngressLoadBalancerIngress
	for _, in := range current {
		if at := cmp.Or(in.IP, in.Hostname); slices.Contains(others, at) && !slices.Contains(local, at) {
			list = append(list, in)
		}
	}
	for _, address := range local {
		in := networkingv1.IngressLoadBalancerIngress{IP: address, Ports: ports}
		if _, err := netip.ParseAddr(address); err != nil {
			in.IP, in.Hostname = "", address
		}
		list = append(list, in)
	}
	slices.SortFunc(list, func(a, b networkingv1.IngressLoadBalancerIngress) int {
		return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.Hostname, b.Hostname))
	})
	return slices.CompactFunc(list, func(a, b networkingv1.IngressLoadBalancerIngress) bool {
		return a.IP == b.IP && a.Hostname == b.Hostname
	})
}
