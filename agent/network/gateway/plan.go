package gateway

import (
	"crypto/tls"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"monopod/agent/network/ingress/proxy"
	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

// ControllerName is the value of spec.controllerName in the GatewayClasses that this controller serves.
const ControllerName = "monopod.io/gateway"

// plan is what Gateways serve, and all conditions.
type plan struct {
	gateways map[follow.Key]*gatewayPlan
	routes   map[routeKey][]gatewayv1.RouteParentStatus // of the Gateways of this controller; only of routes that name one
	services map[follow.Key][]follow.Key                // Gateways by the name of their Service
}

// gatewayPlan is what one Gateway serves.
type gatewayPlan struct {
	object    *gatewayv1.Gateway
	accepted  metav1.Condition
	listeners []*listener
	ports     map[int32]*port
}

// port is a port of a Gateway. Listeners of one port differ in their hosts.
type port struct {
	class   class
	web     route.Listeners[*proxy.Split] // of HTTP and HTTPS
	streams proxy.Streams                 // of TLS and TCP
}

// class is what a port serves. Listeners of one port have the same.
type class string

const (
	classHTTP class = "http"
	classTLS  class = "https" // HTTPS and TLS, by the server name
	classTCP  class = "tcp"
)

// protocols are the classes of listeners' protocols.
var protocols = map[gatewayv1.ProtocolType]class{
	gatewayv1.HTTPProtocolType: classHTTP, gatewayv1.HTTPSProtocolType: classTLS, gatewayv1.TLSProtocolType: classTLS,
	gatewayv1.TCPProtocolType: classTCP,
}

// routeKinds are the kinds of routes that listeners of a protocol can have.
var routeKinds = map[gatewayv1.ProtocolType][]gatewayv1.Kind{
	gatewayv1.HTTPProtocolType: {kindHTTP, kindGRPC}, gatewayv1.HTTPSProtocolType: {kindHTTP, kindGRPC},
	gatewayv1.TLSProtocolType: {kindTLS}, gatewayv1.TCPProtocolType: {kindTCP},
}

// listener is a listener of a Gateway while the plan is computed.
type listener struct {
	spec       *gatewayv1.Listener
	host       string
	kinds      []gatewayv1.Kind // of routes that it may have
	attached   int32
	certs      []*tls.Certificate
	usable     bool // it serves clients
	conditions []metav1.Condition
	rules      []route.HTTPRule[*proxy.Split]
	tcp        *proxy.Split
}

// surroundings are what a plan needs of other kinds.
type surroundings struct {
	defaults route.Options
	secret   func(follow.Key) (*tls.Certificate, error)
	service  func(follow.Key) *corev1.Service // nil: it does not exist
}

// planOf returns the plan for all objects.
func planOf(o *objects, s surroundings) *plan {
	p := &plan{gateways: map[follow.Key]*gatewayPlan{}, routes: map[routeKey][]gatewayv1.RouteParentStatus{},
		services: map[follow.Key][]follow.Key{}}
	for name, gw := range o.gateways {
		if o.ours(gw) {
			p.gateways[name] = newGateway(gw, o, s)
			svc := follow.Key{Namespace: name.Namespace, Name: serviceName(gw)}
			p.services[svc] = append(p.services[svc], name)
		}
	}
	for _, r := range o.sorted() {
		p.attach(r, o, s)
	}
	for _, g := range p.gateways {
		g.assemble()
	}
	return p
}

// ours reports whether a Gateway has an accepted class of this controller.
func (o *objects) ours(gw *gatewayv1.Gateway) bool {
	class := o.classes[string(gw.Spec.GatewayClassName)]
	return class != nil && class.Spec.ControllerName == ControllerName && class.Spec.ParametersRef == nil &&
		gw.DeletionTimestamp == nil
}

func newGateway(gw *gatewayv1.Gateway, o *objects, s surroundings) *gatewayPlan {
	g := &gatewayPlan{object: gw, ports: map[int32]*port{}}
	valid := 0
	for i := range gw.Spec.Listeners {
		l := newListener(&gw.Spec.Listeners[i])
		l.refuseConflict(g.listeners)
		l.supportKinds()
		l.certify(gw, o, s)
		if l.usable {
			valid++
		}
		g.listeners = append(g.listeners, l)
	}
	accept := func(status bool, reason gatewayv1.GatewayConditionReason, text string) {
		g.accepted = condition(gw, gatewayv1.GatewayConditionAccepted, status, reason, text)
	}
	reason, text := unsupported(gw)
	switch {
	case text != "":
		accept(false, reason, text)
		for _, l := range g.listeners {
			l.usable = false
		}
	case valid < len(g.listeners):
		accept(valid > 0, gatewayv1.GatewayReasonListenersNotValid,
			fmt.Sprintf("%d of %d listeners are valid", valid, len(g.listeners)))
	default:
		accept(true, gatewayv1.GatewayReasonAccepted, "")
	}
	return g
}

// unsupported returns why a Gateway cannot be served as a whole; an empty text: it can.
func unsupported(gw *gatewayv1.Gateway) (reason gatewayv1.GatewayConditionReason, text string) {
	if value(gw.Spec.Infrastructure).ParametersRef != nil {
		return gatewayv1.GatewayReasonInvalidParameters, "spec.infrastructure.parametersRef is not supported"
	}
	for _, a := range gw.Spec.Addresses {
		if typ := value(a.Type); typ != "" && typ != gatewayv1.IPAddressType {
			return gatewayv1.GatewayReasonUnsupportedAddress, fmt.Sprintf("addresses of the type %s are not supported", typ)
		}
	}
	return "", ""
}

func newListener(spec *gatewayv1.Listener) *listener {
	return &listener{spec: spec, host: string(value(spec.Hostname)), usable: true}
}

func (l *listener) class() class { return protocols[l.spec.Protocol] }

// set sets a condition. The first one of a type counts.
func (l *listener) set(typ gatewayv1.ListenerConditionType, status bool, reason gatewayv1.ListenerConditionReason,
	format string, args ...any) {
	if slices.ContainsFunc(l.conditions, func(c metav1.Condition) bool { return c.Type == string(typ) }) {
		return
	}
	l.conditions = append(l.conditions, metav1.Condition{Type: string(typ), Status: statusOf(status),
		Reason: string(reason), Message: fmt.Sprintf(format, args...)})
}

// refuseConflict marks the listener if an earlier one of the Gateway has its port and host, or another protocol.
func (l *listener) refuseConflict(earlier []*listener) {
	for _, other := range earlier {
		if other.spec.Port != l.spec.Port || other.class() == "" {
			continue
		}
		reason, text := gatewayv1.ListenerReasonNoConflicts, ""
		switch {
		case other.class() != l.class():
			reason, text = gatewayv1.ListenerReasonProtocolConflict, "another protocol"
		case other.host == l.host:
			reason, text = gatewayv1.ListenerReasonHostnameConflict, "the same host"
		}
		if text == "" {
			continue
		}
		for _, one := range []*listener{l, other} {
			one.set(gatewayv1.ListenerConditionConflicted, true, reason, "listeners %q and %q have the same port and %s",
				other.spec.Name, l.spec.Name, text)
		}
		l.set(gatewayv1.ListenerConditionAccepted, false, reason,
			"listener %q has the same port and %s", other.spec.Name, text)
		l.usable = false
	}
}

// supportKinds sets the kinds of routes.
func (l *listener) supportKinds() {
	possible := routeKinds[l.spec.Protocol]
	if l.class() == "" {
		l.set(gatewayv1.ListenerConditionAccepted, false, gatewayv1.ListenerReasonUnsupportedProtocol,
			"the protocol %s is not supported", l.spec.Protocol)
		l.usable = false
		return
	}
	allowed := value(l.spec.AllowedRoutes).Kinds
	if len(allowed) == 0 {
		l.kinds = possible
		return
	}
	for _, k := range allowed {
		if group := k.Group; group != nil && *group != gatewayv1.GroupName || !slices.Contains(possible, k.Kind) {
			l.set(gatewayv1.ListenerConditionResolvedRefs, false, gatewayv1.ListenerReasonInvalidRouteKinds,
				"listeners of the protocol %s cannot have routes of the kind %s", l.spec.Protocol, k.Kind)
			continue
		}
		l.kinds = append(l.kinds, k.Kind)
	}
	l.usable = l.usable && len(l.kinds) > 0
}

// certify sets the certificates of a listener that ends TLS.
func (l *listener) certify(gw *gatewayv1.Gateway, o *objects, s surroundings) {
	config := value(l.spec.TLS)
	mode := value(config.Mode)
	passthrough := mode == gatewayv1.TLSModePassthrough
	switch {
	case l.class() != classTLS || passthrough && l.spec.Protocol == gatewayv1.TLSProtocolType:
		return
	case passthrough:
		l.set(gatewayv1.ListenerConditionAccepted, false, gatewayv1.ListenerReasonUnsupportedValue,
			"a listener of the protocol HTTPS cannot have the TLS mode Passthrough")
		l.usable = false
		return
	}
	for _, ref := range config.CertificateRefs {
		cert, reason, text := o.certificate(gw, ref, s)
		if cert == nil {
			l.set(gatewayv1.ListenerConditionResolvedRefs, false, reason, "%s", text)
			continue
		}
		l.certs = append(l.certs, cert)
	}
	l.usable = l.usable && len(l.certs) > 0
}

// assemble computes what the ports serve from the listeners and their rules.
func (g *gatewayPlan) assemble() {
	for _, l := range g.listeners {
		if !l.usable {
			continue
		}
		p := g.ports[l.spec.Port]
		if p == nil {
			p = &port{class: l.class()}
			if p.class == classTLS {
				p.streams.TLS = route.Listeners[*proxy.Split]{}
			}
			g.ports[l.spec.Port] = p
		}
		route.SortRules(l.rules)
		one := &route.Listener[*proxy.Split]{Host: l.host, Certs: l.certs, Rules: l.rules}
		switch l.spec.Protocol {
		case gatewayv1.TLSProtocolType:
			p.streams.TLS = append(p.streams.TLS, one)
		case gatewayv1.TCPProtocolType:
			p.streams.TCP = l.tcp
		default:
			p.web = append(p.web, one)
		}
	}
	for _, p := range g.ports {
		route.SortListeners(p.web)
		route.SortListeners(p.streams.TLS)
	}
}

func statusOf(ok bool) metav1.ConditionStatus {
	if ok {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// condition returns a condition for the current generation of an object.
func condition[T, R ~string](obj metav1.Object, typ T, status bool, reason R, message string) metav1.Condition {
	return metav1.Condition{Type: string(typ), Status: statusOf(status), Reason: string(reason), Message: message,
		ObservedGeneration: obj.GetGeneration()}
}
