package gateway

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// The kinds of the Gateway API that the controller knows. All but the routes are required.
const (
	kindClass   = "GatewayClass"
	kindGateway = "Gateway"
	kindGrant   = "ReferenceGrant"
	kindHTTP    = "HTTPRoute"
	kindGRPC    = "GRPCRoute"
	kindTLS     = "TLSRoute"
	kindTCP     = "TCPRoute"
)

var allKinds = []string{kindClass, kindGateway, kindGrant, kindHTTP, kindGRPC, kindTLS, kindTCP}

// routeKey names a route.
type routeKey struct {
	kind string
	follow.Key
}

// routeObject is a route of any kind. Its rules are those of an HTTPRoute: a GRPCRoute's methods are paths, and the
// rules of the others have only backends.
type routeObject struct {
	routeKey
	meta      metav1.ObjectMeta
	parents   []gatewayv1.ParentReference
	hostnames []gatewayv1.Hostname
	rules     []gatewayv1.HTTPRouteRule
	status    []gatewayv1.RouteParentStatus
}

// objects are the objects of the API from which the plan is computed.
type objects struct {
	classes    map[string]*gatewayv1.GatewayClass
	gateways   map[follow.Key]*gatewayv1.Gateway
	routes     map[routeKey]*routeObject
	grants     map[follow.Key]*gatewayv1.ReferenceGrant
	namespaces map[string]labels.Set
}

func newObjects() objects {
	return objects{
		classes: map[string]*gatewayv1.GatewayClass{}, gateways: map[follow.Key]*gatewayv1.Gateway{},
		routes: map[routeKey]*routeObject{}, grants: map[follow.Key]*gatewayv1.ReferenceGrant{},
		namespaces: map[string]labels.Set{},
	}
}

// set stores an object, or removes it if next is nil. It reports whether anything but statuses has changed.
func (o *objects) set(kind string, old, next client.Object) (changed bool, err error) {
	if next == nil {
		name := follow.KeyOf(old)
		switch kind {
		case kindClass:
			delete(o.classes, name.Name)
		case kindGateway:
			delete(o.gateways, name)
		case kindGrant:
			delete(o.grants, name)
		default:
			delete(o.routes, routeKey{kind, name})
		}
		return true, nil
	}
	name := follow.KeyOf(next)
	switch kind {
	case kindClass:
		o.classes[name.Name], err = decode[gatewayv1.GatewayClass](next)
	case kindGateway:
		o.gateways[name], err = decode[gatewayv1.Gateway](next)
	case kindGrant:
		o.grants[name], err = decode[gatewayv1.ReferenceGrant](next)
	default:
		o.routes[routeKey{kind, name}], err = decodeRoute(kind, next)
	}
	return old == nil || old.GetGeneration() != next.GetGeneration() || old.GetUID() != next.GetUID() ||
		(old.GetDeletionTimestamp() == nil) != (next.GetDeletionTimestamp() == nil), err
}

// decode returns a typed object for one of a custom kind.
func decode[T any](obj client.Object) (*T, error) {
	out := new(T)
	text, err := json.Marshal(obj)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, out)
}

func decodeRoute(kind string, obj client.Object) (*routeObject, error) {
	r := &routeObject{routeKey: routeKey{kind, follow.KeyOf(obj)}}
	switch kind {
	case kindHTTP:
		o, err := decode[gatewayv1.HTTPRoute](obj)
		r.meta, r.parents, r.hostnames, r.status = o.ObjectMeta, o.Spec.ParentRefs, o.Spec.Hostnames, o.Status.Parents
		r.rules = o.Spec.Rules
		return r, err
	case kindGRPC:
		o, err := decode[gatewayv1.GRPCRoute](obj)
		r.meta, r.parents, r.hostnames, r.status = o.ObjectMeta, o.Spec.ParentRefs, o.Spec.Hostnames, o.Status.Parents
		for i := range o.Spec.Rules {
			r.rules = append(r.rules, ruleOfGRPC(&o.Spec.Rules[i]))
		}
		return r, err
	case kindTLS:
		o, err := decode[gatewayv1.TLSRoute](obj)
		r.meta, r.parents, r.hostnames, r.status = o.ObjectMeta, o.Spec.ParentRefs, o.Spec.Hostnames, o.Status.Parents
		for _, rule := range o.Spec.Rules {
			r.rules = append(r.rules, gatewayv1.HTTPRouteRule{BackendRefs: backendRefs(rule.BackendRefs)})
		}
		return r, err
	default:
		o, err := decode[gatewayv1.TCPRoute](obj)
		r.meta, r.parents, r.status = o.ObjectMeta, o.Spec.ParentRefs, o.Status.Parents
		for _, rule := range o.Spec.Rules {
			r.rules = append(r.rules, gatewayv1.HTTPRouteRule{BackendRefs: backendRefs(rule.BackendRefs)})
		}
		return r, err
	}
}

func backendRefs(refs []gatewayv1.BackendRef) (list []gatewayv1.HTTPBackendRef) {
	for _, ref := range refs {
		list = append(list, gatewayv1.HTTPBackendRef{BackendRef: ref})
	}
	return list
}

// ruleOfGRPC returns a rule of a GRPCRoute as one of an HTTPRoute: the path of a call is /SERVICE/METHOD.
func ruleOfGRPC(rule *gatewayv1.GRPCRouteRule) gatewayv1.HTTPRouteRule {
	out := gatewayv1.HTTPRouteRule{Filters: filtersOfGRPC(rule.Filters)}
	for _, m := range rule.Matches {
		match := gatewayv1.HTTPRouteMatch{Path: pathOfGRPC(m.Method)}
		for _, h := range m.Headers {
			match.Headers = append(match.Headers, gatewayv1.HTTPHeaderMatch{
				Type: (*gatewayv1.HeaderMatchType)(h.Type), Name: gatewayv1.HTTPHeaderName(h.Name), Value: h.Value})
		}
		out.Matches = append(out.Matches, match)
	}
	for _, b := range rule.BackendRefs {
		out.BackendRefs = append(out.BackendRefs,
			gatewayv1.HTTPBackendRef{BackendRef: b.BackendRef, Filters: filtersOfGRPC(b.Filters)})
	}
	return out
}

func pathOfGRPC(m *gatewayv1.GRPCMethodMatch) *gatewayv1.HTTPPathMatch {
	if m == nil {
		return nil
	}
	service, method := value(m.Service), value(m.Method)
	typ, path := gatewayv1.PathMatchExact, "/"+service+"/"+method
	switch {
	case value(m.Type) == gatewayv1.GRPCMethodMatchRegularExpression || service == "":
		if value(m.Type) != gatewayv1.GRPCMethodMatchRegularExpression {
			method = regexp.QuoteMeta(method)
		}
		const any = "[^/]+"
		typ, path = gatewayv1.PathMatchRegularExpression, "^/"+cmp.Or(service, any)+"/"+cmp.Or(method, any)+"$"
	case method == "":
		typ, path = gatewayv1.PathMatchPathPrefix, "/"+service
	}
	return &gatewayv1.HTTPPathMatch{Type: &typ, Value: &path}
}

func filtersOfGRPC(filters []gatewayv1.GRPCRouteFilter) (list []gatewayv1.HTTPRouteFilter) {
	for _, f := range filters {
		list = append(list, gatewayv1.HTTPRouteFilter{
			Type: gatewayv1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier,
			ResponseHeaderModifier: f.ResponseHeaderModifier, RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
		})
	}
	return list
}

// value returns what a pointer points to; nil: the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// sorted returns the routes in the order of precedence: the oldest first.
func (o *objects) sorted() []*routeObject {
	return slices.SortedFunc(maps.Values(o.routes), func(a, b *routeObject) int {
		return cmp.Or(a.meta.CreationTimestamp.Compare(b.meta.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.kind, b.kind))
	})
}
