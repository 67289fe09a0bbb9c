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
	asked := ref
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
		host, err = endpoint.Of(r.Context(), c.API, o, asked.Name, port)
	case *corev1.Node:
		if isKubelet(o, port) {
			return c.reachNode(w, r, asked, name, path)
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
	c.passOn(w, r, to)
	return nil
}

// proxiedPath is the part of the path after "proxy", as the client escaped it; if there is none, the path in the
// query.
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

// PodNetwork is a pod network that the machine's network cannot reach, such as the fake runtime's, whose pods
// use the machine's loopback addresses.
type PodNetwork interface {
	// Holds reports whether a pod has the address.
	Holds(ip netip.Addr) bool
	// Dial connects to a listener in a pod, and to nothing else.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}

// allowed refuses addresses that only this machine can reach, except those of pods (upstream:
// proxy.IsProxyableIP).
func (c *Connector) allowed(host string) error {
	if ip := ipOf(host); !c.holds(ip) && !ip.IsGlobalUnicast() {
		return apierrors.NewBadRequest("address not allowed")
	}
	return nil
}

// ipOf parses an address with or without a port; the result is invalid if there is none.
func ipOf(host string) netip.Addr {
	if at, err := netip.ParseAddrPort(host); err == nil {
		return at.Addr().Unmap()
	}
	ip, _ := netip.ParseAddr(strings.Trim(host, "[]"))
	return ip.Unmap()
}

func (c *Connector) holds(ip netip.Addr) bool { return c.Pods != nil && c.Pods.Holds(ip) }

// Dial connects to a pod, or to another address that is not only this machine's.
func (c *Connector) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.holds(ipOf(address)) {
		return c.Pods.Dial(ctx, network, address)
	}
	if err := c.allowed(address); err != nil { // the pod with the address may have ended
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// passOn proxies the request, including upgrades. Links and redirects in the response are rewritten to the
// proxy.
func (c *Connector) passOn(w http.ResponseWriter, r *http.Request, to *url.URL) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.Stop, cancel)()
	r = r.Clone(ctx)
	transport := &guarded{c.transport(), auth.HasCertificate(r) && auth.Bearer(r) == ""}
	forgetCredentials(r.Header)
	h := proxy.NewUpgradeAwareHandler(to, transport, true, false, unreachable{c})
	h.ServeHTTP(Passable{Hijackable: codec.Hijackable{ResponseWriter: w}}, r)
}

// forgetCredentials removes the credentials for this server.
func forgetCredentials(h http.Header) {
	h.Del("Authorization")
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
}

// transport keeps no idle connections: an address may soon belong to another pod. It does not verify
// certificates of pods, as upstream.
func (c *Connector) transport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := c.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &mortal{conn, context.AfterFunc(c.Stop, func() { conn.Close() })}, nil
		},
	}
}

// mortal is a connection that is closed when the server stops.
type mortal struct {
	net.Conn
	forget func() bool
}

// Close implements net.Conn.
func (m *mortal) Close() error {
	m.forget()
	return m.Conn.Close()
}

// guarded keeps a pod's pages from using the browser's state for this server, because both have the same origin.
type guarded struct {
	*http.Transport
	sandbox bool // a browser may send a client certificate by itself
}

// WrappedRoundTripper gives the proxy access to the dialer.
func (g *guarded) WrappedRoundTripper() http.RoundTripper { return g.Transport }

// RoundTrip implements http.RoundTripper.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if g.sandbox {
		resp.Header.Add("Content-Security-Policy", "sandbox allow-forms allow-scripts")
	}
	return resp, nil
}

// unreachable answers requests whose target the proxy did not reach.
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
