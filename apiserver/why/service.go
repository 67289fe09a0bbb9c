package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// traffic explains objects that forward connections to pods.
type traffic struct{ explanation }

// service explains whether a Service has ready endpoints, and why not.
func (f traffic) service(s *corev1.Service) Answer {
	if a := f.terminating(); a != nil {
		return *a
	}
	ready := f.ready(s)
	events := f.EventLines(f.Warnings(s))
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return answer("", events, "Service %s is only a name for %s.", s.Name, s.Spec.ExternalName)
	}
	if s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes" && ready == 0 {
		return answer(
			"Start monopod serve with an address that pods can reach: --listen=0.0.0.0:6443, or one address of the machine.",
			events, "Service kubernetes has no endpoints: "+
				"the API server listens on a loopback address only, which pods cannot reach.")
	}
	if len(s.Spec.Selector) == 0 && ready == 0 {
		return answer("Add a selector, or write an EndpointSlice with the label kubernetes.io/service-name="+s.Name+".",
			events, "Service %s has no endpoints: it has no selector, and nobody has written an EndpointSlice for it.", s.Name)
	}
	if a := f.noPods(s); a != nil && ready == 0 {
		return *a
	}
	if a := f.wrongPort(s); a != nil {
		return *a
	}
	if a := f.notListening(s, ready); a != nil {
		return *a
	}
	if ready == 0 {
		if a := f.worstPod("Service "+s.Name+" has no endpoints that are ready", f.Selected(s)); a != nil {
			return *a
		}
		return answer("Wait a moment; if it stays like this, check the endpointslice controller: /healthz?verbose", events,
			"Service %s has no endpoints yet.", s.Name)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		return answer("Read the event; --load-balancer-pool gives addresses to Services.", events,
			"Service %s has endpoints, but no address of a load balancer yet.", s.Name)
	}
	by, limits := Closed(facts.Every[*networkingv1.NetworkPolicy](f.Facts), f.Selected(s))
	if len(by) > 0 {
		return answer("Add an ingress rule for those that may use it to a NetworkPolicy, or delete the policy.",
			append(limits, events...), "Service %s has %s ready, but no pod may reach them: %s.", s.Name,
			words.Count(ready, "endpoint"), words.List("NetworkPolicy", by))
	}
	events = append(limits, events...)
	return answer("", events, "Service %s has %s ready.", s.Name, words.Count(ready, "endpoint"))
}

// ready returns the number of ready endpoints of a Service.
func (f traffic) ready(s *corev1.Service) (n int) {
	for _, slice := range facts.Every[*discoveryv1.EndpointSlice](f.Facts) {
		if slice.Labels[discoveryv1.LabelServiceName] != s.Name || slice.Namespace != s.Namespace {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n += len(e.Addresses)
			}
		}
	}
	return n
}

// noPods explains a selector that selects no pods, with the pods that match part of it.
func (f traffic) noPods(s *corev1.Service) *Answer {
	if len(s.Spec.Selector) == 0 || len(f.Selected(s)) > 0 {
		return nil
	}
	var near []string
	for _, p := range f.Pods {
		if p.Namespace != s.Namespace {
			continue
		}
		for key, value := range s.Spec.Selector {
			if has, ok := p.Labels[key]; ok && (has != value || len(s.Spec.Selector) > 1) {
				near = append(near, fmt.Sprintf("pod %s has the labels %s", p.Name, labels.Set(p.Labels)))
				break
			}
		}
	}
	slices.Sort(near)
	return found("Make spec.selector equal to labels of the pods, or create the pods.",
		near[:min(len(near), facts.MaxEvents)],
		"Service %s has no endpoints: no pod in namespace %s has the labels %s.", s.Name, s.Namespace,
		labels.Set(s.Spec.Selector))
}

// wrongPort explains a named target port that no container of the pods has. Numbers are not checked, because a program
// may listen on a port that its container does not declare.
func (f traffic) wrongPort(s *corev1.Service) *Answer {
	for _, port := range s.Spec.Ports {
		if port.TargetPort.Type != intstr.String {
			continue
		}
		var has []string
		match := false
		for _, p := range f.Selected(s) {
			for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
				for _, cp := range c.Ports {
					match = match || cp.Name == port.TargetPort.StrVal
					has = append(has,
						fmt.Sprintf("container %s of pod %s has the port %q (%d)", c.Name, p.Name, cp.Name, cp.ContainerPort))
				}
			}
		}
		if !match && len(f.Selected(s)) > 0 {
			return found("Give a container port this name, or correct targetPort.", has[:min(len(has), facts.MaxEvents)],
				"Service %s leads nowhere on port %d: no container has a port with the name %q.", s.Name, port.Port,
				port.TargetPort.StrVal)
		}
	}
	return nil
}

// notListening explains a Service on whose target port no ready pod listens. It returns nil if a pod does, or if that
// is unknown.
func (f traffic) notListening(s *corev1.Service, ready int) *Answer {
	for _, port := range s.Spec.Ports {
		var declared []string
		target, listens := int32(0), false
		for _, p := range f.Selected(s) {
			n := facts.TargetPort(p, port)
			if c := facts.PodCondition(p, corev1.PodReady); n == 0 || c == nil || c.Status != corev1.ConditionTrue {
				continue
			}
			if slices.Contains(f.Closed, facts.PortKey(p, n)) {
				target = n
			} else {
				listens = listens || target == 0 // only the first pods are tried
			}
			for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
				for _, cp := range c.Ports {
					declared = append(declared,
						fmt.Sprintf("container %s of pod %s declares the port %d", c.Name, p.Name, cp.ContainerPort))
				}
			}
		}
		if ready > 0 && target != 0 && !listens {
			return found("Correct targetPort, or let the program listen on this port, on all addresses (0.0.0.0) "+
				"and not only on localhost.", declared[:min(len(declared), facts.MaxEvents)],
				"Service %s has %s ready, but nothing listens on targetPort %d of its pods (connection refused), "+
					"where its port %d leads.", s.Name, words.Count(ready, "endpoint"), target, port.Port)
		}
	}
	return nil
}

// ingressController is the spec.controller of IngressClasses that monopod serves.
const ingressController = "monopod.io/ingress"

// serveIngress returns what to do so that monopod serves an Ingress.
func serveIngress(classes []*networkingv1.IngressClass) string {
	for _, c := range classes {
		if c.Spec.Controller == ingressController {
			return fmt.Sprintf("Set spec.ingressClassName: %s, and monopod serves it", c.Name)
		}
	}
	return "Start monopod with --ingress, and set spec.ingressClassName: monopod"
}

// ingress explains an Ingress by its class and its backends.
func (f traffic) ingress(i *networkingv1.Ingress) Answer {
	if a := f.terminating(); a != nil {
		return *a
	}
	events := f.EventLines(f.Warnings(i))
	classes := facts.Every[*networkingv1.IngressClass](f.Facts)
	if name := i.Spec.IngressClassName; name != nil && len(i.Status.LoadBalancer.Ingress) == 0 &&
		facts.Related[*networkingv1.IngressClass](f.Facts, "", *name) == nil {
		var have []string
		for _, c := range classes {
			have = append(have, "there is the IngressClass "+c.Name)
		}
		return answer(serveIngress(classes)+"; or install the controller of the class.", append(have, events...),
			"Ingress %s is not served: its IngressClass %q does not exist.", i.Name, *name)
	}
	if i.Spec.IngressClassName == nil && i.Annotations["kubernetes.io/ingress.class"] == "" &&
		!slices.ContainsFunc(classes, func(c *networkingv1.IngressClass) bool {
			return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
		}) {
		return answer("Set spec.ingressClassName; monopod serves Ingresses with --ingress.", events,
			"Ingress %s is not served: it names no class, and no IngressClass is the default.", i.Name)
	}
	for _, b := range facts.Backends(i) {
		if a := f.backend(i, b); a != nil {
			return *a
		}
	}
	if len(events) > 0 {
		return answer("Fix what the event reports.", events, "Ingress %s has a problem: %s.", i.Name,
			words.Clip(f.Warnings(i)[len(f.Warnings(i))-1].Message))
	}
	if len(i.Status.LoadBalancer.Ingress) == 0 {
		if name := i.Spec.IngressClassName; name != nil {
			class := facts.Related[*networkingv1.IngressClass](f.Facts, "", *name)
			if class.Spec.Controller != ingressController {
				return answer(serveIngress(classes)+"; or start that controller.", events,
					"Ingress %s is not served by monopod: its IngressClass %s belongs to the controller %s, "+
						"which has not given it an address.", i.Name, *name, class.Spec.Controller)
			}
		}
		return answer("Check that an ingress controller for the class runs; monopod's own needs --ingress.", events,
			"Ingress %s has backends, but no controller has given it an address.", i.Name)
	}
	var at []string
	for _, a := range i.Status.LoadBalancer.Ingress {
		at = append(at, a.IP+a.Hostname)
	}
	return answer("", nil, "Ingress %s is served at %s.", i.Name, strings.Join(at, ", "))
}

// backend explains a backend to which no connection is possible. It returns nil if one is.
func (f traffic) backend(i *networkingv1.Ingress, b *networkingv1.IngressServiceBackend) *Answer {
	s := facts.Related[*corev1.Service](f.Facts, i.Namespace, b.Name)
	if s == nil {
		return found("Create the Service, or correct the backend.", nil,
			"Ingress %s answers 503: its Service %s does not exist.", i.Name, b.Name)
	}
	if !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return b.Port.Name != "" && p.Name == b.Port.Name || b.Port.Name == "" && p.Port == b.Port.Number
	}) {
		port := b.Port.Name
		if port == "" {
			port = fmt.Sprint(b.Port.Number)
		}
		return found("Correct the port of the backend, or add it to the Service.", nil,
			"Ingress %s answers 503: its Service %s has no port %s.", i.Name, b.Name, port)
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName && f.ready(s) == 0 {
		a := f.about(s).explain()
		a.Sentence = fmt.Sprintf("Ingress %s answers 503: %s", i.Name, a.Sentence)
		return &a
	}
	return nil
}
