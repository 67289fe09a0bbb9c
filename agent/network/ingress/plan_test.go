package ingress

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/agent/network/ingress/proxy"
	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

// ing parses an Ingress. age is its creation time in seconds; a larger one is newer.
func ing(t testing.TB, name string, age int, text string) *networkingv1.Ingress {
	t.Helper()
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		CreationTimestamp: metav1.Unix(int64(1000+age), 0)}}
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
		"path types": {
			[]string{`spec: {rules: [` + host("a.com", "/e", "Exact", web) + `, ` + host("a.com", "/p", "Prefix", api) + `, ` +
				host("*.b.com", "/i", "ImplementationSpecific", web) + `]}`},
			"a.com =/e web:80 0, a.com /p api:http 0, *.b.com /i web:80 0", "",
		},
		"empty path": {[]string{`spec: {rules: [` + host("", "", "ImplementationSpecific", web) + `]}`},
			" / web:80 0", ""},
		"default backend": {[]string{`spec: {defaultBackend: ` + web + `}`}, "  web:80 0", ""},
		"default backend with rules": {
			[]string{`spec: {defaultBackend: ` + web + `, rules: [` + host("a.com", "/p", "Prefix", api) + `]}`},
			"a.com /p api:http 0, a.com  web:80 0,   web:80 0", "",
		},
		"rule without paths": {
			[]string{`spec: {defaultBackend: ` + web + `, rules: [{host: a.com}]}`}, "a.com / web:80 0,   web:80 0", "",
		},
		"rule without paths, no default backend": {[]string{`spec: {rules: [{host: a.com}]}`}, "", ""},
		"same path in two Ingresses": {
			[]string{`spec: {rules: [` + host("a.com", "/p", "Prefix", web) + `]}`, `spec: {rules: [` + host("a.com", "/p/",
				"Prefix", api) + `]}`},
			"a.com /p web:80 0, a.com /p/ api:http 1",
			`1 PathTaken Ingress "default/0" already serves path /p/ of a.com, which this Ingress repeats`,
		},
		"same path twice in one Ingress": {
			[]string{`spec: {rules: [` + host("a.com", "/p", "Prefix", web) + `, ` + host("a.com", "/p", "Prefix", web) + `]}`},
			"a.com /p web:80 0, a.com /p web:80 0", "",
		},
		"resource backend": {
			[]string{`spec: {rules: [` + host("a.com", "/p", "Prefix", `{resource: {kind: Bucket, name: b}}`) + `]}`},
			"", "0 UnsupportedBackend backends that are not Services are not supported; path /p of a.com is not served",
		},
		"resource as default backend": {
			[]string{`spec: {defaultBackend: {resource: {kind: Bucket, name: b}}}`},
			"", "0 UnsupportedBackend backends that are not Services are not supported; path / of every host is not served",
		},
		"annotations": {
			[]string{`{metadata: {annotations: {monopod.io/ssl-redirect: maybe, ` +
				`nginx.ingress.kubernetes.io/server-snippet: /, example.com/other: x}}, spec: {defaultBackend: ` + web + `}}`},
			"  web:80 0", "0 InvalidAnnotation annotation monopod.io/ssl-redirect must be true or false, got \"maybe\"\n" +
				"0 InvalidAnnotation annotation nginx.ingress.kubernetes.io/server-snippet has no effect: " +
				"text for a server's configuration is never used",
		},
		"regular expressions": {
			[]string{`{metadata: {annotations: {nginx.ingress.kubernetes.io/rewrite-target: /$1}}, spec: {rules: [` +
				host("a.com", "/r/(.*)", "ImplementationSpecific", web) + `, ` + host("a.com", "/(", "Prefix", web) + `]}}`,
				`spec: {rules: [` + host("a.com", "/p", "Prefix", api) + `, ` + host("b.com", "/q", "Exact", api) + `]}`,
				`{metadata: {annotations: {monopod.io/use-regex: "true"}}, spec: {rules: [` +
					host("a.com", "/r/(.*)", "Prefix", api) + `]}}`},
			"a.com (?is)^(?:/r/(.*)) web:80 0, a.com (?is)^/p(?:/|$) api:http 1, b.com =/q api:http 1, " +
				"a.com (?is)^(?:/r/(.*)) api:http 2",
			"0 InvalidPath path /( of a.com is not a regular expression (RE2) and is not served: error parsing regexp: " +
				"missing closing ): `(?is)^(?:/()`\n" +
				`2 PathTaken Ingress "default/0" already serves path /r/(.*) of a.com, which this Ingress repeats`,
		},
		"canary": {
			[]string{`spec: {rules: [` + host("a.com", "/", "Prefix", web) + `]}`,
				`{metadata: {annotations: {nginx.ingress.kubernetes.io/canary: "true"}}, spec: {rules: [` +
					host("a.com", "/", "Prefix", api) + `, ` + host("a.com", "/x", "Prefix", api) + `]}}`},
			"a.com / web:80 0 canary api 1", "1 NoRule no other Ingress of the namespace has path /x of a.com, whose canary this one is",
		},
		"redirects": {
			[]string{`{metadata: {annotations: {monopod.io/app-root: /x, monopod.io/from-to-www-redirect: "true", ` +
				`monopod.io/server-alias: "b.com"}}, spec: {rules: [` + host("a.com", "/x", "Prefix", web) + `]}}`},
			"a.com /x web:80 0, b.com /x web:80 0, a.com =/ web:80 0, www.a.com / web:80 0", "",
		},
		"redirects that are not needed": {
			[]string{`{metadata: {annotations: {monopod.io/app-root: /x, monopod.io/from-to-www-redirect: "true"}}, ` +
				`spec: {rules: [` + host("www.a.com", "/", "Prefix", web) + `]}}`,
				`spec: {rules: [` + host("a.com", "/", "Prefix", api) + `]}`},
			"www.a.com / web:80 0, a.com / api:http 1", "",
		},
		"protocol annotation": {
			[]string{`{metadata: {annotations: {nginx.ingress.kubernetes.io/backend-protocol: grpc}}, spec: {defaultBackend: ` +
				web + `}}`}, "  web:80 GRPC 0", "",
		},
	} {
		var list []*networkingv1.Ingress
		for i, text := range c.ingresses {
			list = slices.Insert(list, 0, ing(t, fmt.Sprint(i), i, text)) // planOf must sort by age
		}
		p := planOf(list, route.Options{}, "")
		var rules, problems []string
		for _, r := range p.rules {
			path := r.Path
			if r.Exact {
				path = "=" + path
			}
			if r.Pattern != nil {
				path = r.Pattern.String()
			}
			to := r.To.Service.Name + ":" + strings.Trim(proxy.PortText(r.To.Port), `"`)
			if r.To.Override != "" {
				to += " " + r.To.Override
			}
			rule := strings.Join([]string{r.Host, path, to, r.To.Ingress.Name}, " ")
			if c := r.To.Canary; c != nil {
				rule += " canary " + c.To.Service.Name + " " + c.To.Ingress.Name
			}
			rules = append(rules, rule)
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
	const text = `spec: {defaultBackend: {service: {name: web, port: {number: 80}}}, tls: [{secretName: s, ` +
		`hosts: [a.com]}, {secretName: all}, {hosts: [c.com]}], rules: [{host: a.com}, {host: b.com}]}`
	p := planOf([]*networkingv1.Ingress{ing(t, "i", 0, text)}, route.Options{}, "")
	var got []string
	for _, c := range p.certs {
		got = append(got, c.secret+":"+strings.Join(c.hosts, ","))
	}
	if want := "s:a.com all:a.com,b.com :c.com"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	p = planOf([]*networkingv1.Ingress{ing(t, "i", 0, text)}, route.Options{}, "monopod runs without --ingress-https")
	if list := p.problems[follow.Key{Namespace: "default", Name: "i"}]; len(p.certs) > 0 || len(list) != 1 ||
		list[0].reason != "NoHTTPS" {
		t.Errorf("without HTTPS: %v %v", p.certs, list)
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	class := func(controller string) *networkingv1.IngressClass {
		return &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: controller}}
	}
	names := (&Config{Classes: []string{autoClasses}}).served()
	known := classes{"monopod": class(ControllerName), "second": class(ControllerName),
		"nginx": class("k8s.io/ingress-nginx")}
	named := func(name string) string { return "spec: {ingressClassName: " + name + "}" }
	annotated := func(name string) string {
		return "metadata: {annotations: {kubernetes.io/ingress.class: " + name + "}}"
	}
	for text, want := range map[string]bool{
		named("monopod"): true, named("second"): true, named("nginx"): false, named("gone"): false, "{}": false,
		named("traefik"): true, annotated("traefik"): true,
		annotated("monopod"): true, annotated("second"): true, annotated("nginx"): false, annotated(`""`): false,
		annotated("monopod") + "\n" + named("nginx"): false,
	} {
		if got := known.serve(ing(t, "i", 0, text), names); got != want {
			t.Errorf("%s: serve returned %v", text, got)
		}
	}
	if !(classes{}).serve(ing(t, "i", 0, named(ClassName)), names) ||
		(classes{ClassName: class("other.io/x")}).serve(ing(t, "i", 0, named(ClassName)), names) {
		t.Error("the class monopod is not served without an IngressClass, or is served with another controller")
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
		{"", "1", "", "1"}, {"1", "1", "", "1"}, {"9", "1", "", "1"}, {"2", "1", "2 3", "1 2"}, {"1 2", "1", "2", "1 2"},
		{"1 2", "2", "1 2", "1 2"},
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
	if got := statusOf(nil, []string{"box.example.com"}, nil, nil); got[0].Hostname != "box.example.com" ||
		got[0].IP != "" {
		t.Errorf("status for a host name: %+v", got)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"auto auto true": ":80 :443 map[http:true https:true]", "auto auto false": "  map[]", "off :8443 true": " :8443 map[]",
		":81 auto true": ":81 :443 map[https:true]", "off off true": "  map[]",
	} {
		f := strings.Fields(flags)
		c := Config{HTTP: f[0], HTTPS: f[1]}
		c.Complete(f[2] == "true")
		c.Complete(false)
		if got := fmt.Sprint(c.HTTP, " ", c.HTTPS, " ", c.automatic); got != want {
			t.Errorf("%s: %s, want %s", flags, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"": {HTTP: ":80", HTTPS: "[::1]:443", StatusAddresses: []string{"10.0.0.1",
			"box.example.com"}, DefaultCertificate: "a/b", MaxBody: "1Gi", TrustedProxies: []string{"10.0.0.0/8", "::1"}},
		"--ingress:":                {HTTP: "80"},
		"--ingress-https:":          {HTTPS: ":many"},
		"--ingress-status-address:": {StatusAddresses: []string{"-"}},
		"--ingress-default-cert":    {DefaultCertificate: "b"},
		"--ingress-max-body-size:":  {MaxBody: "much"},
		"--ingress-classes must":    {Classes: []string{"nginx", "auto"}}, "got \"haproxy\"": {Classes: []string{"haproxy"}},
		"must not be negative":        {MaxBody: "-1"},
		"--ingress-trusted-proxies: ": {TrustedProxies: []string{"10.0.0.0/33"}},
	} {
		err := c.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
