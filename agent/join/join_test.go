package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	certificatesv1 "k8s.io/api/certificates/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/nodetunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an authority, and servers that it has signed.
type cluster struct {
	*testing.T
	ca   *auth.Authority
	hash string
}

func newCluster(t *testing.T) *cluster {
	ca, err := auth.OpenAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	hash, err := auth.CAHashPEM(ca.PEM)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t, ca, hash}
}

// serve returns the URL of a server with a certificate for the names.
func (c *cluster) serve(h http.Handler, names ...string) *httptest.Server {
	pair, err := c.ca.Serving(time.Now(), append(names, "127.0.0.1"))
	if err != nil {
		c.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		c.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	srv.EnableHTTP2 = true
	srv.StartTLS()
	c.Cleanup(srv.Close)
	return srv
}

func (c *cluster) deps() Deps {
	return Deps{Clock: clock.RealClock{}, Log: zaptest.NewLogger(c),
		New: func(schema.GroupVersionResource, string) client.Object {
			return &certificatesv1.CertificateSigningRequest{}
		}}
}

// signs is the API of certificate requests. It records the tokens and client certificates of its users.
type signs struct {
	*cluster
	denied  string // message of the condition; empty: requests are approved
	pending func() // called for each look at a request that is not decided; nil: requests are decided
	invalid bool   // no token is valid
	users   []string
	last    *certificatesv1.CertificateSigningRequest
}

func (s *signs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := r.Header.Get("Authorization")
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		user = certs[0].Subject.CommonName
	}
	s.users = append(s.users, user)
	if s.invalid {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","reason":"Unauthorized","code":401}`)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		next := &certificatesv1.CertificateSigningRequest{}
		if err := json.NewDecoder(r.Body).Decode(next); err != nil {
			s.Error(err)
		}
		if s.last != nil && s.last.Name == next.Name {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","reason":"AlreadyExists","code":409}`)
			return
		}
		s.last = next
	case s.pending != nil:
		s.pending()
	case s.denied != "":
		s.last.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateDenied, Status: "True", Message: s.denied}}
	default:
		block, _ := pem.Decode(s.last.Spec.Request)
		x, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			s.Error(err)
		}
		s.last.Status.Certificate, err = s.ca.Sign(time.Now(), x509.Certificate{Subject: x.Subject,
			NotAfter:    time.Now().Add(time.Duration(*s.last.Spec.ExpirationSeconds) * time.Second),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, x.PublicKey)
		if err != nil {
			s.Error(err)
		}
	}
	_ = json.NewEncoder(w).Encode(s.last)
}

// A machine joins with the token, later uses its certificate without the token, and renews it with the certificate.
func TestJoin(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	api := &signs{cluster: c}
	server := c.serve(api)
	dir := t.TempDir()
	r := Request{DataDir: dir, Node: "n", Server: server.URL + "/", Token: "id.secret", CAHash: c.hash}
	i, err := c.deps().Join(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if cert := i.certificate().Leaf; cert.Subject.CommonName != "system:node:n" ||
		strings.Join(cert.Subject.Organization, "") != "system:nodes" || time.Until(cert.NotAfter) < 9*365*24*time.Hour {
		t.Errorf("%v until %v", cert.Subject, cert.NotAfter)
	}
	again, err := c.deps().Join(t.Context(), Request{DataDir: dir, Node: "n"})
	if err != nil || !again.certificate().Leaf.Equal(i.certificate().Leaf) {
		t.Fatalf("again: %v", err)
	}
	if err := c.deps().renew(t.Context(), again, "n", c.deps().Client(again)); err != nil {
		t.Fatal(err)
	}
	if again.certificate().Leaf.Equal(i.certificate().Leaf) {
		t.Error("the certificate is the old one")
	}
	want := "Bearer id.secret,Bearer id.secret,system:node:n,system:node:n"
	if got := strings.Join(api.users, ","); got != want {
		t.Errorf("requests of %s, want %s", got, want)
	}
	files, err := os.ReadDir(dir + "/node")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f.Name(), info.Mode(), err)
		}
	}
	for name, bad := range map[string]struct {
		r    Request
		says string
	}{
		"another name":    {Request{DataDir: dir, Node: "m"}, `has joined as node "n", not "m"; run monopod leave first`},
		"another cluster": {Request{DataDir: dir, Node: "n", CAHash: "sha256:00"}, "node of another cluster"},
	} {
		if _, err := c.deps().Join(t.Context(), bad.r); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Refusals are errors that say what to do. A server that is not the cluster's gets neither the token nor anything else.
func TestRefused(t *testing.T) {
	t.Parallel()
	c, other := newCluster(t), newCluster(t)
	var stranger signs
	stranger.cluster = other
	fake := other.serve(&stranger)
	// It shows the authority of the cluster beside its own certificate, or has the key of a node.
	pretending := func(cert tls.Certificate) string {
		srv := httptest.NewUnstartedServer(&stranger)
		block, _ := pem.Decode(c.ca.PEM)
		cert.Certificate = [][]byte{cert.Certificate[0], block.Bytes}
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
		srv.StartTLS()
		c.Cleanup(srv.Close)
		return srv.URL
	}
	foreign := pretending(fake.TLS.Certificates[0])
	node := pretending(*c.identity().cert)
	denied := c.serve(&signs{cluster: c, denied: "node n exists"})
	expired := c.serve(&signs{cluster: c, invalid: true})
	misnamed := c.serve(&signs{cluster: c})
	for name, bad := range map[string]struct {
		r    Request
		says string
	}{
		"nothing":     {Request{}, "this machine has not joined yet"},
		"http":        {Request{Server: "http://h:1", Token: "t", CAHash: c.hash}, "the server must be https://HOST:PORT"},
		"a path":      {Request{Server: "https://h:1/api", Token: "t", CAHash: c.hash}, "the server must be https://HOST:PORT"},
		"fake server": {Request{Server: fake.URL, Token: "t", CAHash: c.hash}, "is not a server of the cluster"},
		"fake server with the authority": {Request{Server: foreign, Token: "t", CAHash: c.hash},
			"certificate signed by unknown authority"},
		"fake server with a node's key": {Request{Server: node, Token: "t", CAHash: c.hash}, "x509: "},
		"wrong name":                    {Request{Server: strings.Replace(misnamed.URL, "127.0.0.1", "localhost", 1), Token: "t", CAHash: c.hash}, "localhost"},
		"denied":                        {Request{Server: denied.URL, Token: "t", CAHash: c.hash}, "denied: node n exists"},
		"bad token":                     {Request{Server: expired.URL, Token: "t", CAHash: c.hash}, "the token is not valid"},
		"no such hash":                  {Request{Server: denied.URL, Token: "t", CAHash: "sha256:00"}, "is not a server of the cluster"},
	} {
		bad.r.DataDir, bad.r.Node = t.TempDir(), "n"
		if _, err := c.deps().Join(t.Context(), bad.r); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(stranger.users) > 0 {
		t.Errorf("the fake server got requests of %v", stranger.users)
	}
}

// A join that was interrupted after its request goes on with it: a second request could need a second use of the token.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ctx, interrupt := context.WithCancel(t.Context())
	api := &signs{cluster: c, pending: interrupt}
	server := c.serve(api)
	r := Request{DataDir: t.TempDir(), Node: "n", Server: server.URL, Token: "t", CAHash: c.hash}
	if _, err := c.deps().Join(ctx, r); err == nil {
		t.Fatal("not interrupted")
	}
	first := api.last.Name
	api.pending = nil
	if _, err := c.deps().Join(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if api.last.Name != first {
		t.Errorf("requests %s and %s", first, api.last.Name)
	}
}

// After a refusal, the next attempt is another request.
func TestAgainAfterRefusal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	api := &signs{cluster: c, denied: "node n exists"}
	server := c.serve(api)
	r := Request{DataDir: t.TempDir(), Node: "n", Server: server.URL, Token: "t", CAHash: c.hash}
	if _, err := c.deps().Join(t.Context(), r); err == nil {
		t.Fatal("not denied")
	}
	api.denied = ""
	if _, err := c.deps().Join(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// identity returns the identity of a node that knows the servers.
func (c *cluster) identity(servers ...string) *Identity {
	i := &Identity{folder: folder(c.TempDir()), ca: c.ca.PEM, servers: servers, changed: make(chan struct{})}
	pair, err := c.ca.Client(time.Now(), auth.User{Name: "system:node:n", Groups: []string{auth.Nodes}})
	if err != nil {
		c.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		c.Fatal(err)
	}
	i.cert, i.issued = &cert, time.Now()
	return i
}

// A certificate is renewed when a fifth of its life is left, whatever its NotBefore says.
func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	i := &Identity{issued: now, cert: &tls.Certificate{Leaf: &x509.Certificate{Subject: pkix.Name{CommonName: "n"},
		NotBefore: time.Unix(0, 0), NotAfter: now.Add(100 * time.Hour)}}}
	for hours, want := range map[time.Duration]bool{0: false, 79: false, 81: true, 200: true} {
		if got := i.due(now.Add(hours * time.Hour)); got != want {
			t.Errorf("after %d hours: %v", hours, got)
		}
	}
}

// Requests go to a server that answers. One that may have been handled is not sent again.
func TestServers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	}
	down := c.serve(named("down"))
	down.Close()
	var breaks atomic.Int32
	broken := c.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		breaks.Add(1)
		panic(http.ErrAbortHandler)
	}))
	up := c.serve(named("up"))
	get := func(to http.RoundTripper) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://any/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := to.RoundTrip(req)
		if err != nil {
			return "error"
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		return string(data)
	}
	i := c.identity(down.URL, up.URL)
	to := &servers{identity: i, to: transport(i.TLS())}
	if first, second := get(to), get(to); first != "up" || second != "up" {
		t.Errorf("%s, %s", first, second)
	}
	if to.order()[0] != up.URL {
		t.Errorf("next time first %s", to.order()[0])
	}
	i = c.identity(broken.URL, up.URL)
	to = &servers{identity: i, to: transport(i.TLS())}
	first, second := get(to), get(to)
	if first != "error" || second != "up" || breaks.Load() > 2 { // HTTP/2 may send one request again
		t.Errorf("%s, %s after %d requests", first, second, breaks.Load())
	}
}

// A server reaches the kubelet through the tunnel, which is opened again when it breaks, also to a new server.
func TestTunnel(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	opened := make(chan string, 10)
	var accepted atomic.Pointer[func()]
	accept := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != nodetunnel.Path || r.TLS.PeerCertificates[0].Subject.CommonName != "system:node:n" {
				t.Errorf("%s of %s", r.URL.Path, r.TLS.PeerCertificates[0].Subject)
			}
			session, err := nodetunnel.Accept(w, r)
			if err != nil {
				t.Error(err)
				return
			}
			hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
				DialContext: func(context.Context, string, string) (net.Conn, error) { return session.Open() }}}
			resp, err := hc.Get("http://n/healthz") //nolint:noctx // of a test
			if err != nil {
				return // the node has closed the tunnel, because the servers have changed
			}
			defer resp.Body.Close()
			data, _ := io.ReadAll(resp.Body)
			end := func() { session.Close() }
			accepted.Store(&end)
			opened <- name + ": " + string(data)
			<-session.CloseChan()
		})
	}
	first, second := c.serve(accept("first")), c.serve(accept("second"))
	i := c.identity(first.URL)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.deps().Serve(ctx, i, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "ok of "+r.Host)
		}))
	}()
	for range 2 {
		if got := <-opened; got != "first: ok of n" {
			t.Error(got)
		}
		(*accepted.Load())()
	}
	if err := i.SetServers([]string{second.URL}); err != nil {
		t.Fatal(err)
	}
	for got := ""; !strings.HasPrefix(got, "second"); got = <-opened {
		continue
	}
	stop()
	<-ended
}

// Renew waits until the certificate is due, and tries again after failures. When a server answers, the node has a new
// certificate, long before the old one ends.
func TestRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		i := c.identity("https://any")
		i.issued = time.Now()
		i.cert = &tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Now().Add(certificateLife)}}
		var asked atomic.Int32
		network := &unsteady{asked: &asked, api: &signs{cluster: c}}
		to := &client.Remote{URL: "https://any", HTTP: &http.Client{Transport: network}, New: c.deps().New}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.deps().Renew(ctx, i, "n", to); close(done) }()
		time.Sleep(7 * 365 * 24 * time.Hour)
		if n := asked.Load(); n != 0 {
			t.Errorf("%d requests in the first seven years", n)
		}
		time.Sleep(365*24*time.Hour + 24*time.Hour)
		if n := asked.Load(); n < 10 || n > 40 {
			t.Errorf("%d attempts in the first day of the ninth year", n)
		}
		network.works.Store(true)
		time.Sleep(renewCheck)
		if left := time.Until(i.certificate().Leaf.NotAfter); left < 9*365*24*time.Hour {
			t.Errorf("the certificate ends in %v", left)
		}
		stop()
		<-done
	})
}

// unsteady is a network that works only at times.
type unsteady struct {
	asked *atomic.Int32
	works atomic.Bool
	api   *signs
}

func (u *unsteady) RoundTrip(r *http.Request) (*http.Response, error) {
	u.asked.Add(1)
	if !u.works.Load() {
		return nil, errors.New("no network")
	}
	r.TLS = &tls.ConnectionState{}
	w := httptest.NewRecorder()
	u.api.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestURLs(t *testing.T) {
	t.Parallel()
	port := func(p int32) []discoveryv1.EndpointPort { return []discoveryv1.EndpointPort{{Port: &p}} }
	of := func(addresses ...string) []discoveryv1.Endpoint {
		return []discoveryv1.Endpoint{{Addresses: addresses}}
	}
	got := urlsOf(map[string]*discoveryv1.EndpointSlice{
		"kubernetes": {Ports: port(6443), Endpoints: of("192.0.2.2", "192.0.2.1", "127.0.0.1")},
		"other":      {Ports: port(7443), Endpoints: of("2001:db8::1")},
		"no port":    {Ports: []discoveryv1.EndpointPort{{}}, Endpoints: of("192.0.2.3")},
	})
	want := "https://192.0.2.1:6443 https://192.0.2.2:6443 https://[2001:db8::1]:7443"
	if strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
