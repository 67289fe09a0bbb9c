package join

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

const (
	// maxResponse is the maximum size of a list, and of an object, that is read from a server, in bytes.
	maxResponse = 256 << 20
	// pingAfter is how long a connection may be silent until the server must answer a ping within pingTime. Together they
	// are less than the 10 s after which requests go to another server.
	pingAfter = 5 * time.Second
	pingTime  = 4 * time.Second
)

// transport returns a transport for requests to servers.
func transport(config *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig: config, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext, TLSHandshakeTimeout: dialTime,
		ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime},
	}
}

// Client returns a client of the API that uses the identity. It sends requests to the server that answered last. If it
// cannot connect to that one, it tries the others.
func (d Deps) Client(i *Identity) *client.Remote {
	return &client.Remote{URL: i.Servers()[0], New: d.New, MaxObject: maxResponse, MaxList: maxResponse,
		HTTP: &http.Client{Transport: &servers{identity: i, to: transport(i.TLS())}}}
}

// FollowServers stores the addresses of all servers of the cluster, which the Service kubernetes names, until ctx ends.
func (d Deps) FollowServers(ctx context.Context, i *Identity, c client.Client) {
	known := map[string]*discoveryv1.EndpointSlice{}
	store := func() {
		if err := i.SetServers(urlsOf(known)); err != nil {
			d.Log.Error("failed to store the addresses of the servers", zap.Error(err))
		}
	}
	follow.Follower{Client: c, Clock: d.Clock, Log: d.Log, Name: "join"}.Follow(ctx, client.Selector{
		Resource: client.EndpointSlices, Namespace: metav1.NamespaceDefault,
		Labels: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: "kubernetes"}),
	}, follow.Handler{
		List: func(_ context.Context, objs []client.Object) {
			clear(known)
			for _, obj := range objs {
				known[obj.GetName()] = obj.(*discoveryv1.EndpointSlice)
			}
			store()
		},
		Event: func(_ context.Context, typ watch.EventType, obj client.Object) {
			known[obj.GetName()] = obj.(*discoveryv1.EndpointSlice)
			if typ == watch.Deleted {
				delete(known, obj.GetName())
			}
			store()
		},
	})
}

// urlsOf returns the URLs of the endpoints, sorted.
func urlsOf(all map[string]*discoveryv1.EndpointSlice) (urls []string) {
	for _, slice := range all {
		for _, port := range slice.Ports {
			for _, e := range slice.Endpoints {
				for _, address := range e.Addresses {
					if ip, err := netip.ParseAddr(address); err == nil && !ip.IsLoopback() && port.Port != nil {
						urls = append(urls, "https://"+netip.AddrPortFrom(ip, uint16(*port.Port)).String())
					}
				}
			}
		}
	}
	slices.Sort(urls)
	return urls
}

// servers sends each request to a server that answers.
type servers struct {
	identity *Identity
	to       http.RoundTripper

	mu      sync.Mutex // guards current
	current string     // URL of the server that answered last
}

// RoundTrip implements http.RoundTripper. Another server gets the request only if this one has not seen it.
func (s *servers) RoundTrip(r *http.Request) (*http.Response, error) {
	var errs []error
	for _, server := range s.order() {
		u, err := url.Parse(server)
		if err != nil {
			return nil, err
		}
		var connected atomic.Bool
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
		next := r.Clone(httptrace.WithClientTrace(r.Context(), trace))
		next.URL.Host, next.Host = u.Host, u.Host
		if r.GetBody != nil {
			if next.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		resp, err := s.to.RoundTrip(next)
		if err == nil {
			s.setCurrent(server)
			return resp, nil
		}
		errs = append(errs, err)
		if r.Context().Err() != nil {
			break
		}
		if connected.Load() {
			s.failed(server)
			break
		}
	}
	return nil, errors.Join(errs...)
}

// order returns the servers, the one that answered last first.
func (s *servers) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.identity.Servers()
	out := make([]string, 0, len(all))
	if s.current != "" {
		out = append(out, s.current)
	}
	for _, server := range all {
		if server != s.current {
			out = append(out, server)
		}
	}
	return out
}

// setCurrent makes the next request try this server first.
func (s *servers) setCurrent(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = server
}

// failed makes the next request try the server after this one first.
func (s *servers) failed(server string) {
	all := s.identity.Servers()
	if i := slices.Index(all, server); i >= 0 {
		s.setCurrent(all[(i+1)%len(all)])
	} else {
		s.setCurrent("")
	}
}
