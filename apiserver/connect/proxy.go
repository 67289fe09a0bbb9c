package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/endpoint"
	"monopod/apiserver/request"
)

// Proxy proxies a request to a pod, a Service or a node, whose name may have a scheme and a port: [scheme:]name[:port].
func (c *Connector) Proxy(w http.ResponseWriter, r *http.Request, ref client.Ref) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(ref.Name)
	if !ok {
		return apierrors.NewBadRequest(
			fmt.Sprintf("invalid %s request %q", strings.TrimSuffix(ref.Resource.Resource, "s"), ref.Name))
	}
	full := ref // with scheme and port
	ref.Name = name
	path := proxiedPath(r)
	obj, err := c.API.Connect(r.Context(), ref, proxyOptions(ref, path))
	if err != nil {
		return err
	}
	var host string
	switch o := obj.(type) {
	case *corev1.Pod:
		host, err = podHost(o, port)
	case *corev1.Service:
		host, err = endpoint.Of(r.Context(), c.API, o, full.Name, port)
	case *corev1.Node:
		if isKubelet(o, port) {
			return c.proxyNode(w, r, full, name, path)
		}
		host, err = nodeHost(o, port)
	default:
		err = request.ErrNotFound()
	}
	if err == nil {
		err = c.allowed(host)
	}
	if err != nil {
		return err
	}
	to := &url.URL{Scheme: scheme, Host: host, RawQuery: r.URL.RawQuery}
	if to.Path, err = url.PathUnescape(path); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	to.RawPath = path
	c.proxyTo(w, r, to)
	return nil
}

// proxiedPath returns the part of the path after "proxy", as the client escaped it, or else the path in the query.
func proxiedPath(r *http.Request) string {
	rest := chi.URLParam(r, "*")
	switch {
	case rest != "" || strings.HasSuffix(r.URL.Path, "/proxy/"):
		if r.URL.RawPath == "" { // the router matched the unescaped path
			rest = (&url.URL{Path: rest}).EscapedPath()
		}
		return "/" + rest
	case r.URL.Query().Get("path") != "":
		return (&url.URL{Path: "/" + strings.TrimPrefix(r.URL.Query().Get("path"), "/")}).EscapedPath()
	}
	return ""
}

func proxyOptions(ref client.Ref, path string) runtime.Object {
	switch ref.Resource {
	case client.Pods:
		return &corev1.PodProxyOptions{Path: path}
	case client.Nodes:
		return &corev1.NodeProxyOptions{Path: path}
	}
	return &corev1.ServiceProxyOptions{Path: path}
}

// PodNetwork is a pod network that the machine's network cannot reach, such as the fake runtime's, whose pods have
// loopback addresses.
type PodNetwork interface {
	// Holds reports whether a pod has the address.
	Holds(ip netip.Addr) bool
	// Dial connects only to listeners in pods.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}

// allowed returns a 400 error for addresses that only this machine can reach, except those of pods (upstream:
// proxy.IsProxyableIP).
func (c *Connector) allowed(host string) error {
	if ip := ipOf(host); !c.holds(ip) && !ip.IsGlobalUnicast() {
		return apierrors.NewBadRequest("address not allowed")
	}
	return nil
}

// ipOf parses an address with or without a port. It returns the zero value for an invalid address.
func ipOf(host string) netip.Addr {
	if at, err := netip.ParseAddrPort(host); err == nil {
		return at.Addr().Unmap()
	}
	ip, _ := netip.ParseAddr(strings.Trim(host, "[]"))
	return ip.Unmap()
}

func (c *Connector) holds(ip netip.Addr) bool { return c.Pods != nil && c.Pods.Holds(ip) }

// Dial connects to a pod, or to an address that other machines can reach, too.
func (c *Connector) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.holds(ipOf(address)) {
		return c.Pods.Dial(ctx, network, address)
	}
	if err := c.allowed(address); err != nil { // checked again, because the pod with the address may have ended
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// proxyTo proxies the request to a URL, including upgrades. It rewrites links and redirects in the response.
func (c *Connector) proxyTo(w http.ResponseWriter, r *http.Request, to *url.URL) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.Stop, cancel)()
	r = r.Clone(ctx)
	transport := &sandboxTransport{c.transport(), auth.HasCertificate(r) && auth.Bearer(r) == ""}
	removeCredentials(r.Header)
	h := proxy.NewUpgradeAwareHandler(to, transport, true, false, unreachable{c})
	h.ServeHTTP(Passable{Hijackable: codec.Hijackable{ResponseWriter: w}}, r)
}

// removeCredentials removes the credentials for this server.
func removeCredentials(h http.Header) {
	h.Del("Authorization")
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
}

// transport returns a transport without idle connections, because an address may soon belong to another pod. As
// upstream, it does not verify certificates of pods.
func (c *Connector) transport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := c.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &stoppedConn{conn, context.AfterFunc(c.Stop, func() { conn.Close() })}, nil
		},
	}
}

// stoppedConn is a connection that is closed when the server stops.
type stoppedConn struct {
	net.Conn
	cancel func() bool // of the close
}

// Close implements net.Conn.
func (s *stoppedConn) Close() error {
	s.cancel()
	return s.Conn.Close()
}

// sandboxTransport sandboxes the pages of pods in the browser: they have the same origin as this server, and must not
// use the client certificate.
type sandboxTransport struct {
	*http.Transport
	sandbox bool // the request is authenticated by a client certificate, which a browser sends by itself
}

// WrappedRoundTripper gives the proxy access to the dialer.
func (g *sandboxTransport) WrappedRoundTripper() http.RoundTripper { return g.Transport }

// RoundTrip implements http.RoundTripper.
func (g *sandboxTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if g.sandbox {
		resp.Header.Add("Content-Security-Policy", "sandbox allow-forms allow-scripts")
	}
	return resp, nil
}

// unreachable sends the error of requests that do not reach their target.
type unreachable struct{ c *Connector }

// Error implements proxy.ErrorResponder.
func (p unreachable) Error(w http.ResponseWriter, r *http.Request, err error) {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		err = apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err))
	}
	p.c.Fail(w, r, err)
}

// Passable is a ResponseWriter for a proxy: it can be hijacked, and http.ResponseController can unwrap it.
type Passable struct{ codec.Hijackable }

// Unwrap implements http.ResponseController's interface.
func (p Passable) Unwrap() http.ResponseWriter { return p.ResponseWriter }
