package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// managedBy is the value of the label of EndpointSlices that names who writes them.
const managedBy = "gateway.monopod.io"

// features are the features of the Gateway API that are supported, by the names of its conformance tests.
var features = []string{
	"GRPCRoute", "GRPCRouteNamedRouteRule", "Gateway", "GatewayAddressEmpty", "GatewayHTTPListenerIsolation",
	"GatewayInfrastructure", "GatewayPort8080", "GatewayStaticAddresses", "HTTPRoute", "HTTPRoute303RedirectStatusCode",
	"HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode", "HTTPRouteBackendProtocolH2C",
	"HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification", "HTTPRouteBackendTimeout",
	"HTTPRouteCORS", "HTTPRouteDestinationPortMatching", "HTTPRouteHostRewrite", "HTTPRouteMethodMatching",
	"HTTPRouteNamedRouteRule", "HTTPRouteParentRefPort", "HTTPRoutePathRedirect", "HTTPRoutePathRewrite",
	"HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestTimeout",
	"HTTPRouteResponseHeaderModification", "HTTPRouteSchemeRedirect", "ReferenceGrant", "TCPRoute", "TLSRoute",
	"TLSRouteModeMixed", "TLSRouteModeTerminate",
}

// publishClass writes the status of a GatewayClass of this controller.
func (r *running) publishClass(ctx context.Context, name string) error {
	r.mu.Lock()
	class := r.observed.classes[name]
	r.mu.Unlock()
	if class == nil || class.Spec.ControllerName != ControllerName {
		return nil
	}
	accepted := condition(class, gatewayv1.GatewayClassConditionStatusAccepted, true,
		gatewayv1.GatewayClassReasonAccepted, "")
	if class.Spec.ParametersRef != nil {
		accepted = condition(class, gatewayv1.GatewayClassConditionStatusAccepted, false,
			gatewayv1.GatewayClassReasonInvalidParameters, "spec.parametersRef is not supported")
	}
	return updateStatus(ctx, r, kindClass, follow.Key{Name: name}, func(c *gatewayv1.GatewayClass) any {
		c.Status.Conditions = merge(c.Status.Conditions, accepted)
		c.Status.SupportedFeatures = nil
		for _, f := range features {
			c.Status.SupportedFeatures = append(c.Status.SupportedFeatures,
				gatewayv1.SupportedFeature{Name: gatewayv1.FeatureName(f)})
		}
		return c.Status
	})
}

// publishGateway writes the Service, the EndpointSlices and the status of a Gateway.
func (r *running) publishGateway(ctx context.Context, name follow.Key) error {
	r.mu.Lock()
	gw := r.observed.gateways[name]
	nodes, ours := maps.Clone(r.nodes), gw != nil && r.observed.ours(gw)
	r.mu.Unlock()
	g := r.plan.gateways[name]
	switch {
	case gw == nil || gw.DeletionTimestamp != nil:
		return nil // the garbage collector deletes its Service
	case !ours:
		return r.release(ctx, gw)
	case g == nil:
		return nil // the next plan has it
	}
	svc, err := r.publishService(ctx, g)
	if err != nil {
		return err
	}
	if err := r.deleteServices(ctx, gw, value(svc).Name); err != nil {
		return err
	}
	if svc != nil {
		if err := r.publishSlices(ctx, g, svc); err != nil {
			return err
		}
	}
	_, endpoints := r.services.Get(follow.Key{Namespace: name.Namespace, Name: serviceName(gw)})
	addresses := addressesOf(svc, endpoints, nodes)
	shared := slices.ContainsFunc(addresses, func(a gatewayv1.GatewayStatusAddress) bool {
		return slices.Contains(nodeAddresses(nodes[r.cfg.Node]), a.Value)
	})
	for k, s := range r.servers {
		if k.gateway == name {
			s.shared.Store(shared)
		}
	}
	programmed := g.programmed(svc, addresses)
	return updateStatus(ctx, r, kindGateway, name, func(gw *gatewayv1.Gateway) any {
		gw.Status.Addresses = addresses
		gw.Status.Conditions = merge(gw.Status.Conditions, g.accepted, programmed)
		before := gw.Status.Listeners
		gw.Status.Listeners = nil
		for _, l := range g.listeners {
			gw.Status.Listeners = append(gw.Status.Listeners, l.status(gw, before, programmed.Status == metav1.ConditionTrue))
		}
		return gw.Status
	})
}

func nodeAddresses(node *corev1.Node) (list []string) {
	for _, a := range value(node).Status.Addresses {
		list = append(list, a.Address)
	}
	return list
}

// programmed returns the condition that says whether clients reach the Gateway.
func (g *gatewayPlan) programmed(svc *corev1.Service, addresses []gatewayv1.GatewayStatusAddress) metav1.Condition {
	no := func(reason gatewayv1.GatewayConditionReason, format string, args ...any) metav1.Condition {
		return condition(g.object, gatewayv1.GatewayConditionProgrammed, false, reason, fmt.Sprintf(format, args...))
	}
	asked := ""
	for _, a := range g.object.Spec.Addresses {
		asked = a.Value
	}
	switch {
	case len(g.ports) == 0:
		return no(gatewayv1.GatewayReasonInvalid, "no listener is valid")
	case svc == nil:
		return no(gatewayv1.GatewayReasonNoResources, "the Service %q exists and does not belong to the Gateway",
			serviceName(g.object))
	case len(g.object.Spec.Addresses) > 1:
		return no(gatewayv1.GatewayReasonAddressNotUsable, "only one of spec.addresses can be assigned")
	case len(addresses) == 0 && asked != "":
		return no(gatewayv1.GatewayReasonAddressNotUsable, "the address %s is not free, or not in --load-balancer-pool", asked)
	case len(addresses) == 0:
		return no(gatewayv1.GatewayReasonAddressNotAssigned,
			"the Service %q has no address: an older Service may have its ports; its Events say why", svc.Name)
	case asked != "" && !slices.ContainsFunc(addresses, func(a gatewayv1.GatewayStatusAddress) bool { return a.Value == asked }):
		return no(gatewayv1.GatewayReasonAddressNotUsable, "the address %s cannot be assigned", asked)
	}
	return condition(g.object, gatewayv1.GatewayConditionProgrammed, true, gatewayv1.GatewayReasonProgrammed, "")
}

// status returns the status of a listener.
func (l *listener) status(gw *gatewayv1.Gateway, before []gatewayv1.ListenerStatus,
	programmed bool) gatewayv1.ListenerStatus {
	s := gatewayv1.ListenerStatus{Name: l.spec.Name, AttachedRoutes: l.attached,
		SupportedKinds: []gatewayv1.RouteGroupKind{}}
	for _, kind := range l.kinds {
		group := gatewayv1.Group(gatewayv1.GroupName)
		s.SupportedKinds = append(s.SupportedKinds, gatewayv1.RouteGroupKind{Group: &group, Kind: kind})
	}
	for _, b := range before {
		if b.Name == l.spec.Name {
			s.Conditions = b.Conditions
		}
	}
	one := listener{conditions: slices.Clone(l.conditions)}
	one.set(gatewayv1.ListenerConditionAccepted, true, gatewayv1.ListenerReasonAccepted, "")
	one.set(gatewayv1.ListenerConditionConflicted, false, gatewayv1.ListenerReasonNoConflicts, "")
	one.set(gatewayv1.ListenerConditionResolvedRefs, true, gatewayv1.ListenerReasonResolvedRefs, "")
	switch {
	case !l.usable:
		one.set(gatewayv1.ListenerConditionProgrammed, false, gatewayv1.ListenerReasonInvalid, "the listener is not valid")
	case !programmed:
		one.set(gatewayv1.ListenerConditionProgrammed, false, gatewayv1.ListenerReasonPending,
			"the Gateway is not programmed yet")
	default:
		one.set(gatewayv1.ListenerConditionProgrammed, true, gatewayv1.ListenerReasonProgrammed, "")
	}
	for i := range one.conditions {
		one.conditions[i].ObservedGeneration = gw.Generation
	}
	s.Conditions = merge(s.Conditions, one.conditions...)
	return s
}

// publishRoute writes the status of a route.
func (r *running) publishRoute(ctx context.Context, name routeKey) error {
	r.mu.Lock()
	obj := r.observed.routes[name]
	r.mu.Unlock()
	want := r.plan.routes[name]
	if obj == nil || len(want) == 0 && len(own(obj.status)) == 0 {
		return nil
	}
	return updateStatus(ctx, r, name.kind, name.Key, func(o *struct {
		Status gatewayv1.RouteStatus `json:"status"`
	}) any {
		return gatewayv1.RouteStatus{Parents: parentsOf(o.Status.Parents, want)}
	})
}

// parentsOf returns the parents of a route's status with those of this controller replaced. Those before keep their
// places, so that two controllers that order them differently do not write for ever.
func parentsOf(before, want []gatewayv1.RouteParentStatus) []gatewayv1.RouteParentStatus {
	next := []gatewayv1.RouteParentStatus{}
	want = slices.Clone(want)
	for _, b := range before {
		if b.ControllerName != ControllerName {
			next = append(next, b)
			continue
		}
		at := slices.IndexFunc(want, func(p gatewayv1.RouteParentStatus) bool { return sameParent(&b, &p) })
		if at >= 0 {
			p := want[at]
			p.Conditions = merge(b.Conditions, p.Conditions...)
			next, want = append(next, p), slices.Delete(want, at, at+1)
		}
	}
	return append(next, want...)
}

func sameParent(a, b *gatewayv1.RouteParentStatus) bool {
	return a.ControllerName == b.ControllerName && equality.Semantic.DeepEqual(a.ParentRef, b.ParentRef)
}

// own returns the statuses of this controller.
func own(all []gatewayv1.RouteParentStatus) (list []gatewayv1.RouteParentStatus) {
	for _, p := range all {
		if p.ControllerName == ControllerName {
			list = append(list, p)
		}
	}
	return list
}

// equalParents reports whether statuses differ in nothing but the times of conditions.
func equalParents(a, b []gatewayv1.RouteParentStatus) bool {
	return slices.EqualFunc(a, b, func(a, b gatewayv1.RouteParentStatus) bool {
		return sameParent(&a, &b) && slices.EqualFunc(a.Conditions, b.Conditions, func(c, d metav1.Condition) bool {
			c.LastTransitionTime = d.LastTransitionTime
			return c == d
		})
	})
}

// merge returns the conditions, with the times of those before that have the same status.
func merge(before []metav1.Condition, conditions ...metav1.Condition) (list []metav1.Condition) {
	for _, c := range conditions {
		if old := meta.FindStatusCondition(before, c.Type); old != nil {
			list = append(list, *old)
		}
		meta.SetStatusCondition(&list, c)
	}
	return list
}

// updateStatus writes the status that change returns for the current object, unless it is the same.
func updateStatus[T any](ctx context.Context, r *running, kind string, name follow.Key, change func(*T) any) error {
	ref := client.Ref{Resource: r.kinds[kind].Resource, Namespace: name.Namespace, Name: name.Name, Subresource: "status"}
	_, err := r.deps.Client.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
		typed, err := decode[T](cur)
		if err != nil {
			return nil, err
		}
		fields, err := decode[map[string]any](cur)
		if err != nil {
			return nil, err
		}
		status, err := json.Marshal(change(typed))
		if err != nil {
			return nil, err
		}
		before := (*fields)["status"]
		var after any
		if err := json.Unmarshal(status, &after); err != nil {
			return nil, err
		}
		if equality.Semantic.DeepEqual(before, after) {
			return cur, nil
		}
		(*fields)["status"] = after
		text, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		next := cur.DeepCopyObject().(client.Object)
		return next, json.Unmarshal(text, next)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// serviceName returns the name of a Gateway's Service: that of the Gateway and its class, at most 63 characters.
func serviceName(gw *gatewayv1.Gateway) string {
	name := gw.Name + "-" + string(gw.Spec.GatewayClassName)
	name = strings.ReplaceAll(name, ".", "-")
	if name[0] >= '0' && name[0] <= '9' { // names of Services begin with a letter
		name = "gateway-" + name
	}
	if len(name) <= 63 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:54] + "-" + hex.EncodeToString(sum[:4])
}

// publishService creates or updates the Service of a Gateway, and returns it; nil: a foreign Service has its name, or no
// listener is valid, and it needs none.
func (r *running) publishService(ctx context.Context, g *gatewayPlan) (*corev1.Service, error) {
	name := serviceName(g.object)
	set := func(svc *corev1.Service) error { g.fill(svc); return nil }
	svc, err := client.Get[*corev1.Service](ctx, r.deps.Client, g.object.Namespace, name)
	switch {
	case len(g.ports) == 0 && err == nil && metav1.IsControlledBy(svc, g.object):
		return svc, nil // it keeps its address until a listener is valid again
	case len(g.ports) == 0 && (err == nil || apierrors.IsNotFound(err)):
		return nil, nil
	case apierrors.IsNotFound(err):
		gateways := schema.GroupVersion{Group: gatewayv1.GroupName, Version: gatewayv1.GroupVersion.Version}
		svc = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: g.object.Namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(g.object, gateways.WithKind(kindGateway))}}}
		g.fill(svc)
		created, err := r.deps.Client.Create(ctx, svc)
		if err != nil {
			return nil, err
		}
		return created.(*corev1.Service), nil
	case err != nil:
		return nil, err
	case !metav1.IsControlledBy(svc, g.object):
		return nil, nil
	}
	return client.Update(ctx, r.deps.Client, svc, "", set)
}

// fill sets the fields of the Gateway's Service.
func (g *gatewayPlan) fill(svc *corev1.Service) {
	labels := map[string]string{gatewayv1.GatewayNameLabelKey: g.object.Name}
	infrastructure := value(g.object.Spec.Infrastructure)
	for k, v := range infrastructure.Labels {
		labels[string(k)] = string(v)
	}
	for k, v := range labels {
		metav1.SetMetaDataLabel(&svc.ObjectMeta, k, v)
	}
	for k, v := range infrastructure.Annotations {
		metav1.SetMetaDataAnnotation(&svc.ObjectMeta, string(k), string(v))
	}
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.AllocateLoadBalancerNodePorts = new(false)
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal // keeps the client's address
	svc.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	svc.Spec.LoadBalancerIP = ""
	for _, a := range g.object.Spec.Addresses {
		svc.Spec.LoadBalancerIP = a.Value
	}
	before := map[int32]corev1.ServicePort{}
	for _, p := range svc.Spec.Ports {
		before[p.Port] = p
	}
	svc.Spec.Ports = nil
	for _, number := range slices.Sorted(maps.Keys(g.ports)) {
		p := before[number]
		p.Name, p.Port, p.Protocol, p.TargetPort = portName(number), number, corev1.ProtocolTCP, intstr.FromInt32(number)
		svc.Spec.Ports = append(svc.Spec.Ports, p)
	}
}

func portName(number int32) string { return fmt.Sprintf("port-%d", number) }

// publishSlices writes the EndpointSlices of a Gateway's Service that name the servers of this node.
func (r *running) publishSlices(ctx context.Context, g *gatewayPlan, svc *corev1.Service) error {
	name := follow.KeyOf(g.object)
	for family, typ := range map[corev1.IPFamily]discoveryv1.AddressType{
		corev1.IPv4Protocol: discoveryv1.AddressTypeIPv4, corev1.IPv6Protocol: discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace,
				Name: svc.Name + "-" + strings.ToLower(string(family)) + "-" + r.cfg.Node,
				Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name, discoveryv1.LabelManagedBy: managedBy,
					gatewayv1.GatewayNameLabelKey: name.Name},
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(svc, corev1.SchemeGroupVersion.WithKind("Service"))}},
			AddressType: typ,
		}
		for k, s := range r.servers {
			if k.gateway != name || k.address.Is4() != (family == corev1.IPv4Protocol) {
				continue
			}
			slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{k.address.String()}, NodeName: &r.cfg.Node,
				Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}}}
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(portName(k.port)), Port: new(s.number),
				Protocol: new(corev1.ProtocolTCP)})
		}
		slices.SortFunc(slice.Ports, func(a, b discoveryv1.EndpointPort) int { return cmp.Compare(*a.Name, *b.Name) })
		_, err := client.Update(ctx, r.deps.Client, slice, "", func(cur *discoveryv1.EndpointSlice) error {
			cur.Labels, cur.OwnerReferences = slice.Labels, slice.OwnerReferences
			cur.Endpoints, cur.Ports = slice.Endpoints, slice.Ports
			return nil
		})
		if apierrors.IsNotFound(err) && len(slice.Ports) > 0 {
			_, err = r.deps.Client.Create(ctx, slice)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// gatewayOf returns the Gateway that controls a Service.
func gatewayOf(svc *corev1.Service) (gw follow.Key, ok bool) {
	if svc == nil {
		return gw, false
	}
	owner := metav1.GetControllerOf(svc)
	if owner == nil || owner.Kind != kindGateway || !strings.HasPrefix(owner.APIVersion, gatewayv1.GroupName+"/") {
		return gw, false
	}
	return follow.Key{Namespace: svc.Namespace, Name: owner.Name}, true
}

// release gives up a Gateway whose class does not exist anymore, or belongs to another controller.
func (r *running) release(ctx context.Context, gw *gatewayv1.Gateway) error {
	if len(r.servicesOf(gw)) == 0 {
		return nil // it never was this controller's, or it has been released
	}
	text := fmt.Sprintf("no GatewayClass %q is served", gw.Spec.GatewayClassName)
	err := updateStatus(ctx, r, kindGateway, follow.KeyOf(gw), func(gw *gatewayv1.Gateway) any {
		return gatewayv1.GatewayStatus{Conditions: merge(gw.Status.Conditions,
			condition(gw, gatewayv1.GatewayConditionAccepted, false, gatewayv1.GatewayReasonPending, text),
			condition(gw, gatewayv1.GatewayConditionProgrammed, false, gatewayv1.GatewayReasonPending, text))}
	})
	if err != nil {
		return err
	}
	return r.deleteServices(ctx, gw, "")
}

// servicesOf returns the Services that a Gateway controls.
func (r *running) servicesOf(gw *gatewayv1.Gateway) (list []*corev1.Service) {
	for name, owner := range r.owned {
		if owner != follow.KeyOf(gw) {
			continue
		}
		if svc, _ := r.services.Get(name); svc != nil && metav1.IsControlledBy(svc, gw) {
			list = append(list, svc)
		}
	}
	return list
}

// deleteServices deletes the Services of a Gateway except the current one: those of classes that it had before.
func (r *running) deleteServices(ctx context.Context, gw *gatewayv1.Gateway, current string) error {
	for _, svc := range r.servicesOf(gw) {
		if svc.Name == current {
			continue
		}
		_, err := r.deps.Client.Delete(ctx, client.RefOf(svc), metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(svc.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// addressesOf returns the addresses of a Gateway: those of its Service, without those of nodes that do not serve it.
func addressesOf(svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, nodes map[string]*corev1.Node) (
	list []gatewayv1.GatewayStatusAddress) {
	serves := map[string]bool{}
	for _, slice := range endpoints {
		for _, e := range slice.Endpoints {
			serves[value(e.NodeName)] = true
		}
	}
	var others []string
	for name, node := range nodes {
		if !serves[name] {
			others = append(others, nodeAddresses(node)...)
		}
	}
	for _, in := range value(svc).Status.LoadBalancer.Ingress {
		if _, err := netip.ParseAddr(in.IP); err == nil && !slices.Contains(others, in.IP) {
			list = append(list, gatewayv1.GatewayStatusAddress{Type: new(gatewayv1.IPAddressType), Value: in.IP})
		}
	}
	return list
}
