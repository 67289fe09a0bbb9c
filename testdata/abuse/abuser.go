package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"monopod/testdata/abuse/hostile"
)

// abuser is a client that sends random, invalid and hostile requests.
type abuser struct {
	server *server
	rand   *rand.Rand
	users  []user
	heard  *tally
	worst  []hostile.Request
}

// act does one random action.
func (a *abuser) act(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	switch n := a.rand.IntN(100); {
	case n < 40:
		a.request(ctx)
	case n < 50:
		a.life(ctx)
	case n < 60:
		a.watch(ctx)
	case n < 72:
		a.upgrade(ctx)
	case n < 84:
		a.configure(ctx)
	case n < 92:
		a.raw(ctx)
	default:
		a.hostile(ctx)
	}
}

// one returns a random element.
func one[T any](a *abuser, of ...T) T { return of[a.rand.IntN(len(of))] }

// user returns a random user, preferably one with permissions.
func (a *abuser) user() user { return one(a, slices.Concat(a.users, a.users[:3])...) }

// send sends a request as a user and records the response.
func (a *abuser) send(ctx context.Context, u user, method, path, contentType string, body []byte) {
	code, data, err := a.server.do(ctx, u, method, path, contentType, body)
	if err != nil {
		a.heard.dropped()
		return
	}
	a.heard.add(fmt.Sprintf("%s %s %s as %s with %.200q", method, path, contentType, u.name, body), code, string(data))
}

// The parts of requests. Deletions of collections, and of objects that the users need, are dry runs or limited to the
// namespace.
var (
	methods = []string{"GET", "GET", "GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE",
		"BREW"}
	subs = []string{"", "", "", "", "/status", "/log", "/scale", "/eviction", "/binding", "/ephemeralcontainers",
		"/resize", "/proxy/", "/exec", "/token", "/none"}
	objects = []string{"", "", "/target", "/a", "/b", "/c", "/%61", "/..", "/%2e%2e", "/A_B", "/" +
		strings.Repeat("x", 300), "/a%00", "/é"}
	kinds = []string{"configmaps", "pods", "secrets", "services", "events", "serviceaccounts", "persistentvolumeclaims",
		"nothing", "limitranges", "endpoints"}
	grouped = []string{"apps/v1/namespaces/abuse/deployments", "apps/v1/namespaces/abuse/replicasets",
		"apps/v1/namespaces/abuse/statefulsets", "batch/v1/namespaces/abuse/jobs", "batch/v1/namespaces/abuse/cronjobs",
		"coordination.k8s.io/v1/namespaces/abuse/leases", "autoscaling/v2/namespaces/abuse/horizontalpodautoscalers",
		"policy/v1/namespaces/abuse/poddisruptionbudgets", "networking.k8s.io/v1/namespaces/abuse/networkpolicies",
		"networking.k8s.io/v1/namespaces/abuse/ingresses", "networking.k8s.io/v1/servicecidrs",
		"networking.k8s.io/v1/ipaddresses", "certificates.k8s.io/v1/clustertrustbundles",
		"flowcontrol.apiserver.k8s.io/v1/flowschemas", "apiregistration.k8s.io/v1/apiservices",
		"admissionregistration.k8s.io/v1/mutatingadmissionpolicies", "apiextensions.k8s.io/v1/customresourcedefinitions",
		"apps/v1/namespaces/abuse/daemonsets", "storage.k8s.io/v1/storageclasses",
		"metrics.k8s.io/v1beta1/namespaces/abuse/pods", "discovery.k8s.io/v1/namespaces/abuse/endpointslices",
		"events.k8s.io/v1/namespaces/abuse/events", "none/v1/things", "abuse.io/v1/namespaces/abuse/things"}
	odd = []string{"/", "/api", "/apis", "/apis", "/api/", "/apis/apps", "/healthz/x", "/metrics", "/openapi/v2",
		"/openapi/v3", "/openapi/v3/api/v1", "/version", "/configz", "/readyz?verbose", "/login", "/debug/controllers/x",
		"/debug/pprof/goroutine?debug=1", "/.well-known/openid-configuration", "//api//v1", "/api/v1/nodes",
		"/api/v1/namespaces/abuse/status", "/%", "/api/v1/nodes/x/proxy/pods",
		"/apis/authentication.k8s.io/v1/selfsubjectreviews", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		"/apis/metrics.k8s.io/v1beta1/pods", "/apis/abuse.io/v1", "/apis/abuse.io/v1/things", "/openapi/v3/apis/abuse.io/v1",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.abuse.io/status",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"}
	queries = []string{"", "", "", "", "?dryRun=All", "?limit=1", "?limit=-1", "?continue=x", "?labelSelector=a+in+(b,c)",
		"?labelSelector=(((", "?fieldSelector=metadata.name%3Da", "?fieldSelector=a%3Db,c", "?resourceVersion=1",
		"?resourceVersion=99999999999", "?pretty=true", "?fieldValidation=Strict", "?fieldManager=m",
		"?fieldManager=m&force=true", "?timeout=1ms", "?timeout=x", "?gracePeriodSeconds=0", "?gracePeriodSeconds=-1",
		"?propagationPolicy=Foreground", "?propagationPolicy=Orphan", "?propagationPolicy=x", "?a;b", "?%zz",
		"?includeObject=Object", "?tailLines=x", "?orphanDependents=1"}
	accepts = []string{"", "", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
		"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
		"application/json;as=Table;v=v9;g=x", "application/yaml;as=Table;v=v1;g=meta.k8s.io", "text/html", "*/*;q=0.1",
		"application/cbor"}
	contents = []string{"", "application/json", "application/json", "application/yaml",
		"application/vnd.kubernetes.protobuf", "application/merge-patch+json", "application/strategic-merge-patch+json",
		"application/json-patch+json", "application/apply-patch+yaml", "application/x-www-form-urlencoded", "text/plain",
		";;", "application/json; charset=x"}
	bodies = []string{
		"", "{}", "[]", "null", "1", `"x"`, "{", "\x00", "k8s\x00", "k8s\x00\x0a\xff", "a: b", "- a", "a: &a [*a]",
		"metadata: {name: a}\n---\nmetadata: {name: b}",
		`{"metadata":{"name":"a"}}`, `{"metadata":{"name":"b","labels":{"a":"b"}},"data":{"k":"v"}}`,
		`{"metadata":{"generateName":"a-"}}`, `{"metadata":{"name":"target"},"data":{"k":"w"}}`,
		`{"metadata":{"labels":{"x":null}}}`, `{"metadata":{"finalizers":["abuse/x"]}}`, `{"metadata":{"finalizers":null}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"x","blockOwnerDeletion":true}]}}`,
		`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"remove","path":"/data"}]`,
		`[{"op":"test","path":"/metadata/name","value":"x"}]`, `[{"op":"copy","from":"/metadata","path":"/data"}]`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"target"},"data":{"k":"x"}}`,
		`{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		`{"metadata":{"name":"a"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},` +
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		`{"metadata":{"name":"c"},"spec":{"ports":[{"port":80}]}}`, `{"spec":{"replicas":-1}}`,
		`{"preconditions":{"uid":"x"}}`, `{"propagationPolicy":"Foreground","gracePeriodSeconds":0}`, `{"dryRun":["All"]}`,
		`{"metadata":{"name":"target"},"spec":{"items":[{},{"ports":null}],"color":"red","replicas":1,"x":1}}`,
		`{"spec":{"set":["a","a"],"keyed":[{"name":"a"},{"name":"a"}],"map":{"a":1}},` +
			`"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
		`{"target":{"kind":"Node","name":"nowhere"},"metadata":{"name":"a"}}`,
		`{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, `{"spec":{"overhead":{"cpu":"1e99999999"}}}`,
	}
)

// path returns a random path.
func (a *abuser) path() string {
	var path string
	switch a.rand.IntN(10) {
	case 0:
		return one(a, odd...)
	case 1, 2:
		path = "/apis/" + one(a, grouped...)
	case 3:
		path = "/api/v1/" + one(a, kinds...)
	default:
		path = nsPath + "/" + one(a, kinds...)
	}
	if object := one(a, objects...); object != "" {
		path += object + one(a, subs...)
	}
	if query := one(a, queries...); query != "" {
		return path + query
	}
	return path
}

// request sends a random request. Outside of the abused namespace, the administrator only sends GETs.
func (a *abuser) request(ctx context.Context) {
	u, method := a.user(), one(a, methods...)
	path := a.path()
	if (u.name == "admin" && !strings.Contains(path, "/abuse/")) || strings.Contains(path, "serviceaccounts") {
		method = "GET"
	}
	body := []byte(one(a, bodies...))
	if len(body) > 0 && a.rand.IntN(4) == 0 {
		body = a.garbled(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.server.url.String()+path, bytes.NewReader(body))
	if err != nil {
		return // net/http cannot send this request
	}
	req.Header.Set("Authorization", "Bearer "+u.token)
	for name, of := range map[string][]string{"Accept": accepts, "Content-Type": contents} {
		if v := one(a, of...); v != "" {
			req.Header.Set(name, v)
		}
	}
	if a.rand.IntN(20) == 0 {
		req.Header.Set(one(a, "Impersonate-User", "Impersonate-Group", "Impersonate-Extra-x", "X-Long", "Accept-Encoding"),
			one(a, "x", "system:masters", strings.Repeat("x", 100_000), "gzip"))
	}
	resp, err := u.http.Do(req)
	if err != nil {
		a.heard.dropped()
		return
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, int64(one(a, 0, 1000, 10<<20))))
	a.heard.add(fmt.Sprintf("%s %s %s as %s with %q", method, path, req.Header.Get("Content-Type"), u.name, body),
		resp.StatusCode, string(data))
}

// garbled returns a body that is truncated, repeated, or has a changed byte or an insertion.
func (a *abuser) garbled(body []byte) []byte {
	out := bytes.Clone(body)
	at := a.rand.IntN(len(out))
	switch a.rand.IntN(4) {
	case 0:
		return out[:at]
	case 1:
		out[at] = byte(a.rand.IntN(256))
		return out
	case 2:
		return bytes.Repeat(out, 1+a.rand.IntN(50))
	}
	return append(append(bytes.Clone(out[:at]), `{"a":[`...), out[at:]...)
}

// life creates, patches and deletes a pod with unusual options.
func (a *abuser) life(ctx context.Context) {
	u, name := one(a, a.users[:3]...), fmt.Sprintf("life-%x", a.rand.Uint32())
	finalizer := one(a, "", "", `,"finalizers":["abuse/x"]`)
	a.send(ctx, u, "POST", nsPath+"/pods", "application/json",
		fmt.Appendf(nil,
			`{"metadata":{"name":%q%s},"spec":{"containers":[{"name":"c","image":%q}],"terminationGracePeriodSeconds":%d}}`,
			name, finalizer, one(a, "monopod.local/web:1", "none", "x/y:z"), a.rand.IntN(3)))
	for range a.rand.IntN(3) {
		a.send(ctx, a.user(), "PATCH", nsPath+"/pods/"+name+one(a, "", "/status"), one(a, contents[5:9]...),
			[]byte(one(a, bodies...)))
	}
	options := []byte(
		one(a, "", `{"gracePeriodSeconds":0}`, `{"propagationPolicy":"Foreground"}`,
			`{"gracePeriodSeconds":1,"propagationPolicy":"Orphan"}`, "{"))
	a.send(ctx, u, "DELETE", nsPath+"/pods/"+name+one(a, "", "?gracePeriodSeconds=0", "?propagationPolicy=x"),
		"application/json", options)
	if finalizer != "" {
		a.send(ctx, u, "PATCH", nsPath+"/pods/"+name, "application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null}}`))
	}
	a.send(ctx, u, "DELETE", nsPath+"/pods/"+name+"?gracePeriodSeconds=0", "", nil)
	if a.rand.IntN(10) == 0 {
		a.send(ctx, u, "DELETE", nsPath+"/"+one(a, "pods", "configmaps")+"?labelSelector=a%3Db", "application/json", options)
	}
}

// watch opens a watch and closes it within half a second.
func (a *abuser) watch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.rand.IntN(500))*time.Millisecond)
	defer cancel()
	u := a.user()
	path := nsPath + "/" + one(a, kinds...) + "?watch=1" +
		one(a, "", "&resourceVersion=0", "&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
			"&timeoutSeconds=1", "&labelSelector=a", "&resourceVersion=1")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server.url.String()+path, nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+u.token)
	req.Header.Set("Accept", one(a, accepts...))
	resp, err := u.http.Do(req)
	if err != nil {
		a.heard.dropped()
		return
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, int64(one(a, 0, 1000, 1<<20))))
	a.heard.add("GET "+path, resp.StatusCode, string(data))
}

// dial opens a TLS connection without an HTTP client.
func (a *abuser) dial(ctx context.Context) (*tls.Conn, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	conn, err := d.DialContext(ctx, "tcp", a.server.url.Host)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), conn.SetDeadline(time.Now().Add(2 * time.Second))
}

// raw sends what an HTTP client does not send: bodies that arrive slowly or end early, headers without end, or no HTTP.
func (a *abuser) raw(ctx context.Context) {
	conn, err := a.dial(ctx)
	if err != nil {
		a.heard.dropped()
		return
	}
	defer conn.Close()
	head := fmt.Sprintf(
		"%s %s/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n",
		one(a, "POST", "PUT", "PATCH", "DELETE"), nsPath, a.user().token)
	switch a.rand.IntN(6) {
	case 0: // a slow body
		fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n", head, one(a, 100, 100_000, 3<<20))
		for range 10 {
			if _, err := conn.Write([]byte(`{"metadata":`)); err != nil || sleep(ctx, 50*time.Millisecond) != nil {
				return
			}
		}
	case 1: // a body that ends early
		fmt.Fprintf(conn, "%sContent-Length: 1000\r\n\r\n{", head)
		if conn.CloseWrite() != nil {
			return
		}
	case 2: // invalid chunks
		fmt.Fprintf(conn, "%sTransfer-Encoding: chunked\r\n\r\nffffffff\r\n{}", head)
	case 3: // headers without end
		io.WriteString(conn, head)
		for range 100 {
			if _, err := fmt.Fprintf(conn, "X-A: %s\r\n", strings.Repeat("x", 8000)); err != nil {
				break
			}
		}
	case 4:
		io.WriteString(conn, strings.Repeat("\x00garbage", 1000))
	case 5: // send nothing
	}
	if a.rand.IntN(2) == 0 {
		io.Copy(io.Discard, io.LimitReader(conn, 1000))
	}
	a.heard.dropped()
}

// hostile sends one of the hostile requests.
func (a *abuser) hostile(ctx context.Context) {
	if a.worst == nil {
		a.worst = hostile.Requests(namespace)
	}
	r := one(a, a.worst...)
	a.send(ctx, a.user(), r.Method, r.Path, r.ContentType, []byte(r.Body))
}
