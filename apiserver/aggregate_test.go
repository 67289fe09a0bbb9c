package apiserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"monopod/apiserver"
	"monopod/apiserver/aggregate"
	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/discovery"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/metrics"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

// other is another API server: it serves flunders of wardle.example.com/v1, and NodeMetrics.
type other struct {
	*httptest.Server
	down atomic.Bool
	seen atomic.Value // the headers of the last request of a user
	made atomic.Value // the last write of the server itself, as text
}

func newOther(t *testing.T) *other {
	t.Helper()
	o := &other{}
	mux := http.NewServeMux()
	resources := func(group, version, list string) {
		mux.HandleFunc("GET /apis/"+group+"/"+version, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/%s","resources":[%s]}`, group,
				version, list)
		})
	}
	resources("wardle.example.com", "v1", `{"name":"flunders","singularName":"flunder","namespaced":true,"kind":"Flunder","verbs":["delete","get","list","patch","watch"],"shortNames":["fl"]},
		{"name":"fossils","singularName":"fossil","namespaced":true,"kind":"Fossil","verbs":["delete","get","list"]},
		{"name":"flunders/status","namespaced":true,"kind":"Flunder","verbs":["get"]}`)
	resources("metrics.k8s.io", "v1beta1",
		`{"name":"nodes","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]}`)
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1/nodes",
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"kind":"OtherMetrics"}`) })
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1/namespaces/default/pods",
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("labelSelector") == "app=x" && r.Header.Get("Accept") == "application/json" {
				fmt.Fprint(w,
					`{"kind":"PodMetricsList","items":[{"metadata":{"name":"x-1"},"timestamp":"2026-01-02T03:04:05Z",`+
						`"window":"15s","containers":[{"name":"c","usage":{"cpu":"250m","memory":"8Mi"}}]}]}`)
			}
		})
	mux.HandleFunc("GET /openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w,
			`{"paths":{"apis/wardle.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/wardle.example.com/v1?hash=ABC"}}}`)
	})
	mux.HandleFunc("GET /openapi/v2", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"one"`)
		if r.Header.Get("If-None-Match") == `"one"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, `{"swagger":"2.0","paths":{"/apis/wardle.example.com/v1/flunders":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/com.example.wardle.v1.Flunder"}}}}},"/apis/apps/v1/forged":{}},
			"definitions":{"com.example.wardle.v1.Flunder":{"type":"object","x-kubernetes-group-version-kind":[{"group":"wardle.example.com","kind":"Flunder","version":"v1"}]}}}`)
	})
	mux.HandleFunc("GET /openapi/v3/apis/wardle.example.com/v1",
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"openapi":"3.0.0"}`) })
	mux.HandleFunc("/apis/wardle.example.com/v1/namespaces/default/flunders",
		func(w http.ResponseWriter, r *http.Request) {
			o.seen.Store(r.Header.Clone())
			if r.URL.Query().Get("watch") != "" {
				fmt.Fprintln(w, `{"type":"ADDED"}`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, `{"kind":"Flunder","method":%q,"query":%q,"body":%q}`, r.Method, r.URL.RawQuery, body)
		})
	const one = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x",` +
		`"namespace":"default","uid":"u","resourceVersion":"7","ownerReferences":[{"apiVersion":"v1","kind":"Pod",` +
		`"name":"p","uid":"o"}]}}`
	shaped := func(r *http.Request, as string) {
		// The aggregated server refuses other representations.
		if want := "application/json;as=" + as + ";g=meta.k8s.io;v=v1,application/json"; r.Header.Get("Accept") != want {
			t.Errorf("%s %s accepts %s", r.Method, r.URL, r.Header.Get("Accept"))
		}
	}
	mux.HandleFunc("GET /apis/wardle.example.com/v1/flunders", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			shaped(r, "PartialObjectMetadata")
			fmt.Fprintln(w, `{"type":"MODIFIED","object":`+one+`}`)
			return
		}
		shaped(r, "PartialObjectMetadataList")
		if r.URL.Query().Get("limit") != "500" {
			t.Errorf("limit is %s, want 500", r.URL.Query().Get("limit"))
		}
		fmt.Fprint(w,
			`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"8"},"items":[`+one+
				`]}`)
	})
	mux.HandleFunc("/apis/wardle.example.com/v1/namespaces/default/flunders/x",
		func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			shaped(r, "PartialObjectMetadata")
			if r.Method != http.MethodGet {
				o.made.Store(
					fmt.Sprint(r.Method, " ", r.Header.Get("Content-Type"), " by ", r.Header.Get("X-Remote-User"), " ", string(body)))
			}
			if r.Method == http.MethodDelete {
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
				return
			}
			fmt.Fprint(w, one)
		})
	mux.HandleFunc("/apis/wardle.example.com/v1/namespaces/default/flunders/x/dance/now",
		func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "dance" {
				fmt.Fprint(w, `{"kind":"Plain"}`)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: dance\r\n\r\nhello")
			conn.Close()
		})
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.down.Load() {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	o.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	o.StartTLS()
	t.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
	})
	return o
}

// aggregated is a server with an Aggregator, whose connections all lead to other.
func aggregated(t *testing.T, o *other) API {
	t.Helper()
	a, _ := aggregating(t, o)
	return a
}

func aggregating(t *testing.T, o *other) (API, *aggregate.Aggregator) {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources), History: 200}, nil, nil, 0)
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	agg := aggregate.New(aggregate.Config{API: reg, Log: zap.NewNop(), Announce: reg.Announce,
		Served: func() ([]kind.Resource, <-chan struct{}) {
			changed := reg.Changed()
			return reg.Resources(), changed
		},
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, o.Listener.Addr().String())
		}})
	srv, err := apiserver.New(t.Context(),
		apiserver.Config{Registry: reg, Authenticator: auth.Token(token, auth.Admin), Aggregator: agg})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv.Handler())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	metrics, err := follow.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	c := agg.Controller(follow.Deps{Client: reg, Clock: clock.RealClock{}, Log: zaptest.NewLogger(t), Metrics: metrics})
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		h.CloseClientConnections()
		h.Close()
		s.Close()
	})
	return API{t, h.URL, h.Client(), reg}, agg
}

// await waits until a request has an answer that contains a text.
func (a API) await(path, want string, header ...string) string {
	a.t.Helper()
	var last string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		resp := a.do("GET", path, "", header...)
		data, err := io.ReadAll(resp.Body)
		if last = string(data); err == nil && strings.Contains(last, want) {
			return last
		}
	}
	a.t.Fatalf("%s: %s; want %s", path, last, want)
	return ""
}

func (a API) remote(o *other, name, group, version string) {
	a.t.Helper()
	ca, _ := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw}))
	_ = ca // the certificate of httptest is for example.com
	code, made := a.read("POST", "/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":%q},
		"spec":{"group":%q,"version":%q,"groupPriorityMinimum":19000,"versionPriority":10,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"other"}}}`, name, group, version))
	if code != http.StatusCreated {
		a.t.Fatal(code, made)
	}
}

const services = "/apis/apiregistration.k8s.io/v1/apiservices/"

// The server that an APIService names serves its group version: availability, discovery, OpenAPI, and every request.
func TestAggregation(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	a, agg := aggregating(t, o)
	a.await(services+"v1.apps", `"reason":"Local","message":"Local APIServices are always available"`)
	a.await(services+"v1.", `"status":"True","type":"Available"`[:15])
	a.remote(o, "v1.wardle.example.com", "wardle.example.com", "v1")
	const flunders = "/apis/wardle.example.com/v1/namespaces/default/flunders"
	a.await(services+"v1.wardle.example.com",
		`"reason":"ServiceNotFound","message":"service/other in \"default\" is not present"`)
	if code, says := a.read("GET", flunders, ""); code != http.StatusServiceUnavailable {
		t.Errorf("without its Service: %d %v", code, says)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := a.reg.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	a.await(services+"v1.wardle.example.com",
		`"reason":"ServicePortError","message":"service/other in \"default\" is not listening on port 443"`)
	if _, err := client.Update(t.Context(), a.reg, service, "", func(s *corev1.Service) error {
		s.Spec.Ports[0].Port = 443
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	a.await(services+"v1.wardle.example.com", `"reason":"EndpointsNotFound"`)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other",
			Labels: map[string]string{discoveryv1.LabelServiceName: "other"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"},
			Conditions: discoveryv1.EndpointConditions{Ready: new(false)}}},
		Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(443))}}}
	if _, err := a.reg.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	a.await(services+"v1.wardle.example.com", `"reason":"MissingEndpoints"`)
	o.down.Store(true)
	if _, err := client.Update(t.Context(), a.reg, slice, "", func(s *discoveryv1.EndpointSlice) error {
		s.Endpoints[0].Conditions.Ready = new(true)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	a.await(services+"v1.wardle.example.com",
		`"reason":"FailedDiscoveryCheck","message":"failing or missing response from `+
			`https://other.default.svc:443/apis/wardle.example.com/v1: bad status from`)
	o.down.Store(false)
	a.read("PATCH", services+"v1.wardle.example.com", `{"metadata":{"labels":{"try":"again"}}}`,
		"Content-Type: application/merge-patch+json")
	a.await(services+"v1.wardle.example.com", `"reason":"Passed","message":"all checks passed"`)
	a.reached(o, flunders)
	a.discovered()
	a.cleaned(o, agg)

	a.remote(o, "v1beta1.metrics.k8s.io", "metrics.k8s.io", "v1beta1")
	a.await("/apis/metrics.k8s.io/v1beta1/nodes", `{"kind":"OtherMetrics"}`)
	measured, _, err := agg.Client(a.reg).List(t.Context(), client.Selector{Resource: metrics.Pods(), Namespace: "default",
		Labels: labels.SelectorFromSet(labels.Set{"app": "x"})})
	if err != nil || len(measured) != 1 {
		t.Fatalf("metrics of pods for controllers: %v, %v", measured, err)
	}
	if m := measured[0].(*metrics.PodMetrics); m.Name != "x-1" || m.Containers[0].Usage.Cpu().MilliValue() != 250 ||
		m.Window.Duration != 15*time.Second || m.Timestamp.Year() != 2026 {
		t.Errorf("metrics %+v", m)
	}
	a.read("DELETE", services+"v1beta1.metrics.k8s.io", "")
	a.await("/apis/metrics.k8s.io/v1beta1", `"kind":"PodMetrics"`)
	o.down.Store(true)
	a.read("PATCH", services+"v1.wardle.example.com", `{"metadata":{"labels":{"try":"once-more"}}}`,
		"Content-Type: application/merge-patch+json")
	a.await(services+"v1.wardle.example.com", `"reason":"FailedDiscoveryCheck"`)
	for end := time.Now().Add(20 * time.Second); fmt.Sprint(agg.Silent()) != "[wardle.example.com/v1]"; time.Sleep(
		5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("servers that do not answer: %v", agg.Silent())
		}
	}
	if doc := readBody(t, a.do("GET", "/openapi/v2", "")); !strings.Contains(doc, `"com.example.wardle.v1.Flunder"`) ||
		strings.Contains(doc, "forged") || !strings.Contains(doc, `"io.k8s.api.core.v1.Pod"`) {
		t.Error("OpenAPI v2 while the other server is down lacks its kinds or ours, or has paths that are not its own")
	}
	a.read("DELETE", services+"v1.wardle.example.com", "")
	a.await("/apis/wardle.example.com", `"code":404`)
	if doc := readBody(t, a.do("GET", "/openapi/v2", "")); strings.Contains(doc, "wardle") {
		t.Error("OpenAPI v2 still describes the other server's kinds")
	}
}

// reached sends requests that the other server answers.
func (a API) reached(o *other, flunders string) {
	t := a.t
	t.Helper()
	code, got := a.read("POST", flunders+"?dryRun=All", "the body", "X-Remote-User: forged", "X-Remote-Extra-A: forged",
		"Impersonate-User: jane", "Impersonate-Group: devs", "Impersonate-Extra-Acme.com%2fteam: x")
	if code != 200 || got["method"] != "POST" || got["query"] != "dryRun=All" || got["body"] != "the body" {
		t.Errorf("%d %v", code, got)
	}
	seen := o.seen.Load().(http.Header)
	if seen.Get("Authorization") != "" || seen.Get("Impersonate-User") != "" ||
		fmt.Sprint(seen["X-Remote-User"]) != "[jane]" ||
		!strings.Contains(fmt.Sprint(seen["X-Remote-Group"]), "devs") || seen.Get("X-Remote-Extra-A") != "" ||
		seen.Get("X-Remote-Extra-Acme.com%2fteam") != "x" {
		t.Errorf("headers %v", seen)
	}
	scan := bufio.NewScanner(a.do("GET", flunders+"?watch=true", "").Body)
	if !scan.Scan() || scan.Text() != `{"type":"ADDED"}` {
		t.Errorf("watch: %s", scan.Text())
	}
	if code, got := a.read("GET", flunders+"/x/dance/now", ""); code != 200 || got["kind"] != "Plain" {
		t.Errorf("a deep path: %d %v", code, got)
	}
	resp := a.do("GET", flunders+"/x/dance/now", "", "Connection: Upgrade", "Upgrade: dance")
	if data, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusSwitchingProtocols || string(data) != "hello" {
		t.Errorf("an upgrade: %d %s", resp.StatusCode, data)
	}
}

// cleaned checks that controllers of all kinds see the other server's objects, can release and delete them, and learn
// of its kinds.
func (a API) cleaned(o *other, agg *aggregate.Aggregator) {
	t, resource := a.t, schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1", Resource: "flunders"}
	t.Helper()
	kinds := agg.Kinds(registry.ServedBy(a.reg))
	for {
		all, changed := kinds()
		if slices.Contains(all, client.Kind{Resource: resource, Kind: "Flunder", Namespaced: true}) {
			fossils := client.Kind{Resource: resource.GroupVersion().WithResource("fossils"), Kind: "Fossil", Namespaced: true,
				Unwatched: true}
			if !slices.Contains(all, fossils) || slices.Contains(kinds.Watched().Now(), fossils) {
				t.Errorf("a kind without watch: %v", all)
			}
			break
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Second):
			t.Fatalf("kinds %v", all)
		}
	}
	c, ctx := agg.Client(a.reg), t.Context()
	objs, rev, err := c.List(ctx, client.Selector{Resource: resource})
	if err != nil || rev != "8" || len(objs) != 1 || objs[0].GetName() != "x" ||
		objs[0].GetObjectKind().GroupVersionKind().Kind != "Flunder" {
		t.Errorf("list: %v %s %v", objs, rev, err)
	}
	events, err := c.Watch(ctx, client.Selector{Resource: resource}, rev)
	if err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Type != watch.Modified || e.Object.(client.Object).GetUID() != "u" {
		t.Errorf("watch: %v", e)
	}
	ref := client.Ref{Resource: resource, Namespace: "default", Name: "x"}
	if _, err := c.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(client.Object)
		next.SetOwnerReferences(nil)
		return next, nil
	}); err != nil || o.made.Load() != `PATCH application/merge-patch+json by system:kube-controller-manager `+
		`{"metadata":{"finalizers":null,"ownerReferences":null,"resourceVersion":"7","uid":"u"}}` {
		t.Errorf("update: %v %v", o.made.Load(), err)
	}
	if _, err := c.Delete(ctx, ref, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("u")}); err != nil ||
		o.made.Load() != `DELETE application/json by system:kube-controller-manager {"preconditions":{"uid":"u"}}` {
		t.Errorf("delete: %v %v", o.made.Load(), err)
	}
	if _, err := c.Get(ctx, client.Ref{Resource: client.Namespaces, Name: "default"}); err != nil {
		t.Errorf("an object of this server: %v", err)
	}
	if silent := agg.Silent(); len(silent) > 0 {
		t.Errorf("servers that do not answer: %v", silent)
	}
}

func (a API) discovered() {
	a.t.Helper()
	for _, c := range []struct{ path, accept, want string }{
		{"/apis", "", `{"name":"wardle.example.com","versions":[{"groupVersion":"wardle.example.com/v1","version":"v1"}]`},
		{"/apis/wardle.example.com", "", `"preferredVersion":{"groupVersion":"wardle.example.com/v1"`},
		{"/apis/wardle.example.com/v1", "", `"shortNames":["fl"]`},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
			`"resource":"flunders","responseKind":{"group":"wardle.example.com","version":"v1","kind":"Flunder"},` +
				`"scope":"Namespaced"`},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", `"subresource":"status"`},
		{"/openapi/v2", "", `"com.example.wardle.v1.Flunder":{"type":"object",` +
			`"x-kubernetes-group-version-kind":[{"group":"wardle.example.com"`},
		{"/openapi/v2", "", `"/apis/wardle.example.com/v1/flunders":{"get":`},
		{"/openapi/v3", "", `"apis/wardle.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/wardle.example.com/v1?hash=ABC"}`},
		{"/openapi/v3/apis/wardle.example.com/v1?hash=ABC", "", `{"openapi":"3.0.0"}`},
	} {
		resp := a.do("GET", c.path, "", "Accept: "+c.accept)
		if data, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || !strings.Contains(string(data), c.want) {
			a.t.Errorf("%s %s: %d %.2000s; want %s", c.path, c.accept, resp.StatusCode, data, c.want)
		}
	}
}

// same is a ResponseWriter that keeps the address of the first byte written to it.
type same struct {
	header http.Header
	first  *byte
	size   int
}

func (s *same) Header() http.Header { return s.header }

func (s *same) WriteHeader(int) {}

func (s *same) Write(p []byte) (int, error) {
	if s.size == 0 && len(p) > 0 {
		s.first = &p[0]
	}
	s.size += len(p)
	return len(p), nil
}

// Concurrent clients receive the same bytes, also with groups of other servers: the server builds the document once.
func TestDiscoveryIsBuiltOnce(t *testing.T) {
	t.Parallel()
	o := newOther(t)
	a, agg := aggregating(t, o)
	a.remote(o, "v1.wardle.example.com", "wardle.example.com", "v1")
	a.await("/apis", "wardle.example.com", asAggregated)
	docs := discovery.New(discovery.Config{Resources: a.reg.Resources, Aggregator: agg,
		Out: &codec.Responder{Log: zap.NewNop(), Clock: clock.RealClock{}}, Clock: clock.RealClock{}})
	key, accepts, _ := strings.Cut(asAggregated, ": ")
	answers := make([]same, 50)
	var wg sync.WaitGroup
	for i := range answers {
		answers[i].header = http.Header{}
		wg.Go(func() {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis", nil)
			r.Header.Set(key, accepts)
			docs.DiscoverGroups(&answers[i], r)
		})
	}
	wg.Wait()
	for _, got := range answers {
		if got.first == nil || got.first != answers[0].first || got.size < 1000 {
			t.Fatalf("%p, %d bytes; another client: %p", got.first, got.size, answers[0].first)
		}
	}
}

// An APIService without a server, or with an invalid one, is refused with the field.
func TestBadAPIServices(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, c := range []struct{ name, spec, want string }{
		{"v1.x.example.com", `{"group":"example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1}`,
			`metadata.name: Invalid value: "v1.x.example.com": must be `},
		{"v2.", `{"version":"v2","groupPriorityMinimum":1,"versionPriority":1}`, "spec.group: Required value"},
		{"v1.A", `{"group":"A","version":"v1","groupPriorityMinimum":1,"versionPriority":1}`, "spec.group: Invalid value"},
		{"1.a", `{"group":"a","version":"1","groupPriorityMinimum":1,"versionPriority":1}`, "spec.version: Invalid value"},
		{"v1.a", `{"group":"a","version":"v1","groupPriorityMinimum":0,"versionPriority":1}`,
			"spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000"},
		{"v1.a", `{"group":"a","version":"v1","groupPriorityMinimum":1,"versionPriority":1001}`,
			"spec.versionPriority: Invalid value: 1001: must be positive and less than 1000"},
		{"v1.a", `{"group":"a","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"caBundle":"YQ=="}`,
			"spec.caBundle: Invalid value"},
		{"v1.a", `{"group":"a","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"insecureSkipTLSVerify":true}`,
			"spec.insecureSkipTLSVerify: Invalid value: true: local"},
		{"v1.a", `{"group":"a","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"service":{}}`,
			"spec.service.namespace: Required value"},
		{"v1.a", `{"group":"a","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"service":{"namespace":"a"}}`,
			"spec.service.name: Required value"},
		{"v1.a", `{"group":"a","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"service":{"namespace":"a",` +
			`"name":"b","port":70000}}`, "spec.service.port: Invalid value: 70000"},
		{"v1.a", `{"group":"a","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"caBundle":"YQ==",` +
			`"insecureSkipTLSVerify":true,"service":{"namespace":"a","name":"b"}}`,
			"spec.insecureSkipTLSVerify: Invalid value: true: may not be true"},
	} {
		code, got := a.read("POST", "/apis/apiregistration.k8s.io/v1/apiservices",
			fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":%q},"spec":%s}`,
				c.name, c.spec))
		if code != http.StatusUnprocessableEntity || !strings.Contains(fmt.Sprint(got["message"]), c.want) {
			t.Errorf("%s: %d %v; want %s", c.spec, code, got["message"], c.want)
		}
	}
}

// The groups of custom resources are in a role for view.token as long as they are served.
func TestViewerOfCustomResources(t *testing.T) {
	t.Parallel()
	a := aggregated(t, newOther(t))
	text, err := yaml.JSONToYAML([]byte(definitionOf(`{"type":"object"}`)))
	if err != nil {
		t.Fatal(err)
	}
	a.define(string(text))
	const role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:monopod:custom-resources"
	a.await(role, `"rules":[{"verbs":["get","list","watch"],"apiGroups":["example.com"],"resources":["*"]}]`)
}
