package apiserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// backend is a program in a pod that echoes its requests.
func backend(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/elsewhere/", http.StatusFound)
		case "/protocols":
			w.WriteHeader(http.StatusBadRequest) // which a proxy passes on if an upgrade is refused
			fmt.Fprintf(w, "%q %q", r.Header.Values("Sec-WebSocket-Protocol"), r.Header.Get("Authorization"))
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<a href="/next">next</a>`)
		case "/echo":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			rw.Flush()
			line, _ := rw.ReadString('\n')
			fmt.Fprint(conn, strings.ToUpper(line))
		default:
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s auth=%q cookie=%q prefix=%q body=%d", r.Method, r.RequestURI, r.Header.Get("Authorization"),
				r.Header.Get("Cookie"), r.Header.Get("X-Forwarded-Uri"), len(body))
		}
	}
}

// proxied is a server whose pod network leads to one plain and one TLS backend.
func proxied(t *testing.T) API {
	t.Helper()
	plain := httptest.NewServer(backend(t))
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(backend(t))
	t.Cleanup(secure.Close)
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	to := map[string]string{"10.0.0.9:80": plain.Listener.Addr().String(), "10.0.0.9:8080": plain.Listener.Addr().String(),
		"10.0.0.9:443": secure.Listener.Addr().String()}
	srv, err := apiserver.New(t.Context(), apiserver.Config{
		Registry: reg, Authenticator: auth.Any(auth.Token(token, auth.Admin), auth.Certificates()),
		Pods: podNetwork(to),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(withCertificates(srv.Handler()))
	t.Cleanup(h.Close)
	hc := h.Client()
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return API{t, h.URL, hc, reg}
}

// podNetwork has one pod, and the real addresses of its ports.
type podNetwork map[string]string

func (podNetwork) Holds(ip netip.Addr) bool { return ip == netip.MustParseAddr("10.0.0.9") }

func (to podNetwork) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if to[address] == "" {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, to[address])
}

// certified is the header of a request to which withCertificates adds the admin's certificate.
const certified = "Test-Certificate: admin"

func withCertificates(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Test-Certificate") != "" {
			subject := pkix.Name{CommonName: "admin", Organization: []string{auth.Masters}}
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: subject}}}}
		}
		next.ServeHTTP(w, r)
	})
}

// proxiedObjects creates a pod, a service with endpoints and one without, and a node.
func proxiedObjects(a API) {
	a.t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	for _, obj := range []client.Object{
		&corev1.Pod{ObjectMeta: meta(
			"p"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i",
			Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}}},
		&corev1.Service{ObjectMeta: meta("web"),
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 1234}}}},
		&corev1.Service{ObjectMeta: meta("empty"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"),
				Port: new(int32(8080))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.9"}}, {Addresses: []string{"10.0.0.8"},
				Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
	} {
		if _, err := a.reg.Create(a.t.Context(), obj); err != nil {
			a.t.Fatal(err)
		}
	}
	_, err := a.reg.Update(a.t.Context(), client.Ref{Resource: client.Pods, Namespace: "default", Name: "p"}.Status(),
		func(cur client.Object) (client.Object, error) {
			next := cur.DeepCopyObject().(*corev1.Pod)
			next.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.9"}}
			return next, nil
		})
	if err != nil {
		a.t.Fatal(err)
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	a := proxied(t)
	proxiedObjects(a)
	const ns = "/api/v1/namespaces/default"
	for name, c := range map[string]struct {
		method, path string
		code         int
		says         string
	}{
		"pod": {"GET", ns + "/pods/p/proxy/a/b?q=1", 200,
			`GET /a/b?q=1 auth="" cookie="theirs=1" prefix="` + ns + `/pods/p/proxy/a/b"`},
		"pod, trailing slash": {"GET", ns + "/pods/p/proxy/a/", 200, "GET /a/ "},
		"pod, escapes":        {"GET", ns + "/pods/p/proxy/a%2Fb%20c", 200, "GET /a%2Fb%20c "},
		"pod, root":           {"GET", ns + "/pods/p/proxy/", 200, "GET / "},
		"pod, no slash":       {"GET", ns + "/pods/p/proxy", 301, ""},
		"pod, path in query":  {"GET", ns + "/pods/p/proxy?path=x", 200, "GET /x?path=x "},
		"pod, port":           {"PUT", ns + "/pods/p:80/proxy/x", 200, "PUT /x "},
		"pod, https":          {"DELETE", ns + "/pods/https:p:443/proxy/x", 200, "DELETE /x "},
		"pod, unknown scheme": {"GET", ns + "/pods/ftp:p:443/proxy/x", 400, `invalid pod request \"ftp:p:443\"`},
		"pod, closed port": {"GET", ns + "/pods/p:81/proxy/x", 503,
			"error trying to reach service: dial 10.0.0.9:81: connection refused"},
		"no pod":            {"GET", ns + "/pods/q/proxy/x", 404, `pods \"q\" not found`},
		"large body":        {"POST", ns + "/pods/p/proxy/large", 200, "body=4194304"},
		"patch":             {"PATCH", ns + "/pods/p/proxy/x", 200, "PATCH /x "},
		"options":           {"OPTIONS", ns + "/pods/p/proxy/x", 200, "OPTIONS /x "},
		"service by name":   {"GET", ns + "/services/web:http/proxy/x", 200, "GET /x "},
		"service by number": {"GET", ns + "/services/http:web:1234/proxy/x", 200, "GET /x "},
		"service, other port": {"GET", ns + "/services/web:80/proxy/x", 503,
			`no service port 80 found for service \"web\"`},
		"service, no such name": {"GET", ns + "/services/web:x/proxy/x", 503, `no endpoints available for service \"web:x\"`},
		"service, empty":        {"GET", ns + "/services/empty/proxy/", 503, `no endpoints available for service \"empty\"`},
		"node":                  {"GET", "/api/v1/nodes/n1/proxy/metrics", 503, `node \"n1\" does not run in this process`},
		"node, no address":      {"GET", "/api/v1/nodes/n1:9100/proxy/metrics", 503, "no preferred addresses found"},
		"of a ConfigMap":        {"GET", ns + "/configmaps/c/proxy/x", 404, "NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			body := ""
			if name == "large body" {
				body = strings.Repeat("x", 4<<20)
			}
			resp := a.do(c.method, c.path, body, "Cookie: theirs=1")
			defer resp.Body.Close()
			data := readBody(t, resp)
			if resp.StatusCode != c.code || !strings.Contains(data, c.says) {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, data, c.code, c.says)
			}
		})
	}
}

// Links and redirects in a response lead through the proxy.
func TestProxyAnswers(t *testing.T) {
	t.Parallel()
	a := proxied(t)
	proxiedObjects(a)
	const root = "/api/v1/namespaces/default/pods/p/proxy"
	resp := a.do("GET", root+"/redirect", "")
	if at := resp.Header.Get("Location"); resp.StatusCode != http.StatusFound || at != root+"/elsewhere/" {
		t.Errorf("redirected to %q", at)
	}
	if page := readBody(t, a.do("GET", root+"/page", "")); !strings.Contains(page, `href="`+root+`/next"`) {
		t.Errorf("page: %s", page)
	}
}

// A malicious page can make a browser with the user's client certificate open a pod's page, which therefore must not
// have the server's origin. A client that sends a token is not such a browser.
func TestProxiedPageIsSandboxed(t *testing.T) {
	t.Parallel()
	a := proxied(t)
	proxiedObjects(a)
	for authorization, want := range map[string]string{"": "sandbox allow-forms allow-scripts", "Bearer " + token: ""} {
		resp := a.do("GET", "/api/v1/namespaces/default/pods/p/proxy/page", "", "Authorization: "+authorization, certified)
		if got := resp.Header.Get("Content-Security-Policy"); resp.StatusCode != http.StatusOK || got != want {
			t.Errorf("%q: %s %q", authorization, resp.Status, got)
		}
	}
}

// The token of a WebSocket is not forwarded to the pod.
func TestProxyKeepsTheTokenOfAWebSocket(t *testing.T) {
	t.Parallel()
	a := proxied(t)
	proxiedObjects(a)
	to, err := url.Parse(a.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", to.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /api/v1/namespaces/default/pods/p/proxy/protocols HTTP/1.1\r\nHost: x\r\n"+
		"Connection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.%s, theirs\r\n\r\n",
		base64.RawURLEncoding.EncodeToString([]byte(token)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := readBody(t, resp); resp.StatusCode != http.StatusBadRequest || got != `["theirs"] ""` {
		t.Errorf("%s: the pod got %s", resp.Status, got)
	}
}

func TestProxyUpgrade(t *testing.T) {
	t.Parallel()
	a := proxied(t)
	proxiedObjects(a)
	for _, pod := range []string{"p", "https:p:443"} {
		to, err := url.Parse(a.url)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", to.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /api/v1/namespaces/default/pods/%s/proxy/echo HTTP/1.1\r\nHost: x\r\n"+
			"Authorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", pod, token)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %v, %+v", pod, err, resp)
		}
		fmt.Fprint(conn, "hello\n")
		if line, err := r.ReadString('\n'); line != "HELLO\n" {
			t.Errorf("%s: %q, %v", pod, line, err)
		}
	}
}

// The proxy refuses addresses that only this machine can reach, except those of pods on such addresses, whatever
// a pod's status contains.
func TestProxyRefusesLocalAddresses(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*testing.T) API{"machine's network": serve, "pods' own network": proxied} {
		t.Run(name, func(t *testing.T) { refusesLocalAddresses(serve(t)) })
	}
}

func refusesLocalAddresses(a API) {
	t := a.t
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := a.reg.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, ip := range []string{"127.0.0.1", "127.88.0.9", "169.254.169.254", "::1"} {
		_, err := a.reg.Update(t.Context(), client.Ref{Resource: client.Pods, Namespace: "default", Name: "p"}.Status(),
			func(cur client.Object) (client.Object, error) {
				next := cur.DeepCopyObject().(*corev1.Pod)
				next.Status.PodIPs = []corev1.PodIP{{IP: ip}}
				return next, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		for _, header := range []string{"Accept: */*", "Connection: Upgrade"} {
			code, status := a.read("GET", "/api/v1/namespaces/default/pods/p:80/proxy/", "", header, "Upgrade: echo")
			if code != 400 || status["message"] != "address not allowed" {
				t.Errorf("%s, %s: %d %v", ip, header, code, status)
			}
		}
	}
}
