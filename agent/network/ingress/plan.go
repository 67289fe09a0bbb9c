package ingress

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"monopod/agent/network/ingress/proxy"
	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

const (
	// ClassName is the name of the IngressClass that the controller creates.
	ClassName = "monopod"
	// ControllerName is the value of spec.controller in the IngressClasses that this controller serves.
	ControllerName = "monopod.io/ingress"
	// classAnnotation is the deprecated annotation that spec.ingressClassName replaces.
	classAnnotation = "kubernetes.io/ingress.class"
)

// problem is an error in an Ingress, as reason and message of its Event.
type problem struct{ reason, message string }

// certificate is an entry of an Ingress's spec.tls: hosts, and the Secret with their certificate.
type certificate struct {
	hosts  []string
	secret string // empty: the default certificate
	owner  follow.Key
}

// plan contains the rules and certificates of all served Ingresses, and their problems.
type plan struct {
	rules    []route.Rule[*proxy.Destination]
	certs    []certificate
	problems map[follow.Key][]problem
}

// planOf returns the plan for Ingresses. If two conflict, the older one takes precedence. Without https, certificates
// are reported as problems.
func planOf(served []*networkingv1.Ingress, defaults route.Options, https bool) *plan {
	p := &plan{problems: map[follow.Key][]problem{}}
	ordered := slices.SortedFunc(slices.Values(served), func(a, b *networkingv1.Ingress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	for _, ing := range ordered {
		p.add(ing, defaults, https)
	}
	table, repeated := route.New(p.rules)
	for _, i := range repeated {
		r := p.rules[i]
		first, _ := table.Find(r.Host, r.Path)
		if first.Ingress != r.To.Ingress || first.Target != r.To.Target {
			p.problem(r.To.Ingress, "PathTaken", "Ingress %q already serves %s, which this Ingress repeats", first.Ingress,
				at(r.Host, r.Path))
		}
	}
	return p
}

func at(host, path string) string { return "path " + path + " of " + cmp.Or(host, "every host") }

func (p *plan) problem(owner follow.Key, reason, format string, args ...any) {
	p.problems[owner] = append(p.problems[owner], problem{reason, fmt.Sprintf(format, args...)})
}

func (p *plan) add(ing *networkingv1.Ingress, defaults route.Options, https bool) {
	owner := follow.KeyOf(ing)
	opts, bad := route.ParseAnnotations(ing.Annotations, defaults)
	for _, text := range bad {
		p.problem(owner, "InvalidAnnotation", "%s", text)
	}
	addRule := func(host, path string, exact bool, to *networkingv1.IngressBackend) {
		if to.Service == nil {
			p.problem(owner, "UnsupportedBackend", "backends that are not Services are not supported; %s is not served",
				at(host, cmp.Or(path, "/")))
			return
		}
		target := proxy.Target{
			Service: follow.Key{Namespace: owner.Namespace, Name: to.Service.Name}, Port: to.Service.Port,
			Override: opts.Protocol,
		}
		p.rules = append(p.rules, route.Rule[*proxy.Destination]{Host: host, Path: path, Exact: exact,
			To: &proxy.Destination{Target: target, Ingress: owner, Options: opts}})
	}
	var hosts []string
	for i := range ing.Spec.Rules {
		rule := &ing.Spec.Rules[i]
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
		if rule.HTTP == nil { // all requests for the host go to the default backend
			if to := ing.Spec.DefaultBackend; to != nil {
				addRule(rule.Host, "/", false, to)
			}
			continue
		}
		for j := range rule.HTTP.Paths {
			path := &rule.HTTP.Paths[j]
			exact := path.PathType != nil && *path.PathType == networkingv1.PathTypeExact
			addRule(rule.Host, cmp.Or(path.Path, "/"), exact, &path.Backend)
		}
		if to := ing.Spec.DefaultBackend; to != nil && rule.Host != "" {
			addRule(rule.Host, "", false, to)
		}
	}
	if to := ing.Spec.DefaultBackend; to != nil {
		addRule("", "", false, to)
	}
	if len(ing.Spec.TLS) > 0 && !https {
		p.problem(owner, "NoHTTPS", "HTTPS is not served: monopod runs without --ingress-https")
		return
	}
	for _, t := range ing.Spec.TLS {
		c := certificate{hosts: t.Hosts, secret: t.SecretName, owner: owner}
		if len(c.hosts) == 0 { // the entry applies to the hosts of the rules
			c.hosts = hosts
		}
		p.certs = append(p.certs, c)
	}
}

// classes are the IngressClasses by name.
type classes map[string]*networkingv1.IngressClass

// serve reports whether an Ingress is for this controller: its class, or the deprecated annotation, names a class
// with this controller. If the class that the controller creates was deleted, its name still counts.
func (c classes) serve(ing *networkingv1.Ingress) bool {
	name, ok := ing.Annotations[classAnnotation]
	if ing.Spec.IngressClassName != nil {
		name, ok = *ing.Spec.IngressClassName, true
	}
	if !ok {
		return false
	}
	if class := c[name]; class != nil {
		return class.Spec.Controller == ControllerName
	}
	return name == ClassName
}

// nodeAddresses returns the addresses of a Node by which other machines reach it.
func nodeAddresses(node *corev1.Node) []string {
	var list []string
	if node == nil {
		return nil
	}
	for _, typ := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == typ && !slices.Contains(list, a.Address) {
				list = append(list, a.Address)
			}
		}
	}
	return list
}
