package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

// Site is the immutable configuration of the servers.
type Site struct {
	// Listeners are those of a Gateway's port. Not nil: nothing else of the Site counts.
	Listeners route.Listeners[*Split]
	Table     *route.Table[*Destination]
	Certs     route.Hosts[*tls.Certificate]
	Secured   route.Hosts[struct{}] // hosts for which HTTP redirects to HTTPS
	Fallback  *tls.Certificate      // nil: a self-signed one
}

// NewSite returns a Site without rules.
func NewSite() *Site { return &Site{Table: new(route.Table[*Destination])} }

// find returns the destination of a request.
func (s *Site) find(r *http.Request, host, path string) (*Destination, bool) {
	if s.Listeners == nil {
		return s.Table.Find(host, path)
	}
	if l := s.Listeners.Find(host); l != nil {
		if to, ok := l.Find(r, host, path); ok {
			return to.choose(rand.IntN), true
		}
	}
	return nil, false
}

// Destination is the backend of a rule, and the options for its requests.
type Destination struct {
	Target
	Ingress follow.Key // of a Gateway's route: its namespace, and its kind and name with a slash between them
	Filters route.Filters
	Broken  string         // not empty: the reason why all requests fail, which clients do not get to know
	Path    string         // of the rule, for cookies; empty: every path
	Pattern *regexp.Regexp // nil: the path is not a regular expression
	route.Options
	Canary *Canary // nil: none

	Backend *Backend // set when the table is built
	Counts  *Counts
	Users   *route.Users // nil: none, or their Secret is missing
}

// Handler serves the requests of one server.
type Handler struct {
	entryPoint
	site    *atomic.Pointer[Site]
	Trusted []netip.Prefix
	// Fallback serves requests that no rule matches; nil, or what it returns: nobody does.
	Fallback func() *Handler
	// HTTPSPort returns the port of the HTTPS server; empty: there is none.
	HTTPSPort func() string
	proxy     *httputil.ReverseProxy
	metrics   *Metrics
	Access    *zap.Logger // nil: requests are not logged
}

// requestState is the state of one request.
type requestState struct {
	to       *Destination
	id       string
	path     string      // as route.Path returns it
	endpoint string      // the last one that was tried
	cookie   string      // identifier of the endpoint that the client has; empty: none
	picked   string      // identifier of the last endpoint that was tried
	body     *clientBody // nil: none
	failure  error       // nil: the endpoint has answered
	cancel   func(error) // cancels the context of the last attempt; nil: there was none
}

type stateKey struct{}

func stateOf(ctx context.Context) *requestState { return ctx.Value(stateKey{}).(*requestState) }

func newHandler(e entryPoint, s *atomic.Pointer[Site], via http.RoundTripper) *Handler {
	h := &Handler{entryPoint: e, site: s, HTTPSPort: func() string { return "" }}
	h.proxy = &httputil.ReverseProxy{Rewrite: h.rewrite, Transport: via, ErrorHandler: answerFailed, ErrorLog: discardLog}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	path, ok := route.Path(r.URL.Path)
	site, host := h.site.Load(), route.Host(r.Host)
	ok = ok && r.Method != http.MethodConnect
	var to *Destination
	if ok {
		to, _ = site.find(r, host, path)
	}
	if ok && to == nil && h.Fallback != nil {
		if other := h.Fallback(); other != nil {
			other.ServeHTTP(rw, r)
			return
		}
	}
	began := time.Now()
	w := &recorder{ResponseWriter: rw}
	j := &requestState{id: requestID(r), to: to}
	defer func() {
		if j.cancel != nil {
			j.cancel(nil)
		}
		h.done(w, r, j, began)
	}()
	if !ok {
		refuse(w, http.StatusBadRequest, "the request has no absolute path")
		return
	}
	if to == nil {
		notFound(w, r, site.Listeners != nil)
		return
	}
	if h.redirects(site, j.to, r, host, path) {
		w.Header().Set("Location", httpsURL(r, host, h.HTTPSPort()))
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	if h.admit(w, r, j.to, path) {
		return
	}
	j.to, j.path = choose(j.to, r), path
	if j.to.Sticky.On {
		j.cookie = j.to.cookie(r)
		w.before = append(w.before, func(header http.Header) {
			if j.picked != "" && !j.to.Backend.has(j.cookie) {
				j.to.stick(header, j.picked, h.Scheme == "https")
			}
		})
	}
	if limit := j.to.MaxBody; limit > 0 && r.ContentLength > limit {
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestEntityTooLarge, "the body of the request is too large")
		return
	}
	if r.Body != nil && r.Body != http.NoBody {
		j.body = newClientBody(w, r, j.to.MaxBody)
	}
	r = r.WithContext(context.WithValue(r.Context(), stateKey{}, j))
	if j.body != nil {
		r.Body = j.body
	}
	if changes := j.to.Filters.Response; len(changes) > 0 {
		w.before = append(w.before, func(header http.Header) { route.ChangeHeader(header, changes) })
	}
	h.proxy.ServeHTTP(w, r)
	if j.body != nil && w.code != http.StatusSwitchingProtocols && r.Header.Get("Expect") == "" {
		j.body.drain()
	}
}

// challenges is the path of ACME HTTP-01 challenges; ingress-nginx does not redirect them either.
const challenges = "/.well-known/acme-challenge/"

func (h *Handler) redirects(s *Site, to *Destination, r *http.Request, host, path string) bool {
	if h.Scheme == "https" || h.HTTPSPort() == "" || !to.Redirect && !to.Forced || strings.HasPrefix(path, challenges) {
		return false
	}
	if _, secured := s.Secured.Find(host); !secured && !to.Forced {
		return false
	}
	if _, trusted := h.client(r); trusted && r.Header.Get("X-Forwarded-Proto") == "https" {
		return false
	}
	return true
}

// refuse answers a request without an endpoint.
func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n")) // an error means that the client is gone
}

// statusClientClosed is the status in logs and metrics of a request whose client closed the connection; nginx's number.
const statusClientClosed = 499

// answerFailed answers a request that no endpoint has answered.
func answerFailed(w http.ResponseWriter, r *http.Request, err error) {
	j := stateOf(r.Context())
	if j.body != nil && j.body.slow.Load() {
		err = errSlowBody // net/http also ends the request's context, whose error may come first
	}
	j.failure = err
	tooLarge := (*http.MaxBytesError)(nil)
	switch {
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, "the body of the request is too large")
	case errors.Is(err, errSlowBody):
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestTimeout, "the body of the request did not arrive in time")
	case errors.Is(err, errNoEndpoints):
		refuse(w, http.StatusServiceUnavailable, "no endpoint of the Service is ready")
	case errors.Is(err, errNoAnswer):
		refuse(w, http.StatusGatewayTimeout, "the endpoint did not answer in time")
	case r.Context().Err() != nil:
		w.WriteHeader(statusClientClosed)
	default:
		refuse(w, http.StatusBadGateway, "the endpoint did not answer")
	}
}

// done counts a request and logs it.
func (h *Handler) done(w *recorder, r *http.Request, j *requestState, began time.Time) {
	took := time.Since(began)
	if w.code == 0 {
		w.code = http.StatusOK
	}
	h.metrics.served(j.to, w.code, took)
	if h.Access == nil {
		return
	}
	client, _ := h.client(r)
	fields := []zap.Field{
		zap.String("client", client), zap.String("method", r.Method), zap.String("host", r.Host),
		zap.String("path", r.URL.Path), zap.String("protocol", r.Proto),
		zap.Int("code", w.code), zap.Int64("bytes", w.bytes), zap.Duration("took", took), zap.String("id", j.id),
	}
	if j.to != nil {
		fields = append(fields, zap.Stringer("ingress", j.to.Ingress), zap.Stringer("service", j.to.Service),
			zap.String("endpoint", j.endpoint))
	}
	if j.failure != nil {
		fields = append(fields, zap.NamedError("failure", j.failure))
	}
	h.Access.Info("request", fields...)
}

// recorder records the status code and the size of a response.
type recorder struct {
	http.ResponseWriter
	code   int
	bytes  int64
	before []func(http.Header) // called before the header of the response is sent
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	if w.code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		w.code = code
		for _, change := range w.before {
			change(w.Header())
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}
