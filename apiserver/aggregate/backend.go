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
	// checkTime limits a request of this server's own, maxIndex a response that lists resources or documents, and
	// maxDocument an OpenAPI document, in bytes.
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
	err       error // why the server cannot be called; nil: it can
	announce  func()
	info      atomic.Pointer[info]
}

// info is what the last check of a server found.
type info struct {
	available bool
	resources []metav1.APIResource
	openAPI   string
	openAPI2  document
}

// document is the part of a server's OpenAPI v2 document about the group and version.
type document struct {
	part      *Part  // nil: none
	etag, sum string // of the whole document
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
	b.info.Store(&info{})
	return b
}

// setAvailable sets the availability from the APIService's status.
func (b *backend) setAvailable(s *apiservice.Service) {
	next := *b.info.Load()
	c := apiservice.Available(s)
	next.available = c != nil && c.Status == apiregistrationv1.ConditionTrue
	b.setInfo(next)
}

// setInfo sets the info, and announces a change of the kinds.
func (b *backend) setInfo(next info) {
	was := b.info.Swap(&next)
	var of schema.GroupVersion
	if b.announce != nil && !slices.Equal(was.kinds(of), next.kinds(of)) {
		b.announce()
	}
}

// proxy proxies a request in the name of its user.
func (b *backend) proxy(w http.ResponseWriter, r *http.Request, fail func(http.ResponseWriter, *http.Request, error)) {
	to, err := url.Parse(b.url)
	switch {
	case err != nil:
		fail(w, r, apierrors.NewInternalError(err))
		return
	case b.err != nil || !b.info.Load().available:
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

// identify sets the headers that name the user, and removes those that the client sent.
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

// unreachable sends the error of requests that do not reach their server.
type unreachable func(http.ResponseWriter, *http.Request, error)

// Error implements proxy.ErrorResponder.
func (fail unreachable) Error(w http.ResponseWriter, r *http.Request, err error) {
	fail(w, r, apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err)))
}

// get reads a JSON document for this server itself and returns the response's code.
func (b *backend) get(ctx context.Context, path string, into any) (code int, err error) {
	got, err := b.fetch(ctx, path, "", maxIndex)
	if err != nil || got.code != http.StatusOK {
		return got.code, err
	}
	return got.code, json.Unmarshal(got.data, into)
}

// response is the response to a request of this server's own.
type response struct {
	code int // 0: none
	etag string
	data []byte
}

// fetch reads a document of at most limit bytes. etag is the ETag of the version that this server has; empty: none.
func (b *backend) fetch(ctx context.Context, path, etag string, limit int64) (response, error) {
	if b.err != nil {
		return response{}, b.err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		return response{}, err
	}
	r.Header.Set("Accept", "application/json")
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	identify(r, "system:kube-aggregator", "", []string{auth.Masters}, nil)
	resp, err := b.transport.RoundTrip(r) // it does not follow redirects
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the response is larger than %d bytes", limit)
	}
	return response{resp.StatusCode, resp.Header.Get("Etag"), data}, err
}

// readOpenAPI2 returns the part of the server's OpenAPI v2 document about the paths with the prefix. It returns last,
// the previous result, if the server does not answer.
func (b *backend) readOpenAPI2(ctx context.Context, last document, prefix string) (document, error) {
	got, err := b.fetch(ctx, "/openapi/v2", last.etag, maxDocument)
	switch {
	case err != nil || got.code == http.StatusNotModified:
		return last, err
	case got.code == http.StatusNotFound:
		return document{}, nil
	case got.code != http.StatusOK:
		return last, fmt.Errorf("bad status: %d", got.code)
	}
	next := document{etag: got.etag, sum: fmt.Sprintf("%x", sha256.Sum256(got.data)), part: last.part}
	if next.sum != last.sum {
		next.part, err = Read(got.data, prefix) // nil for an invalid document
	}
	return next, err
}
