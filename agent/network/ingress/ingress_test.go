package ingress

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
	"monopod/testdata/harness"
)

// cluster is an API in memory and the endpoints of its pods.
type cluster struct {
	*registry.Registry
	t    testing.TB
	mu   sync.Mutex // guards pods
	pods map[string]string
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	c := &cluster{Registry: registry.New(s, resources, registry.Config{}), t: t, pods: map[string]string{}}
	if err := c.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// pod runs a server. The ingress controller connects to it at the address.
func (c *cluster) pod(address string, h http.HandlerFunc) (stop func()) {
	server := httptest.NewServer(h)
	c.mu.Lock()
	c.pods[address] = server.Listener.Addr().String()
	c.mu.Unlock()
	stop = sync.OnceFunc(func() {
		c.mu.Lock()
		delete(c.pods, address)
		c.mu.Unlock()
		server.Close()
	})
	c.t.Cleanup(stop)
	return stop
}

func (c *cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	at, ok := c.pods[address]
	c.mu.Unlock()
	if !ok {
		return nil, errors.New("connection refused")
	}
	return new(net.Dialer).DialContext(ctx, network, at)
}

func (c *cluster) create(objs ...client.Object) {
	c.t.Helper()
	for _, obj := range objs {
		if _, err := c.Create(c.t.Context(), obj); err != nil {
			c.t.Fatal(err)
		}
	}
}

func edit[T client.Object](c *cluster, obj T, change func(T)) {
	c.t.Helper()
	_, err := c.Update(c.t.Context(), client.RefOf(obj), func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(T)
		change(next)
		return next, nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) node(name, ip string) {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.create(node)
	ref := client.RefOf(node)
	ref.Subresource = "status"
	_, err := c.Update(c.t.Context(), ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*corev1.Node)
		next.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
		return next, nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// start runs a controller until the test ends.
func (c *cluster) start(cfg Config) {
	c.t.Helper()
	metrics, err := follow.NewMetrics(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cfg.Check(); err != nil {
		c.t.Fatal(err)
	}
	cfg.Dial = c.dial
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	ctrl := New(follow.Deps{Client: c.Registry, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: metrics}, cfg)
	go func() { done <- ctrl.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
}

func (c *cluster) ingress(name string) *networkingv1.Ingress {
	c.t.Helper()
	i, err := client.Get[*networkingv1.Ingress](c.t.Context(), c.Registry, "default", name)
	if err != nil {
		c.t.Fatal(err)
	}
	return i
}

// until waits until ok returns true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(harness.Bound); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", harness.Bound, what)
		}
	}
}

// ports waits until the status of an Ingress has ports, and returns them.
func (c *cluster) ports(name string) (http, https int32) {
	c.t.Helper()
	until(c.t, "a status of "+name, func() bool { return len(c.ingress(name).Status.LoadBalancer.Ingress) > 0 })
	ports := c.ingress(name).Status.LoadBalancer.Ingress[0].Ports
	if len(ports) > 1 {
		https = ports[1].Port
	}
	return ports[0].Port, https
}

func service(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
}

func slice(service string, ready []string, ending ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	for _, ip := range ready {
		s.Endpoints = append(s.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	for _, ip := range ending {
		s.Endpoints = append(s.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{ip},
				Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}})
	}
	return s
}

func simple(name, host, to string) *networkingv1.Ingress {
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: networkingv1.IngressSpec{
			IngressClassName: new(ClassName),
			Rules: []networkingv1.IngressRule{{Host: host,
				IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
					Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypePrefix),
						Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: to,
							Port: networkingv1.ServiceBackendPort{Number: 80}}}}},
				}}}},
		}}
}

// pairOf returns a Secret with a key and a certificate for hosts.
func pairOf(t testing.TB, name string, ends time.Time, hosts ...string) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: hosts,
		NotBefore: time.Unix(0, 0), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}) }
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": block("CERTIFICATE", der), "tls.key": block("PRIVATE KEY", raw)}}
}

// ask sends a request for a host.
func ask(t testing.TB, c *http.Client, port int32, host string) string {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	return send(c, r)
}

// send returns the code and body of the response, or the error.
func send(c *http.Client, r *http.Request) string {
	resp, err := c.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return strings.TrimSuffix(fmt.Sprintf("%d %s%v", resp.StatusCode, strings.TrimSpace(string(body)), err), "<nil>")
}

// shown returns the certificate that a client receives for a host.
func shown(t testing.TB, port int32, host string) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{ServerName: host,
		InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

func TestController(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.node("n", "192.0.2.7")
	c.start(Config{HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Node: "n", MaxBody: "1Mi"})
	until(t, "the class", func() bool {
		class, err := client.Get[*networkingv1.IngressClass](t.Context(), c.Registry, "", ClassName)
		return err == nil && class.Spec.Controller == ControllerName &&
			class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
	})
	c.pod("10.0.0.1:8080", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "one") })
	c.pod("10.0.0.2:8080", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "two") })
	c.create(service("one"), slice("one", []string{"10.0.0.1"}), service("two"), slice("two", []string{"10.0.0.2"}))
	first := simple("first", "a.com", "one")
	first.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"a.com", "*.b.com"}, SecretName: "pair"}}
	other := simple("other", "other.com", "one")
	other.Spec.IngressClassName = new("nginx")
	c.create(first.DeepCopy(), other, pairOf(t, "pair", time.Now().Add(time.Hour), "a.com", "*.b.com"))
	http1, https := c.ports("first")
	web := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer web.CloseIdleConnections()

	until(t, "a redirect of a host with a certificate", func() bool {
		return strings.HasPrefix(ask(t, web, http1, "a.com"),
			"308")
	})
	secure := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer secure.CloseIdleConnections()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/", https), nil)
	r.Host = "a.com"
	if resp, err := secure.Do(r); err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Errorf("HTTPS: %+v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	if got := ask(t, web, http1, "other.com"); !strings.HasPrefix(got, "404") ||
		len(c.ingress("other").Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("host of an Ingress of another class: %s", got)
	}

	// Clients receive the certificate of the host, a renewed one, or the default certificate.
	before := shown(t, https, "a.com")
	if before.VerifyHostname("a.com") != nil || shown(t, https, "x.b.com").VerifyHostname("x.b.com") != nil ||
		shown(t, https, "A.com").SerialNumber.Cmp(before.SerialNumber) != 0 {
		t.Errorf("got a certificate for %v, or another one for the same Secret", before.DNSNames)
	}
	if self := shown(t, https, "none.com"); !slices.Equal(self.DNSNames, []string{"ingress.local"}) {
		t.Errorf("a host without a certificate got one for %v", self.DNSNames)
	}
	renewed := pairOf(t, "pair", time.Now().Add(time.Hour), "a.com", "*.b.com")
	edit(c, renewed, func(s *corev1.Secret) { s.Data = renewed.Data })
	until(t, "the renewed certificate",
		func() bool { return shown(t, https, "a.com").SerialNumber.Cmp(before.SerialNumber) != 0 })

	// After the deletion of the Secret, clients receive the default certificate, and HTTP is still redirected to HTTPS.
	if _, err := c.Delete(t.Context(), client.RefOf(renewed), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the default certificate", func() bool {
		return slices.Equal(shown(t, https, "a.com").DNSNames,
			[]string{"ingress.local"})
	})
	if got := ask(t, web, http1, "a.com"); !strings.HasPrefix(got, "308") {
		t.Errorf("HTTP to a host whose Secret was deleted: %s", got)
	}

	// The controller follows changes of rules and endpoints.
	edit(c, first, func(i *networkingv1.Ingress) { i.Spec.TLS = nil })
	until(t, "no redirect", func() bool { return ask(t, web, http1, "a.com") == "200 one" })
	edit(c, first, func(i *networkingv1.Ingress) { i.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = "two" })
	until(t, "another Service", func() bool { return ask(t, web, http1, "a.com") == "200 two" })
	edit(c, slice("two", nil), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.0.0.1" })
	until(t, "another endpoint", func() bool { return ask(t, web, http1, "a.com") == "200 one" })
	c.create(simple("second", "b.com", "two"))
	until(t, "a second Ingress", func() bool { return ask(t, web, http1, "b.com") == "200 one" })
	if _, err := c.Delete(t.Context(), client.RefOf(first), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the first Ingress removed", func() bool { return strings.HasPrefix(ask(t, web, http1, "a.com"), "404") })

	// An Ingress loses its address when its class names another controller.
	edit(c, simple("second", "", ""), func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("nginx") })
	until(t, "no status", func() bool { return len(c.ingress("second").Status.LoadBalancer.Ingress) == 0 })
	if got := ask(t, web, http1, "b.com"); !strings.HasPrefix(got, "404") {
		t.Errorf("host of an Ingress whose class changed: %s", got)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(Config{HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Node: "n"})
	missing := simple("missing", "a.com", "gone")
	missing.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"a.com"}, SecretName: "gone"}, {Hosts: []string{"b.com"},
		SecretName: "broken"}, {Hosts: []string{"c.com"}, SecretName: "foreign"}, {Hosts: []string{"d.com"},
		SecretName: "old"}}
	port := simple("port", "p.com", "web")
	port.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Number = 99
	elsewhere := pairOf(t, "gone", time.Now().Add(time.Hour), "a.com") // in a namespace other than the Ingress
	elsewhere.Namespace = "elsewhere"
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}, elsewhere, missing, port, service("web"),
		simple("late", "l.com", "late"), simple("twice", "p.com", "web"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "broken"},
			Data: map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("y")}},
		pairOf(t, "foreign", time.Now().Add(time.Hour), "other.com"), pairOf(t, "old", time.Unix(1e9, 0), "d.com"))
	c.ports("late")
	c.create(service("late")) // before the controller reports the missing Service
	want := []string{
		`missing BadBackend Service "gone" does not exist`,
		`missing BadCertificate Secret "broken": failed to find any PEM data in certificate input; clients get the ` +
			`default certificate`,
		`missing BadCertificate Secret "gone": it does not exist; clients get the default certificate`,
		`missing BadCertificate the certificate in Secret "foreign" is not for the host c.com`,
		`missing BadCertificate the certificate in Secret "old" has expired on 2001-09-09`,
		`port BadBackend Service "web" has no port 99`,
		`twice PathTaken Ingress "default/port" already serves path / of p.com, which this Ingress repeats`,
	}
	var got []string
	until(t, "the events", func() bool {
		events, err := client.List[*corev1.Event](t.Context(), c.Registry, client.Selector{Namespace: "default"})
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, e := range events {
			if e.Source.Component != "ingress-controller" || e.Type != corev1.EventTypeWarning ||
				e.InvolvedObject.Kind != "Ingress" || e.Count != 1 {
				t.Errorf("unexpected event: %+v", e)
			}
			got = append(got, e.InvolvedObject.Name+" "+e.Reason+" "+e.Message)
		}
		slices.Sort(got)
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The status contains the addresses of two nodes with one API. Then neither node writes it again.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.node("one", "192.0.2.1")
	c.node("two", "192.0.2.2")
	c.create(simple("shared", "a.com", "web"))
	addresses := func() (all []string) {
		for _, in := range c.ingress("shared").Status.LoadBalancer.Ingress {
			all = append(all, in.IP)
		}
		return all
	}
	// The listeners are on all addresses of the machine, so the status has the addresses of the nodes.
	c.start(Config{HTTP: ":0", Node: "one"})
	c.start(Config{HTTP: ":0", Node: "two"})
	until(t, "both addresses", func() bool { return slices.Equal(addresses(), []string{"192.0.2.1", "192.0.2.2"}) })
	before := c.ingress("shared").ResourceVersion
	c.create(simple("next", "b.com", "web")) // its status shows that both nodes have processed all earlier changes
	until(t, "both addresses of the next", func() bool { return len(c.ingress("next").Status.LoadBalancer.Ingress) == 2 })
	if c.ingress("shared").ResourceVersion != before || !slices.Equal(addresses(), []string{"192.0.2.1", "192.0.2.2"}) {
		t.Error("the nodes keep overwriting the status")
	}
	if _, err := c.Delete(t.Context(), client.Ref{Resource: client.Nodes, Name: "two"},
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	edit(c, simple("shared", "", ""), func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("other") })
	until(t, "no address", func() bool { return len(addresses()) == 0 })
}

// No request fails while a rolling update replaces all endpoints. Old endpoints complete their requests and refuse new
// connections.
func TestRollingChangeLosesNoRequest(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(Config{HTTP: "127.0.0.1:0", Node: "n"})
	c.create(service("web"), simple("web", "a.com", "web"))
	port, _ := c.ports("web")
	ip := func(n int) string { return fmt.Sprintf("10.0.0.%d", n) }
	var asked [13]atomic.Int64 // by endpoint
	begin := func(n int) func() {
		return c.pod(ip(n)+":8080", func(w http.ResponseWriter, r *http.Request) {
			asked[n].Add(1)
			var got bytes.Buffer
			_, _ = got.ReadFrom(r.Body)
			fmt.Fprint(w, "ok", got.Len())
		})
	}
	stops := map[int]func(){1: begin(1), 2: begin(2)}
	eps := slice("web", []string{ip(1), ip(2)})
	c.create(eps.DeepCopy())
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer web.CloseIdleConnections()
	until(t, "the first answer", func() bool { return ask(t, web, port, "a.com") == "200 ok0" })

	var sent [6]atomic.Int64 // by client
	var failed atomic.Int64
	end := make(chan struct{})
	var clients sync.WaitGroup
	for i := range sent {
		clients.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				method, body := http.MethodGet, ""
				if i%2 == 0 {
					method, body = http.MethodPost, "hello"
				}
				r, _ := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("http://127.0.0.1:%d/", port),
					strings.NewReader(body))
				r.Host = "a.com"
				if got := send(web, r); got != fmt.Sprint("200 ok", len(body)) {
					failed.Add(1)
					t.Errorf("%s: %s", method, got)
				}
				sent[i].Add(1)
			}
		})
	}
	// turn waits until each client has an answer to a request that it sent after the call of turn.
	turn := func() {
		for i := range sent {
			n := sent[i].Load() + 2
			until(t, "more requests", func() bool { return sent[i].Load() >= n })
		}
	}
	for n := 3; n <= 12; n++ {
		stops[n] = begin(n)
		edit(c, eps, func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = slice("", []string{ip(n - 1), ip(n)}, ip(n-2)).Endpoints
		})
		until(t, "a request to the new endpoint", func() bool { return asked[n].Load() > 0 })
		turn()       // then no request goes to the old endpoint, as after a preStop hook
		stops[n-2]() // completes its requests
		edit(c, eps, func(s *discoveryv1.EndpointSlice) { s.Endpoints = slice("", []string{ip(n - 1), ip(n)}).Endpoints })
		turn()
	}
	close(end)
	clients.Wait()
	all := int64(0)
	for i := range sent {
		all += sent[i].Load()
	}
	t.Logf("%d requests, %d failed", all, failed.Load())
}

// Public manifests name the class nginx, which is served until the class belongs to another controller. The users of an
// Ingress come from a Secret, and nobody gets in without it.
func TestClassNginxWithUsers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(Config{HTTP: "127.0.0.1:0", Node: "n", Classes: []string{autoClasses}})
	i := simple("web", "a.com", "web")
	i.Spec.IngressClassName = new("nginx")
	i.Annotations = map[string]string{"nginx.ingress.kubernetes.io/auth-type": "basic",
		"nginx.ingress.kubernetes.io/auth-secret": "users", "nginx.ingress.kubernetes.io/auth-secret-type": "auth-map"}
	c.pod("10.0.0.1:8080", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "web") })
	c.node("n", "127.0.0.1")
	c.create(service("web"), slice("web", []string{"10.0.0.1"}), i)
	port, _ := c.ports("web")
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	asks := func(password, want string) {
		t.Helper()
		until(t, want, func() bool {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", port), nil)
			r.Host = "a.com"
			r.SetBasicAuth("me", password)
			return strings.HasPrefix(send(web, r), want)
		})
	}
	asks("secret", "503 ")
	until(t, "an Event", func() bool {
		events, err := client.List[*corev1.Event](t.Context(), c.Registry, client.Selector{Namespace: "default"})
		return err == nil && len(events) == 1 && events[0].Message == `Secret "users": it does not exist`
	})
	users := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "users"},
		Data: map[string][]byte{"me": []byte("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=")}}
	c.create(users)
	asks("secret", "200 web")
	asks("wrong", "401 ")
	edit(c, users, func(s *corev1.Secret) { s.Data = map[string][]byte{"you": []byte("{SHA}x")} })
	asks("secret", "401 ")
	c.create(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "nginx"},
		Spec: networkingv1.IngressClassSpec{Controller: "k8s.io/ingress-nginx"}})
	asks("secret", "404 ")
	until(t, "no status", func() bool { return len(c.ingress("web").Status.LoadBalancer.Ingress) == 0 })
}

// A port that another program has is served when it is free, and left to a pod with the node's network.
func TestAutomaticPorts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr)
	c := newCluster(t)
	c.node("n", "192.0.2.1")
	c.pod("10.0.0.1:8080", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "web") })
	c.create(service("web"), slice("web", []string{"10.0.0.1"}), simple("web", "a.com", "web"))
	c.start(Config{HTTP: at.String(), Node: "n", automatic: map[string]bool{"http": true}})
	event := func(want string) {
		t.Helper()
		until(t, want, func() bool {
			events, err := client.List[*corev1.Event](t.Context(), c.Registry, client.Selector{Namespace: "default"})
			return err == nil && slices.ContainsFunc(events, func(e *corev1.Event) bool {
				return strings.Contains(e.InvolvedObject.Kind+" "+e.Reason+" "+e.Message, want)
			})
		})
	}
	by := fmt.Sprintf("port %d is taken by process %d ingress.test", at.Port, os.Getpid())
	event("Node IngressPortTaken The ingress controller does not listen on all ports: " + by)
	event("Ingress PortTaken HTTP is not served: " + by)
	if status := c.ingress("web").Status.LoadBalancer.Ingress; len(status) > 0 {
		t.Errorf("status %v without a port", status)
	}
	l.Close()
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	served := func() bool { return ask(t, web, int32(at.Port), "a.com") == "200 web" }
	until(t, "an answer", served)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "proxy"}, Spec: corev1.PodSpec{
		NodeName: "n", HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "i",
			Ports: []corev1.ContainerPort{{ContainerPort: int32(at.Port)}}}}}}
	c.create(pod)
	event(fmt.Sprintf("port %d is left to pod default/proxy", at.Port))
	until(t, "a free port", func() bool {
		l, err := net.Listen("tcp", at.String())
		if err == nil {
			l.Close()
		}
		return err == nil
	})
	if _, err := c.Delete(t.Context(), client.RefOf(pod), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	until(t, "an answer again", served)
}

// Run returns an error if a port is in use.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := newCluster(t)
	metrics, _ := follow.NewMetrics(nil)
	ctrl := New(follow.Deps{Client: c.Registry, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: metrics},
		Config{HTTP: "127.0.0.1:0", HTTPS: l.Addr().String(), Node: "n"})
	if err := ctrl.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("Run with a port in use returned %v", err)
	}
}
