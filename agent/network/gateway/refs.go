package gateway

import (
	"crypto/tls"
	"fmt"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"monopod/apiserver/kit/follow"
)

// secretKey returns the key of the Secret that a listener refers to; ok is false if the reference is of another kind.
func secretKey(gw *gatewayv1.Gateway, ref gatewayv1.SecretObjectReference) (name follow.Key, ok bool) {
	name = follow.Key{Namespace: gw.Namespace, Name: string(ref.Name)}
	if ref.Namespace != nil {
		name.Namespace = string(*ref.Namespace)
	}
	return name, value(ref.Group) == "" && (ref.Kind == nil || *ref.Kind == "Secret")
}

// certificate returns the certificate that a listener refers to; nil: there is none, with the reason of the condition.
func (o *objects) certificate(gw *gatewayv1.Gateway, ref gatewayv1.SecretObjectReference, s surroundings) (
	*tls.Certificate, gatewayv1.ListenerConditionReason, string) {
	name, ok := secretKey(gw, ref)
	if !ok {
		return nil, gatewayv1.ListenerReasonInvalidCertificateRef,
			fmt.Sprintf("the reference to %q is not to a Secret", ref.Name)
	}
	if !o.granted(kindGateway, gw.Namespace, "Secret", name) {
		return nil, gatewayv1.ListenerReasonRefNotPermitted,
			fmt.Sprintf("no ReferenceGrant of the namespace %s permits the reference to Secret %q", name.Namespace, name.Name)
	}
	cert, err := s.secret(name)
	if err != nil {
		return nil, gatewayv1.ListenerReasonInvalidCertificateRef, fmt.Sprintf("Secret %q: %s", name, err)
	}
	return cert, "", ""
}

// granted reports whether an object of a kind of the Gateway API in a namespace may refer to an object of a core kind:
// in its own namespace always, in another one by a ReferenceGrant there.
func (o *objects) granted(fromKind, from, toKind string, to follow.Key) bool {
	if from == to.Namespace {
		return true
	}
	for name, grant := range o.grants {
		if name.Namespace == to.Namespace && permits(&grant.Spec, fromKind, from, toKind, to.Name) {
			return true
		}
	}
	return false
}

func permits(s *gatewayv1.ReferenceGrantSpec, fromKind, from, toKind, name string) bool {
	source := false
	for _, f := range s.From {
		source = source || f.Group == gatewayv1.GroupName && string(f.Kind) == fromKind && string(f.Namespace) == from
	}
	if !source {
		return false
	}
	for _, t := range s.To {
		if t.Group == "" && string(t.Kind) == toKind && (value(t.Name) == "" || string(*t.Name) == name) {
			return true
		}
	}
	return false
}

// serviceKey returns the Service that a route refers to, or the reason why the reference is not valid.
func (o *objects) serviceKey(r *routeObject, ref *gatewayv1.BackendObjectReference, s surroundings) (follow.Key,
	gatewayv1.RouteConditionReason, string) {
	name := follow.Key{Namespace: r.Namespace, Name: string(ref.Name)}
	if ref.Namespace != nil {
		name.Namespace = string(*ref.Namespace)
	}
	if value(ref.Group) != "" || ref.Kind != nil && *ref.Kind != "Service" {
		return name, gatewayv1.RouteReasonInvalidKind,
			fmt.Sprintf("the backend %q is not a Service but a %s", name, value(ref.Kind))
	}
	if !o.granted(r.kind, r.Namespace, "Service", name) {
		return name, gatewayv1.RouteReasonRefNotPermitted,
			fmt.Sprintf("no ReferenceGrant of the namespace %s permits the reference to Service %q", name.Namespace, name.Name)
	}
	if s.service(name) == nil {
		return name, gatewayv1.RouteReasonBackendNotFound, fmt.Sprintf("Service %q does not exist", name)
	}
	return name, "", ""
}
