package ingress

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/agent/network/ingress/annotation"
	"monopod/apiserver/follow"
)

// ing reads an Ingress; age is how many seconds after the others it was created.
func ing(t testing.TB, name string, age int, text string) *networkingv1.Ingress {
	t.Helper()
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.Unix(int64(1000+age), 0)}}
	if err := yaml.UnmarshalStrict([]byte(text), i); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	return i
}

func TestPlan(t *testing.T) {
	t.Parallel()
	const web = `{service: {name: web, port: {number: 80}}}`
	const api = `{service: {name: api, port: {name: http}}}`
	host := func(host, path, typ, to string) string {
		return fmt.Sprintf(`{host: %q, http: {paths: [{path: %q, pathType: %s, backend: %s}]}}`, host, path, typ, to)
	}
	for name, c := range map[string]struct {
		ingresses []string
		rules     string // "host path target owner", sorted by the table's order
		problems  string
	}{
		"types of paths": {
			[]string{`spec: {rules: [` + host("a.com", "/e", "Exact", web) + `, ` + host("a.com", "/p", "Prefix", api) + `, ` + host("*.b.com", "/i", "ImplementationSpecific", web) + `]}`},
			"a.com =/e web:80 0, a.com /p api:http 0, *.b.com /i web:80 0", "",
		},
		"no path is every path": {[]string{`spec: {rules: [` + host("", "", "ImplementationSpecific", web) + `]}`}, " / web:80 0", ""},
		"default backend":       {[]string{`spec: {defaultBackend: ` + web + `}`}, "  web:80 0", ""},
		"default backend with rules": {
			[]string{`spec: {defaultBackend: ` + web + `, rules: [` + host("a.com", "/p", "Prefix", api) + `]}`},
			"a.com /p api:http 0, a.com  web:80 0,   web:80 0", "",
		},
		"a rule without paths is the default backend's": {
			[]string{`spec: {defaultBackend: ` + web + `, rules: [{host: a.com}]}`}, "a.com / web:80 0,   web:80 0", "",
		},
		"a rule without paths and default backend": {[]string{`spec: {rules: [{host: a.com}]}`}, "", ""},
		"two for the same path": {
			[]string{`spec: {rules: [` + host("a.com", "/p", "Prefix", web) + `]}`, `spec: {rules: [` + host("a.com", "/p/", "Prefix", api) + `]}`},
			"a.com /p web:80 0, a.com /p/ api:http 1", `1 PathTaken Ingress "default/0" already serves path /p/ of a.com, which this Ingress repeats`,
		},
		"the same twice in one": {
			[]string{`spec: {rules: [` + host("a.com", "/p", "Prefix", web) + `, ` + host("a.com", "/p", "Prefix", web) + `]}`},
			"a.com /p web:80 0, a.com /p web:80 0", "",
		},
		"a backend that is no Service": {
			[]string{`spec: {rules: [` + host("a.com", "/p", "Prefix", `{resource: {kind: Bucket, name: b}}`) + `]}`},
			"", "0 UnsupportedBackend backends that are not Services are not supported; path /p of a.com is not served",
		},
		"a default backend that is no Service": {
			[]string{`spec: {defaultBackend: {resource: {kind: Bucket, name: b}}}`},
			"", "0 UnsupportedBackend backends that are not Services are not supported; path / of every host is not served",
		},
		"annotations": {
			[]string{`{metadata: {annotations: {monopod.io/ssl-redirect: maybe, nginx.ingress.kubernetes.io/rewrite-target: /, example.com/other: x}}, spec: {defaultBackend: ` + web + `}}`},
			"  web:80 0", "0 InvalidAnnotation annotation monopod.io/ssl-redirect must be true or false, got \"maybe\"\n" +
				"0 InvalidAnnotation annotation nginx.ingress.kubernetes.io/rewrite-target has no effect",
		},
		"a protocol by annotation": {
			[]string{`{metadata: {annotations: {nginx.ingress.kubernetes.io/backend-protocol: grpc}}, spec: {defaultBackend: ` + web + `}}`}, "  web:80 GRPC 0", "",
		},
	} {
		var list []*networkingv1.Ingress
		for i, text := range c.ingresses {
			list = slices.Insert(list, 0, ing(t, fmt.Sprint(i), i, text)) // the order is by age
		}
		p := planOf(list, annotation.Options{}, true)
		var rules, problems []string
		for _, r := range p.rules {
			path := r.Path
			if r.Exact {
				path = "=" + path
			}
			to := r.To.service.Name + ":" + strings.Trim(portText(r.To.port), `"`)
			if r.To.override != "" {
				to += " " + r.To.override
			}
			rules = append(rules, strings.Join([]string{r.Host, path, to, r.To.owner.Name}, " "))
		}
		for i := range c.ingresses {
			for _, one := range p.problems[follow.KeyOf(list[len(list)-1-i])] {
				problems = append(problems, fmt.Sprint(i, " ", one.reason, " ", one.message))
			}
		}
		if diff := cmp.Diff(c.rules, strings.Join(rules, ", ")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(c.problems, strings.Join(problems, "\n")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCertificatesOfAPlan(t *testing.T) {
	t.Parallel()
	const text = `spec: {defaultBackend: {service: {name: web, port: {number: 80}}}, tls: [{secretName: s, hosts: [a.com]}, {secretName: all}, {hosts: [c.com]}], rules: [{host: a.com}, {host: b.com}]}`
	p := planOf([]*networkingv1.Ingress{ing(t, "i", 0, text)}, annotation.Options{}, true)
	var got []string
	for _, c := range p.certs {
		got = append(got, c.secret+":"+strings.Join(c.hosts, ","))
	}
	if want := "s:a.com all:a.com,b.com :c.com"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	p = planOf([]*networkingv1.Ingress{ing(t, "i", 0, text)}, annotation.Options{}, false)
	if list := p.problems[follow.Key{Namespace: "default", Name: "i"}]; len(p.certs) > 0 || len(list) != 1 || list[0].reason != "NoHTTPS" {
		t.Errorf("without HTTPS: %v %v", p.certs, list)
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	class := func(controller string) *networkingv1.IngressClass {
		return &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: controller}}
	}
	known := classes{"monopod": class(ControllerName), "second": class(ControllerName), "nginx": class("k8s.io/ingress-nginx")}
	named := func(name string) string { return "spec: {ingressClassName: " + name + "}" }
	annotated := func(name string) string {
		return "metadata: {annotations: {kubernetes.io/ingress.class: " + name + "}}"
	}
	for text, want := range map[string]bool{
		named("monopod"): true, named("second"): true, named("nginx"): false, named("gone"): false, "{}": false,
		annotated("monopod"): true, annotated("second"): true, annotated("nginx"): false, annotated(`""`): false,
		annotated("monopod") + "\n" + named("nginx"): false,
	} {
		if got := known.serve(ing(t, "i", 0, text)); got != want {
			t.Errorf("%s: served %v", text, got)
		}
	}
	if !(classes{}).serve(ing(t, "i", 0, named(ClassName))) || (classes{ClassName: class("other.io/x")}).serve(ing(t, "i", 0, named(ClassName))) {
		t.Error("the name of our class counts where there is no class, and only there")
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	service := func(typ corev1.ServiceType, ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: typ, Ports: ports, ExternalName: "db.example.com"}}
	}
	slice := func(port string, number int32, endpoints ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}}}
		for _, text := range endpoints {
			address, state, _ := strings.Cut(text, " ")
			e := discoveryv1.Endpoint{Addresses: []string{address}}
			if state != "" {
				e.Conditions = discoveryv1.EndpointConditions{Ready: new(state == "ready"), Serving: new(state != "starting"), Terminating: new(state == "ending")}
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		return s
	}
	web := corev1.ServicePort{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}
	grpc := corev1.ServicePort{Name: "grpc", Port: 90, AppProtocol: new("kubernetes.io/h2c")}
	tls := corev1.ServicePort{Name: "tls", Port: 443, AppProtocol: new("https")}
	udp := corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}
	number := func(n int32) target { return target{port: networkingv1.ServiceBackendPort{Number: n}} }
	named := func(name string) target { return target{port: networkingv1.ServiceBackendPort{Name: name}} }
	over := func(t target, protocol string) target { t.override = protocol; return t }
	for name, c := range map[string]struct {
		t    target
		svc  *corev1.Service
		eps  []*discoveryv1.EndpointSlice
		want servers
	}{
		"no Service":      {number(80), nil, nil, servers{problem: `Service "" does not exist`}},
		"no such number":  {number(81), service("", web), nil, servers{problem: `Service "" has no port 81`}},
		"no such name":    {named("x"), service("", web), nil, servers{problem: `Service "" has no port "x"`}},
		"UDP":             {number(53), service("", udp), nil, servers{problem: `port 53 of Service "" is not a TCP port`}},
		"no endpoints":    {number(80), service("", web), nil, servers{}},
		"by number":       {number(80), service("", web), []*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.2", "10.0.0.1 ready")}, servers{addresses: []string{"10.0.0.1:8080", "10.0.0.2:8080"}}},
		"by name":         {named("http"), service("", grpc, web), []*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1")}, servers{addresses: []string{"10.0.0.1:8080"}}},
		"another port":    {named("http"), service("", grpc, web), []*discoveryv1.EndpointSlice{slice("grpc", 9090, "10.0.0.1")}, servers{}},
		"two slices":      {number(80), service("", web), []*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1"), slice("http", 8081, "10.0.0.2", "10.0.0.2")}, servers{addresses: []string{"10.0.0.1:8080", "10.0.0.2:8081"}}},
		"not ready":       {number(80), service("", web), []*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1 starting", "10.0.0.2 ready")}, servers{addresses: []string{"10.0.0.2:8080"}}},
		"ending":          {number(80), service("", web), []*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1 ending", "10.0.0.2 ready")}, servers{addresses: []string{"10.0.0.2:8080"}}},
		"only ending":     {number(80), service("", web), []*discoveryv1.EndpointSlice{slice("http", 8080, "10.0.0.1 ending", "10.0.0.2 starting")}, servers{addresses: []string{"10.0.0.1:8080"}}},
		"h2c":             {number(90), service("", grpc), []*discoveryv1.EndpointSlice{slice("grpc", 9090, "fd00::1")}, servers{addresses: []string{"[fd00::1]:9090"}, protocol: clear2}},
		"https":           {named("tls"), service("", tls), nil, servers{protocol: secure}},
		"https, not said": {over(number(80), "HTTPS"), service("", web), nil, servers{protocol: secure}},
		"http after all":  {over(named("tls"), "HTTP"), service("", tls), nil, servers{protocol: plain}},
		"GRPC":            {over(number(80), "GRPC"), service("", web), nil, servers{protocol: clear2}},
		"external":        {number(80), service("ExternalName"), nil, servers{addresses: []string{"db.example.com:80"}, external: true}},
		"external name":   {named("tls"), service("ExternalName", tls), nil, servers{addresses: []string{"db.example.com:443"}, external: true, protocol: secure}},
		"external, none":  {named("x"), service("ExternalName"), nil, servers{problem: `Service "" has no port "x"`}},
	} {
		if diff := cmp.Diff(c.want, resolve(c.t, c.svc, c.eps), cmp.AllowUnexported(servers{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	b := newBackend(target{})
	now := time.Unix(1000, 0)
	if e, c := b.pick(now, nil); e != nil || c.problem == "" {
		t.Errorf("a new backend has %v", e)
	}
	if !b.set(servers{addresses: []string{"a", "b", "c"}}) || b.set(servers{addresses: []string{"a", "b", "c"}}) {
		t.Error("set reports whether the problem is another one")
	}
	count := func(tried ...*endpoint) string {
		counts := map[string]int{}
		for range 12 {
			if e, _ := b.pick(now, tried); e != nil {
				counts[e.address]++
			}
		}
		return fmt.Sprint(counts)
	}
	if got := count(); got != "map[a:4 b:4 c:4]" {
		t.Errorf("requests: %s", got)
	}
	_, c := b.pick(now, nil)
	first, second := c.endpoints[0], c.endpoints[1]
	if got := count(first, second); got != "map[c:12]" {
		t.Errorf("after two were tried: %s", got)
	}
	first.avoid.Store(now.Add(time.Second).UnixNano())
	if got := count(); !strings.HasPrefix(got, "map[b:") || strings.Contains(got, "a:") {
		t.Errorf("one is avoided: %s", got)
	}
	if got := count(c.endpoints[1], c.endpoints[2]); got != "map[a:12]" {
		t.Errorf("an avoided one is better than none: %s", got)
	}
	b.set(servers{addresses: []string{"a", "d"}})
	if _, c := b.pick(now, nil); c.endpoints[0] != first {
		t.Error("what is known of an endpoint is lost when another one comes")
	}
	now = now.Add(2 * time.Second)
	if got := count(); got != "map[a:6 d:6]" {
		t.Errorf("later: %s", got)
	}
}

func TestStatusOf(t *testing.T) {
	t.Parallel()
	list := func(text string) (all []networkingv1.IngressLoadBalancerIngress) {
		for _, a := range strings.Fields(text) {
			all = append(all, networkingv1.IngressLoadBalancerIngress{IP: a})
		}
		return all
	}
	for _, c := range []struct{ has, own, others, want string }{
		{"", "1", "", "1"}, {"1", "1", "", "1"}, {"9", "1", "", "1"}, {"2", "1", "2 3", "1 2"}, {"1 2", "1", "2", "1 2"}, {"1 2", "2", "1 2", "1 2"},
		{"1 2", "", "2", "2"}, {"1", "", "", ""}, {"5", "1 2", "", "1 2"}, {"", "1 1", "", "1"},
	} {
		number := func(text string) []string {
			var all []string
			for _, n := range strings.Fields(text) {
				all = append(all, "10.0.0."+n)
			}
			return all
		}
		got := statusOf(list(strings.Join(number(c.has), " ")), number(c.own), number(c.others), nil)
		if diff := cmp.Diff(list(strings.Join(number(c.want), " ")), got); diff != "" {
			t.Errorf("%+v: %s", c, diff)
		}
	}
	if got := statusOf(nil, []string{"box.example.com"}, nil, nil); got[0].Hostname != "box.example.com" || got[0].IP != "" {
		t.Errorf("a host name: %+v", got)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"":                            {HTTP: ":80", HTTPS: "[::1]:443", StatusAddresses: []string{"10.0.0.1", "box.example.com"}, DefaultCertificate: "a/b", MaxBody: "1Gi", TrustedProxies: []string{"10.0.0.0/8", "::1"}},
		"--ingress:":                  {HTTP: "80"},
		"--ingress-https:":            {HTTPS: ":many"},
		"--ingress-status-address:":   {StatusAddresses: []string{"-"}},
		"--ingress-default-cert":      {DefaultCertificate: "b"},
		"--ingress-max-body-size:":    {MaxBody: "much"},
		"must not be negative":        {MaxBody: "-1"},
		"--ingress-trusted-proxies: ": {TrustedProxies: []string{"10.0.0.0/33"}},
	} {
		err := c.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
