package ingress

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"monopod/agent/network/ingress/proxy"
	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

const (
	// ClassName is the name of the IngressClass that the controller always creates.
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
	canaries []route.Rule[*proxy.Destination] // of Ingresses that get a part of other rules' requests
	spare    []route.Rule[*proxy.Destination] // redirects, for requests that no other rule matches
	certs    []certificate
	problems map[follow.Key][]problem
}

// planOf returns the plan for Ingresses. If two conflict, the older one takes precedence. If noHTTPS, the reason why
// HTTPS is not served, is not empty, certificates are reported as problems.
func planOf(served []*networkingv1.Ingress, defaults route.Options, noHTTPS string) *plan {
	p := &plan{problems: map[follow.Key][]problem{}}
	ordered := slices.SortedFunc(slices.Values(served), func(a, b *networkingv1.Ingress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	for _, ing := range ordered {
		p.add(ing, defaults, noHTTPS)
	}
	p.compile()
	p.attachCanaries()
	p.addSpare()
	table, repeated := route.New(p.rules)
	for _, i := range repeated {
		r := p.rules[i]
		first, _ := table.Find(r.Host, r.Path)
		if r.Pattern != nil { // the text of an expression need not match itself
			at := slices.IndexFunc(p.rules, func(o route.Rule[*proxy.Destination]) bool {
				return o.Host == r.Host && o.Path == r.Path && o.Pattern.String() == r.Pattern.String()
			})
			first = p.rules[at].To
		}
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

func (p *plan) add(ing *networkingv1.Ingress, defaults route.Options, noHTTPS string) {
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
		rule := route.Rule[*proxy.Destination]{Host: host, Path: path, Exact: exact,
			To: &proxy.Destination{Target: target, Ingress: owner, Path: path, Options: opts}}
		if opts.Canary.On {
			p.canaries = append(p.canaries, rule)
			return
		}
		p.rules = append(p.rules, rule)
		p.redirect(rule)
		if host != "" {
			for _, alias := range opts.Aliases {
				rule.Host = alias
				p.rules = append(p.rules, rule)
			}
		}
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
	if len(ing.Spec.TLS) > 0 && noHTTPS != "" {
		p.problem(owner, "NoHTTPS", "HTTPS is not served: %s", noHTTPS)
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

// redirect adds the redirects of a rule that its paths need not match: from the root, and from the host with or
// without www.
func (p *plan) redirect(rule route.Rule[*proxy.Destination]) {
	spare := func(host string, exact bool, set func(*route.Options)) {
		to := *rule.To
		to.Path, to.Options = "/", route.Options{Redirect: to.Redirect, Forced: to.Forced}
		set(&to.Options)
		p.spare = append(p.spare, route.Rule[*proxy.Destination]{Host: host, Path: "/", Exact: exact, To: &to})
	}
	if root := rule.To.AppRoot; root != "" {
		spare(rule.Host, true, func(o *route.Options) { o.AppRoot = root })
	}
	if rule.To.WWW && rule.Host != "" && !strings.HasPrefix(rule.Host, "*") {
		other, www := strings.CutPrefix(rule.Host, "www.")
		if !www {
			other = "www." + rule.Host
		}
		spare(other, false, func(o *route.Options) {
			o.Moved = route.Moved{Permanent: "$scheme://" + rule.Host + "$request_uri", PermanentCode: http.StatusPermanentRedirect}
		})
	}
}

// addSpare adds the redirects for requests that no other rule of the host matches.
func (p *plan) addSpare() {
	hosts, patterns := map[string]bool{}, map[string]bool{}
	for i := range p.rules {
		hosts[p.rules[i].Host] = true
		patterns[p.rules[i].Host] = patterns[p.rules[i].Host] || p.rules[i].Pattern != nil
	}
	for _, rule := range p.spare {
		if rule.Exact { // from the root of a host with rules
			if slices.ContainsFunc(p.rules, func(r route.Rule[*proxy.Destination]) bool {
				return r.Host == rule.Host && matchesRoot(r)
			}) {
				continue
			}
			if patterns[rule.Host] {
				rule.Pattern = route.PlainPath(rule.Path, true)
			}
		} else if hosts[rule.Host] {
			continue
		}
		p.rules = append(p.rules, rule)
		hosts[rule.Host] = true
	}
}

func matchesRoot(r route.Rule[*proxy.Destination]) bool {
	if r.Pattern != nil {
		return r.Pattern.MatchString("/")
	}
	return r.Path != "" && strings.TrimRight(r.Path, "/") == ""
}

// compile compiles the paths of hosts for which an Ingress uses regular expressions. As with ingress-nginx, those of
// the other Ingresses then ignore case, too.
func (p *plan) compile() {
	hosts := map[string]bool{}
	for i := range p.rules {
		if p.rules[i].To.Regex {
			hosts[p.rules[i].Host] = true
		}
	}
	p.rules = slices.DeleteFunc(p.rules, func(r route.Rule[*proxy.Destination]) bool {
		return hosts[r.Host] && r.Path != "" && r.To.Regex && r.To.Pattern == nil && !p.compilePath(r)
	})
	for i := range p.rules {
		r := &p.rules[i]
		if !hosts[r.Host] || r.Path == "" {
			continue
		}
		if r.Pattern = r.To.Pattern; r.Pattern == nil {
			r.Pattern = route.PlainPath(r.Path, r.Exact)
			continue
		}
		r.To.Path = "" // of cookies: an expression is not a path
	}
}

func (p *plan) compilePath(r route.Rule[*proxy.Destination]) bool {
	re, err := route.CompilePath(r.Path)
	if err != nil {
		p.problem(r.To.Ingress, "InvalidPath", "%s is not a regular expression (RE2) and is not served: %s",
			at(r.Host, r.Path), err)
		return false
	}
	r.To.Pattern = re
	return true
}

// attachCanaries connects canaries to the rules for the same host and path. Their other annotations do not count, as
// with ingress-nginx.
func (p *plan) attachCanaries() {
	for i := range p.canaries {
		c, found := &p.canaries[i], false
		for j := range p.rules {
			r := &p.rules[j]
			if r.Host != c.Host || r.Path != c.Path || r.Exact != c.Exact || r.To.Ingress.Namespace != c.To.Ingress.Namespace {
				continue
			}
			found = true
			if first := r.To.Canary; first != nil {
				if first.To.Ingress != c.To.Ingress {
					p.problem(c.To.Ingress, "PathTaken", "%s already has the canary %q", at(c.Host, c.Path), first.To.Ingress)
				}
				break
			}
			r.To.Canary = &proxy.Canary{Canary: c.To.Options.Canary, To: &proxy.Destination{Target: c.To.Target,
				Ingress: c.To.Ingress, Path: r.To.Path, Pattern: r.To.Pattern, Options: r.To.Options}}
			break
		}
		if !found {
			p.problem(c.To.Ingress, "NoRule", "no other Ingress of the namespace has %s, whose canary this one is",
				at(c.Host, c.Path))
		}
	}
}

// classes are the IngressClasses by name.
type classes map[string]*networkingv1.IngressClass

// serve reports whether an Ingress is for this controller: its class, or the deprecated annotation, names a class
// with this controller, or one of the names that count while no class has them.
func (c classes) serve(ing *networkingv1.Ingress, names []string) bool {
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
	return slices.Contains(names, name)
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
