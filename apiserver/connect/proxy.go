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

	"monopod/apiserver/access/auth"
	"monopod/apiserver/client"
	"monopod/apiserver/codec"
	"monopod/apiserver/request"
)

// Reach passes a request on to where the target's name says: [scheme:]name[:port].
func (c *Connector) Reach(w http.ResponseWriter, r *http.Request, ref client.Ref) error {
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(ref.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", strings.TrimSuffix(ref.Resource.Resource, "s"), ref.Name))
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
		host, err = c.serviceHost(r.Context(), o, asked.Name, port)
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

// proxiedPath is what stands behind "proxy" in the path, as the client wrote it;
// without any, what the query says.
func proxiedPath(r *http.Request) string {
	rest := chi.URLParam(r, "*")
	switch {
	case rest != "" || strings.HasSuffix(r.URL.Path, "/proxy/"):
		if r.URL.RawPath == "" { // the router matched the plain path
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

// PodNetwork is a network of pods that the machine's own does not lead to, as the
// fake runtime's, whose pods live on the machine's loopback addresses.
type PodNetwork interface {
	// Holds says that a pod has the address.
	Holds(ip netip.Addr) bool
	// Dial connects to what listens in a pod, and to nothing else.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}

// allowed keeps requests away from what only this machine may reach, pods aside
// (upstream: proxy.IsProxyableIP).
func (c *Connector) allowed(host string) error {
	if ip := ipOf(host); !c.holds(ip) && !ip.IsGlobalUnicast() {
		return apierrors.NewBadRequest("address not allowed")
	}
	return nil
}

// ipOf is the address in one with a port or without; not valid when it has none.
func ipOf(host string) netip.Addr {
	if at, err := netip.ParseAddrPort(host); err == nil {
		return at.Addr().Unmap()
	}
	ip, _ := netip.ParseAddr(strings.Trim(host, "[]"))
	return ip.Unmap()
}

func (c *Connector) holds(ip netip.Addr) bool { return c.Pods != nil && c.Pods.Holds(ip) }

func (c *Connector) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.holds(ipOf(address)) {
		return c.Pods.Dial(ctx, network, address)
	}
	if err := c.allowed(address); err != nil { // the pod that had it has ended since
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// passOn hands the request through, upgrades too. Links and redirects in the
// answer lead through the proxy again.
func (c *Connector) passOn(w http.ResponseWriter, r *http.Request, to *url.URL) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.Stop, cancel)()
	r = r.Clone(ctx)
	transport := &guarded{c.transport(), auth.HasCertificate(r) && auth.Bearer(r) == ""}
	forgetCredentials(r.Header)
	h := proxy.NewUpgradeAwareHandler(to, transport, true, false, unreachable{c})
	h.ServeHTTP(passable{Hijackable: codec.Hijackable{ResponseWriter: w}}, r)
}

// forgetCredentials takes out what was for this server.
func forgetCredentials(h http.Header) {
	h.Del("Authorization")
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
}

// transport keeps no connections: an address may be another pod's a second
// later. Certificates of pods are their own affair, as upstream.
func (c *Connector) transport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := c.dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &mortal{conn, context.AfterFunc(c.Stop, func() { conn.Close() })}, nil
		},
	}
}

// mortal is a connection that does not outlive the server.
type mortal struct {
	net.Conn
	forget func() bool
}

// Close implements net.Conn.
func (m *mortal) Close() error {
	m.forget()
	return m.Conn.Close()
}

// guarded keeps a pod's page away from what browsers know of this server, as they
// see both at the same origin.
type guarded struct {
	*http.Transport
	sandbox bool // a browser may be there by itself, with a client certificate
}

// WrappedRoundTripper lets the proxy find how to dial.
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

// unreachable tells a client why a proxy did not reach its target.
type unreachable struct{ c *Connector }

// Error implements proxy.ErrorResponder.
func (p unreachable) Error(w http.ResponseWriter, r *http.Request, err error) {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		err = apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err))
	}
	p.c.Fail(w, r, err)
}

// passable is a writer as a proxy needs it: with a connection to give up, and
// open to http.ResponseController.
type passable struct{ codec.Hijackable }

// Unwrap lets http.ResponseController find the rest.
func (p passable) Unwrap() http.ResponseWriter { return p.ResponseWriter }
