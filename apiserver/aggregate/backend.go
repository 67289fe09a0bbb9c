package aggregate

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/connect"
	"monopod/apiserver/registry/apiservice"
	"monopod/apiserver/registry/webhook"
)

const (
	// checkTime bounds a question of this server's own, maxIndex an answer that lists resources or documents, and
	// maxDocument one of OpenAPI.
	checkTime   = 5 * time.Second
	maxIndex    = 1 << 20
	maxDocument = 4 << 20
	// idleConnections to a server are kept for idleTime.
	idleConnections = 25
	idleTime        = 90 * time.Second
)

// backend is another API server.
type backend struct {
	service   *apiservice.Service // its configuration, immutable
	url       string
	transport *http.Transport
	err       error // of a server that cannot be called
	announce  func()
	about     atomic.Pointer[about]
}

// about is what is known of a server.
type about struct {
	available bool
	resources []metav1.APIResource
	openAPI   string
	openAPI2  document
}

// document is what a server's document of OpenAPI v2 says about the group and version, and which state of it that is.
type document struct {
	part      *Part // nil: nothing
	etag, sum string
}

func newBackend(cfg *Config, s *apiservice.Service) *backend {
	to := webhook.Target{Namespace: s.Spec.Service.Namespace, Service: s.Spec.Service.Name, Port: *s.Spec.Service.Port}
	b := &backend{service: s, announce: cfg.Announce}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.Spec.InsecureSkipTLSVerify}
	b.url, secure.ServerName = to.Address()
	if len(s.Spec.CABundle) > 0 {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(s.Spec.CABundle) {
			b.err = errors.New("spec.caBundle contains no certificate")
		}
	}
	if cfg.Identity != nil {
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cfg.Identity() }
	}
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	b.transport = &http.Transport{
		DialContext: to.Dialer(cfg.API, dial), TLSClientConfig: secure, TLSHandshakeTimeout: checkTime,
		MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTime, MaxResponseHeaderBytes: 1 << 20,
	}
	b.about.Store(&about{})
	return b
}

// same reports whether an APIService configures the server as it is.
func (b *backend) same(s *apiservice.Service) bool {
	return b.service.UID == s.UID && equality.Semantic.DeepEqual(&b.service.Spec, &s.Spec)
}

// learn takes the availability from the status.
func (b *backend) learn(s *apiservice.Service) {
	next := *b.about.Load()
	c := apiservice.Available(s)
	next.available = c != nil && c.Status == apiregistrationv1.ConditionTrue
	b.know(next)
}

// know sets what is known, and announces other kinds.
func (b *backend) know(next about) {
	was := b.about.Swap(&next)
	var of schema.GroupVersion
	if b.announce != nil && !slices.Equal(was.kinds(of), next.kinds(of)) {
		b.announce()
	}
}

// pass passes a request on, in the name of its user.
func (b *backend) pass(w http.ResponseWriter, r *http.Request, fail func(http.ResponseWriter, *http.Request, error)) {
	to, err := url.Parse(b.url)
	switch {
	case err != nil:
		fail(w, r, apierrors.NewInternalError(err))
		return
	case b.err != nil || !b.about.Load().available:
		fail(w, r, apierrors.NewServiceUnavailable("service unavailable"))
		return
	}
	to.Path, to.RawPath, to.RawQuery = r.URL.Path, r.URL.RawPath, r.URL.RawQuery
	r = r.Clone(r.Context())
	u := auth.UserOf(r.Context())
	identify(r, u.Name, u.UID, u.Groups, u.Extra)
	h := proxy.NewUpgradeAwareHandler(to, b.transport, false, false, unreachable(fail))
	h.UseLocationHost, h.FlushInterval = true, -1 // events of a watch are sent at once
	h.ServeHTTP(connect.Passable{Hijackable: codec.Hijackable{ResponseWriter: w}}, r)
}

// identify sets the headers that tell the other server the user, and removes those that the client sent.
func identify(r *http.Request, name, uid string, groups []string, extra map[string][]string) {
	r.Header.Del("Authorization")
	for header := range r.Header {
		if lower := strings.ToLower(header); strings.HasPrefix(lower, "impersonate-") ||
			strings.HasPrefix(lower, "x-remote-") {
			delete(r.Header, header)
		}
	}
	transport.SetAuthProxyHeaders(r, name, uid, groups, extra)
}

// unreachable answers requests whose server was not reached.
type unreachable func(http.ResponseWriter, *http.Request, error)

// Error implements proxy.ErrorResponder.
func (fail unreachable) Error(w http.ResponseWriter, r *http.Request, err error) {
	fail(w, r, apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err)))
}

// get reads a document for this server itself. code is that of the answer.
func (b *backend) get(ctx context.Context, path string, into any) (code int, err error) {
	got, err := b.fetch(ctx, path, "", maxIndex)
	if err != nil || got.code != http.StatusOK {
		return got.code, err
	}
	return got.code, json.Unmarshal(got.data, into)
}

// answer is an answer to a question of this server's own.
type answer struct {
	code int // 0: there is none
	etag string
	data []byte
}

// fetch asks for a document of at most most bytes. etag is that of the state that is known, empty for none.
func (b *backend) fetch(ctx context.Context, path, etag string, most int64) (answer, error) {
	if b.err != nil {
		return answer{}, b.err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Accept", "application/json")
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	identify(r, "system:kube-aggregator", "", []string{auth.Masters}, nil)
	response, err := b.transport.RoundTrip(r) // which follows no redirect
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the response is larger than %d bytes", most)
	}
	return answer{response.StatusCode, response.Header.Get("Etag"), data}, err
}

// read returns the part of the server's document of OpenAPI v2 about the paths with the prefix. A server that does not
// answer keeps the part that is known.
func (b *backend) read(ctx context.Context, known document, prefix string) (document, error) {
	got, err := b.fetch(ctx, "/openapi/v2", known.etag, maxDocument)
	switch {
	case err != nil || got.code == http.StatusNotModified:
		return known, err
	case got.code == http.StatusNotFound:
		return document{}, nil
	case got.code != http.StatusOK:
		return known, fmt.Errorf("bad status: %d", got.code)
	}
	next := document{etag: got.etag, sum: fmt.Sprintf("%x", sha256.Sum256(got.data)), part: known.part}
	if next.sum != known.sum {
		next.part, err = Read(got.data, prefix)
	}
	return next, err // of a document that cannot be read, nothing is shown
}
