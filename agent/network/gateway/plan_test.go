package gateway

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/follow"
)

// read returns the objects of YAML documents.
func read(t *testing.T, documents string) *objects {
	t.Helper()
	o := newObjects()
	for i, text := range strings.Split(documents, "\n---\n") {
		u := &unstructured.Unstructured{}
		data, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			err = json.Unmarshal(data, &u.Object)
		}
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		if u.GetNamespace() == "" {
			u.SetNamespace("default")
		}
		u.SetGeneration(3)
		if u.GetKind() == "Namespace" {
			o.namespaces[u.GetName()] = labels.Set(u.GetLabels())
			continue
		}
		if created := u.GetCreationTimestamp(); created.IsZero() {
			u.SetCreationTimestamp(metav1.Unix(int64(i), 0))
		}
		if _, err := o.set(u.GetKind(), nil, u); err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
	}
	return &o
}

const ourClass = `
kind: GatewayClass
metadata: {name: monopod}
spec: {controllerName: monopod.io/gateway}
---
`

// world has the Services web and other, and the Secrets cert.
var world = surroundings{
	secret: func(name follow.Key) (*tls.Certificate, error) {
		if name.Name == "cert" {
			return &tls.Certificate{}, nil
		}
		return nil, errors.New("it does not exist")
	},
	service: func(name follow.Key) *corev1.Service {
		if name.Name == "web" || name.Name == "other" {
			return &corev1.Service{}
		}
		return nil
	},
}

// find returns the backends of the request's rule, with their weights, or the reason why it fails.
func find(p *plan, gateway string, number int32, host, path string) string {
	port := p.gateways[follow.Key{Namespace: "default", Name: gateway}].ports[number]
	if port == nil {
		return "no port"
	}
	l := port.web.Find(host)
	if l == nil {
		return "no listener"
	}
	to, ok := l.Find(httptest.NewRequest(http.MethodGet, "http://"+host+path, nil), host, path)
	if !ok {
		return "no rule"
	}
	var texts []string
	for _, c := range to.Choices {
		text := c.To.Service.String()
		if c.To.Broken != "" {
			text = "500"
		}
		texts = append(texts, fmt.Sprintf("%s=%d", text, c.Weight))
	}
	return strings.Join(texts, " ")
}

// conditions returns the conditions as TYPE=STATUS:REASON.
func conditions(list []metav1.Condition) (texts []string) {
	for _, c := range list {
		texts = append(texts, c.Type+"="+string(c.Status)+":"+c.Reason)
	}
	return texts
}

func TestRoutes(t *testing.T) {
	for _, row := range []struct {
		name, route string
		accepted    string // reason of the condition Accepted; empty: no status
		resolved    string
		serves      string // a request for a.example.com/app
	}{
		{name: "simple", accepted: "Accepted", resolved: "ResolvedRefs", serves: "default/web=1",
			route: `spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{name: web, port: 80}]}]}`},
		{name: "of a host", accepted: "Accepted", resolved: "ResolvedRefs", serves: "default/web=1",
			route: `spec: {parentRefs: [{name: front}], hostnames: [a.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}`},
		{name: "of a foreign host", accepted: "NoMatchingListenerHostname", resolved: "ResolvedRefs", serves: "no rule",
			route: `spec: {parentRefs: [{name: front}], hostnames: [example.org], rules: [{backendRefs: [{name: web, port: 80}]}]}`},
		{name: "weights", accepted: "Accepted", resolved: "ResolvedRefs", serves: "default/web=3 default/other=1",
			route: `spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{name: web, port: 80, weight: 3},
				{name: other, port: 80}, {name: other, port: 81, weight: 0}]}]}`},
		{name: "a missing Service keeps its part", accepted: "Accepted", resolved: "BackendNotFound",
			serves: "default/web=1 500=1",
			route:  `spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{name: web, port: 80}, {name: gone, port: 80}]}]}`},
		{name: "no backend", accepted: "Accepted", resolved: "ResolvedRefs", serves: "500=1",
			route: `spec: {parentRefs: [{name: front}], rules: [{matches: [{path: {type: PathPrefix, value: /app}}]}]}`},
		{name: "another kind", accepted: "Accepted", resolved: "InvalidKind", serves: "500=1",
			route: `spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{kind: Bucket, group: x.io, name: web, port: 80}]}]}`},
		{name: "another namespace", accepted: "Accepted", resolved: "RefNotPermitted", serves: "500=1",
			route: `spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{name: web, namespace: closed, port: 80}]}]}`},
		{name: "a granted namespace", accepted: "Accepted", resolved: "ResolvedRefs", serves: "open/web=1",
			route: `spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{name: web, namespace: open, port: 80}]}]}`},
		{name: "a Service that the grant does not name", accepted: "Accepted", resolved: "RefNotPermitted", serves: "500=1",
			route: `spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{name: other, namespace: open, port: 80}]}]}`},
		{name: "an unknown listener", accepted: "NoMatchingParent", resolved: "ResolvedRefs", serves: "no rule",
			route: `spec: {parentRefs: [{name: front, sectionName: none}], rules: [{backendRefs: [{name: web, port: 80}]}]}`},
		{name: "an unsupported filter", accepted: "UnsupportedValue", resolved: "ResolvedRefs", serves: "no rule",
			route: `spec: {parentRefs: [{name: front}], rules: [{filters: [{type: RequestMirror, requestMirror:
				{backendRef: {name: web, port: 80}}}], backendRefs: [{name: web, port: 80}]}]}`},
		{name: "a header of the connection", accepted: "UnsupportedValue", resolved: "ResolvedRefs", serves: "no rule",
			route: `spec: {parentRefs: [{name: front}], rules: [{filters: [{type: ResponseHeaderModifier, responseHeaderModifier:
				{set: [{name: X, value: a}, {name: transfer-encoding, value: gzip}]}}], backendRefs: [{name: web, port: 80}]}]}`},
		{name: "a wrong expression", accepted: "UnsupportedValue", resolved: "ResolvedRefs", serves: "no rule",
			route: `spec: {parentRefs: [{name: front}], rules: [{matches: [{path: {type: RegularExpression, value: "("}}]}]}`},
		{name: "a foreign Gateway", serves: "no rule",
			route: `spec: {parentRefs: [{name: foreign}], rules: [{backendRefs: [{name: web, port: 80}]}]}`},
		{name: "a namespace that is not allowed", accepted: "NotAllowedByListeners", resolved: "BackendNotFound",
			serves: "no rule",
			route: `spec: {parentRefs: [{name: front, namespace: default}], rules: [{backendRefs: [{name: gone, port: 80}]}]}
metadata: {name: r, namespace: closed}`},
	} {
		route := "kind: HTTPRoute\n" + row.route
		if !strings.Contains(row.route, "metadata:") {
			route += "\nmetadata: {name: r}"
		}
		o := read(t, ourClass+`kind: Gateway
metadata: {name: front}
spec: {gatewayClassName: monopod, listeners: [{name: http, port: 80, protocol: HTTP, hostname: "*.example.com"}]}
---
kind: Gateway
metadata: {name: foreign}
spec: {gatewayClassName: other, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
kind: ReferenceGrant
metadata: {name: g, namespace: open}
spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: default}],
  to: [{group: "", kind: Service, name: web}]}
---
`+route)
		p := planOf(o, world)
		if got := find(p, "front", 80, "a.example.com", "/app"); got != row.serves {
			t.Errorf("%s: a request goes to %q, want %q", row.name, got, row.serves)
		}
		var accepted, resolved string
		for _, statuses := range p.routes {
			accepted = meta.FindStatusCondition(statuses[0].Conditions, "Accepted").Reason
			c := meta.FindStatusCondition(statuses[0].Conditions, "ResolvedRefs")
			if resolved = c.Reason; c.ObservedGeneration != 3 || (c.Message == "") != (resolved == "ResolvedRefs") {
				t.Errorf("%s: condition %+v", row.name, c)
			}
		}
		if accepted != row.accepted || resolved != row.resolved {
			t.Errorf("%s: %s and %s, want %s and %s", row.name, accepted, resolved, row.accepted, row.resolved)
		}
	}
}

func TestListeners(t *testing.T) {
	for _, row := range []struct {
		name, listeners string
		accepted        string   // condition of the Gateway
		want            []string // conditions of the last listener, without those of a good one
		ports           int
	}{
		{name: "HTTP", listeners: `{name: a, port: 80, protocol: HTTP}`, accepted: "True:Accepted", ports: 1},
		{name: "UDP", listeners: `{name: a, port: 80, protocol: UDP}`, accepted: "False:ListenersNotValid",
			want: []string{"Accepted=False:UnsupportedProtocol"}},
		{name: "one of two", listeners: `{name: a, port: 80, protocol: HTTP}, {name: b, port: 81, protocol: UDP}`,
			accepted: "True:ListenersNotValid", want: []string{"Accepted=False:UnsupportedProtocol"}, ports: 1},
		{name: "hosts of one port", accepted: "True:Accepted", ports: 1,
			listeners: `{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP, hostname: x.org}`},
		{name: "the same host", accepted: "True:ListenersNotValid", ports: 1,
			listeners: `{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP}`,
			want:      []string{"Conflicted=True:HostnameConflict", "Accepted=False:HostnameConflict"}},
		{name: "another protocol", accepted: "True:ListenersNotValid", ports: 1,
			listeners: `{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: TCP}`,
			want:      []string{"Conflicted=True:ProtocolConflict", "Accepted=False:ProtocolConflict"}},
		{name: "TLS beside HTTPS", accepted: "True:Accepted", ports: 1,
			listeners: `{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}},
				{name: b, port: 443, protocol: TLS, hostname: x.org, tls: {mode: Passthrough}}`},
		{name: "no such certificate", listeners: `{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: gone}]}}`,
			accepted: "False:ListenersNotValid", want: []string{"ResolvedRefs=False:InvalidCertificateRef"}},
		{name: "a certificate that is not granted", accepted: "False:ListenersNotValid",
			listeners: `{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert, namespace: closed}]}}`,
			want:      []string{"ResolvedRefs=False:RefNotPermitted"}},
		{name: "a kind that the protocol cannot have", accepted: "False:ListenersNotValid",
			listeners: `{name: a, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}`,
			want:      []string{"ResolvedRefs=False:InvalidRouteKinds"}},
		{name: "HTTPS that is passed through", accepted: "False:ListenersNotValid",
			listeners: `{name: a, port: 443, protocol: HTTPS, tls: {mode: Passthrough}}`,
			want:      []string{"Accepted=False:UnsupportedValue"}},
	} {
		p := planOf(read(t, ourClass+`kind: Gateway
metadata: {name: front}
spec: {gatewayClassName: monopod, listeners: [`+row.listeners+`]}`), world)
		g := p.gateways[follow.Key{Namespace: "default", Name: "front"}]
		if got := string(g.accepted.Status) + ":" + g.accepted.Reason; got != row.accepted {
			t.Errorf("%s: accepted %s, want %s", row.name, got, row.accepted)
		}
		if len(g.ports) != row.ports {
			t.Errorf("%s: %d ports, want %d", row.name, len(g.ports), row.ports)
		}
		if got := conditions(g.listeners[len(g.listeners)-1].conditions); !slices.Equal(got, row.want) {
			t.Errorf("%s: conditions %q, want %q", row.name, got, row.want)
		}
	}
}

// TestNamespaces attaches routes of namespaces that a listener selects.
func TestNamespaces(t *testing.T) {
	for from, want := range map[string]string{"{from: All}": "one two", "{from: None}": "", "{from: Same}": "",
		"{from: Selector, selector: {matchLabels: {team: a}}}": "one"} {
		p := planOf(read(t, ourClass+`kind: Namespace
metadata: {name: one, labels: {team: a}}
---
kind: Namespace
metadata: {name: two, labels: {team: b}}
---
kind: Gateway
metadata: {name: front}
spec: {gatewayClassName: monopod, listeners: [{name: a, port: 80, protocol: HTTP, allowedRoutes: {namespaces: `+from+`}}]}
---
kind: HTTPRoute
metadata: {name: r, namespace: one}
spec: {parentRefs: [{name: front, namespace: default}]}
---
kind: HTTPRoute
metadata: {name: r, namespace: two}
spec: {parentRefs: [{name: front, namespace: default}]}`), world)
		var got []string
		for name, statuses := range p.routes {
			if meta.IsStatusConditionTrue(statuses[0].Conditions, "Accepted") {
				got = append(got, name.Namespace)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: routes of %q are accepted, want %q", from, got, want)
		}
		if l := p.gateways[follow.Key{Namespace: "default", Name: "front"}].listeners[0]; int(l.attached) != len(got) {
			t.Errorf("%s: %d attached routes, want %d", from, l.attached, len(got))
		}
	}
}

// TestOtherRoutes attaches routes for gRPC, TLS and TCP.
func TestOtherRoutes(t *testing.T) {
	p := planOf(read(t, ourClass+`kind: Gateway
metadata: {name: front}
spec:
  gatewayClassName: monopod
  listeners: [{name: http, port: 80, protocol: HTTP}, {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}},
    {name: tcp, port: 5432, protocol: TCP}]
---
kind: GRPCRoute
metadata: {name: r}
spec:
  parentRefs: [{name: front}]
  rules: [{matches: [{method: {service: a.B, method: C}}, {method: {service: a.D}}, {method: {method: E}}],
    backendRefs: [{name: web, port: 80}]}]
---
kind: TLSRoute
metadata: {name: r}
spec: {parentRefs: [{name: front}], hostnames: [x.example.com], rules: [{backendRefs: [{name: web, port: 443}]}]}
---
kind: TCPRoute
metadata: {name: newer, creationTimestamp: "2026-01-02T00:00:00Z"}
spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{name: other, port: 5432}]}]}
---
kind: TCPRoute
metadata: {name: older, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {parentRefs: [{name: front}], rules: [{backendRefs: [{name: web, port: 5432}]}]}`), world)
	for path, want := range map[string]string{"/a.B/C": "default/web=1", "/a.B/X": "no rule", "/a.D/X": "default/web=1",
		"/x.Y/E": "default/web=1", "/x.Y/EE": "no rule"} {
		if got := find(p, "front", 80, "a", path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	ports := p.gateways[follow.Key{Namespace: "default", Name: "front"}].ports
	if l := ports[443].streams.TLS.Find("x.example.com"); l == nil || len(l.Rules) != 1 || l.Rules[0].Host != "x.example.com" {
		t.Errorf("listener of TLS %+v", l)
	}
	if to := ports[5432].streams.TCP; to == nil || to.Choices[0].To.Service.Name != "web" {
		t.Errorf("TCP goes to %+v, want the older route's Service", to)
	}
}

func TestServiceName(t *testing.T) {
	for name, want := range map[string]string{"front": "front-monopod", "a.b": "a-b-monopod", "1st": "gateway-1st-monopod"} {
		o := read(t, "kind: Gateway\nmetadata: {name: "+name+"}\nspec: {gatewayClassName: monopod}")
		if got := serviceName(o.gateways[follow.Key{Namespace: "default", Name: name}]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	long := strings.Repeat("a", 200)
	o := read(t, "kind: Gateway\nmetadata: {name: "+long+"}\nspec: {gatewayClassName: monopod}")
	if got := serviceName(o.gateways[follow.Key{Namespace: "default", Name: long}]); len(got) != 63 {
		t.Errorf("a name of %d characters", len(got))
	}
}

// TestAddresses leaves out the addresses of nodes that do not serve a Gateway.
func TestAddresses(t *testing.T) {
	node := func(ip string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}}}
	}
	nodes := map[string]*corev1.Node{"server": node("192.0.2.1"), "joined": node("192.0.2.2")}
	svc := &corev1.Service{}
	for _, ip := range []string{"192.0.2.1", "192.0.2.2", "198.51.100.7"} {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{NodeName: new("server")}}}
	var got []string
	for _, a := range addressesOf(svc, []*discoveryv1.EndpointSlice{slice}, nodes) {
		got = append(got, a.Value)
	}
	if want := []string{"192.0.2.1", "198.51.100.7"}; !slices.Equal(got, want) {
		t.Errorf("addresses %q, want %q", got, want)
	}
}

// TestParentsOf keeps the places of other controllers' entries.
func TestParentsOf(t *testing.T) {
	parent := func(controller, name string) gatewayv1.RouteParentStatus {
		return gatewayv1.RouteParentStatus{ControllerName: gatewayv1.GatewayController(controller),
			ParentRef: gatewayv1.ParentReference{Name: gatewayv1.ObjectName(name)}}
	}
	before := []gatewayv1.RouteParentStatus{parent(ControllerName, "gone"), parent(ControllerName, "b"),
		parent("example.com/other", "x")}
	want := []gatewayv1.RouteParentStatus{parent(ControllerName, "a"), parent(ControllerName, "b")}
	var got []string
	for _, p := range parentsOf(before, want) {
		got = append(got, string(p.ParentRef.Name))
	}
	if !slices.Equal(got, []string{"b", "x", "a"}) {
		t.Errorf("the parents are %q", got)
	}
	if len(want) != 2 || want[0].ParentRef.Name != "a" || want[1].ParentRef.Name != "b" {
		t.Errorf("the plan has changed: %+v", want)
	}
}
