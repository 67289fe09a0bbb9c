package gateway

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

// attach attaches a route to the listeners of its parents, and sets its status.
func (p *plan) attach(r *routeObject, o *objects, s surroundings) {
	if r.meta.DeletionTimestamp != nil {
		return
	}
	var compiled *compiledRoute
	for _, ref := range r.parents {
		gw := p.gateways[parentKey(r, ref)]
		if gw == nil || value(ref.Group) != "" && *ref.Group != gatewayv1.GroupName ||
			ref.Kind != nil && *ref.Kind != kindGateway {
			continue
		}
		if compiled == nil {
			compiled = compileRoute(r, o, s)
		}
		reason, text := gatewayv1.RouteReasonUnsupportedValue, compiled.unsupported
		if text == "" {
			reason, text = gw.attach(r, ref, compiled, o)
		}
		status := gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: ControllerName}
		set := func(c metav1.Condition) { meta.SetStatusCondition(&status.Conditions, c) }
		set(condition(&r.meta, gatewayv1.RouteConditionAccepted, text == "", reason, text))
		set(condition(&r.meta, gatewayv1.RouteConditionResolvedRefs, compiled.unresolved == "", compiled.reason,
			compiled.unresolved))
		p.routes[r.routeKey] = append(p.routes[r.routeKey], status)
	}
}

func parentKey(r *routeObject, ref gatewayv1.ParentReference) follow.Key {
	name := follow.Key{Namespace: r.Namespace, Name: string(ref.Name)}
	if ref.Namespace != nil {
		name.Namespace = string(*ref.Namespace)
	}
	return name
}

// attach adds the rules of a route to the listeners that a reference names. An empty text means that there is one.
func (g *gatewayPlan) attach(r *routeObject, ref gatewayv1.ParentReference, c *compiledRoute, o *objects) (
	reason gatewayv1.RouteConditionReason, text string) {
	reason, text = gatewayv1.RouteReasonNoMatchingParent, "the Gateway has no such listener"
	var named []*listener
	for _, l := range g.listeners {
		if (ref.SectionName == nil || *ref.SectionName == l.spec.Name) && (ref.Port == nil || *ref.Port == l.spec.Port) {
			named = append(named, l)
		}
	}
	if len(named) == 0 {
		return reason, text
	}
	reason, text = gatewayv1.RouteReasonNotAllowedByListeners,
		fmt.Sprintf("no listener allows routes of the kind %s from the namespace %s", r.kind, r.Namespace)
	for _, l := range named {
		if !slices.Contains(l.kinds, gatewayv1.Kind(r.kind)) || !o.allows(g.object.Namespace, l.spec.AllowedRoutes, r.Namespace) {
			continue
		}
		hosts := hostsOf(l, r)
		if len(hosts) == 0 && len(r.hostnames) > 0 {
			if reason != gatewayv1.RouteReasonAccepted {
				reason, text = gatewayv1.RouteReasonNoMatchingListenerHostname, "no listener has one of the route's hosts"
			}
			continue
		}
		reason, text = gatewayv1.RouteReasonAccepted, ""
		l.attached++
		l.add(r, hosts, c)
	}
	return reason, text
}

// hostsOf returns the hosts for which a listener sends requests to a route.
func hostsOf(l *listener, r *routeObject) (hosts []string) {
	if len(r.hostnames) == 0 {
		return []string{l.host}
	}
	for _, h := range r.hostnames {
		if host, ok := route.IntersectHosts(l.host, string(h)); ok && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// add adds the rules of a route.
func (l *listener) add(r *routeObject, hosts []string, c *compiledRoute) {
	if r.kind == kindTCP {
		if l.tcp == nil && len(c.rules) > 0 {
			l.tcp = c.rules[0].To // the oldest route has the port
		}
		return
	}
	for _, host := range hosts {
		for _, rule := range c.rules {
			rule.Host = host
			l.rules = append(l.rules, rule)
		}
	}
}

// allows reports whether a listener allows routes from a namespace.
func (o *objects) allows(own string, allowed *gatewayv1.AllowedRoutes, namespace string) bool {
	n := value(value(allowed).Namespaces)
	switch value(n.From) {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromNone:
		return false
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(n.Selector)
		labels, exists := o.namespaces[namespace]
		return err == nil && exists && selector.Matches(labels)
	}
	return own == namespace
}
