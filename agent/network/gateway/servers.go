package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/ingress/proxy"
	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

// serverKey identifies a server: a port of a Gateway at one address of the node.
type serverKey struct {
	gateway follow.Key
	port    int32
	class   class
	address netip.Addr
}

// server listens at a free port of the node, to which the Gateway's Service leads.
type server struct {
	number  int32 // of the free port
	site    atomic.Pointer[proxy.Site]
	streams atomic.Pointer[proxy.Streams]
	shared  atomic.Bool // the Gateway has an address of the node, and shares its ports with Ingresses
	cancel  context.CancelFunc
}

// syncServers opens the servers that the plan needs, configures all, and closes the others, which finish their requests
// in the background. An error says which ones it failed to open.
func (r *running) syncServers() error {
	r.mu.Lock()
	addresses := listenAddresses(r.nodes[r.cfg.Node])
	r.mu.Unlock()
	wanted := map[serverKey]*port{}
	for name, g := range r.plan.gateways {
		for number, p := range g.ports {
			for _, address := range addresses {
				wanted[serverKey{name, number, p.class, address}] = p
			}
		}
	}
	for k, s := range r.servers {
		if wanted[k] == nil {
			s.cancel()
			delete(r.servers, k)
		}
	}
	var errs []error
	for k, p := range wanted {
		s := r.servers[k]
		if s == nil {
			l, err := net.Listen("tcp", net.JoinHostPort(k.address.String(), "0"))
			if err != nil {
				errs = append(errs, fmt.Errorf("listen for Gateway %q: %w", k.gateway, err))
				continue
			}
			s = &server{number: int32(l.Addr().(*net.TCPAddr).Port)}
			s.configure(p)
			r.start(k, s, l)
			r.servers[k] = s
			r.loop.Add(key{kindGateway, k.gateway}) // its EndpointSlices
			continue
		}
		s.configure(p)
	}
	return errors.Join(errs...)
}

func (s *server) configure(p *port) {
	site := proxy.NewSite()
	site.Listeners = append(route.Listeners[*proxy.Split]{}, p.web...) // not nil, which would be the site of Ingresses
	s.site.Store(site)
	s.streams.Store(&p.streams)
}

// start serves the connections of a listener until the server is canceled.
func (r *running) start(k serverKey, s *server, l net.Listener) {
	number := strconv.Itoa(int(k.port))
	entry := proxy.NewServer(string(k.class), number, l)
	h := entry.Handler(&s.site, r.via, r.metrics)
	r.cfg.Ingress.Prepare(h, r.deps.Log)
	h.Fallback = func() *proxy.Handler {
		if !s.shared.Load() {
			return nil
		}
		return r.cfg.Fallback(string(k.class), number)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	s.cancel = cancel
	r.deps.Guard.Go(&r.serving, Name, func() {
		var err error
		switch k.class {
		case classHTTP:
			err = entry.Serve(ctx, h, r.deps.Guard)
		case classTLS:
			err = entry.ServeStreams(ctx, &s.streams, h, r.via, r.metrics, r.deps.Guard)
		default:
			err = entry.ServeStreams(ctx, &s.streams, nil, r.via, r.metrics, r.deps.Guard)
		}
		if err != nil {
			r.deps.Log.Error("failed to serve a Gateway", zap.Stringer("gateway", k.gateway), zap.Int32("port", k.port),
				zap.Error(err))
		}
	})
}

// stopServers closes all servers.
func (r *running) stopServers() {
	for _, s := range r.servers {
		s.cancel()
	}
	r.serving.Wait()
}

// listenAddresses returns the first internal address of the node of each IP family.
func listenAddresses(node *corev1.Node) (list []netip.Addr) {
	var v4, v6 netip.Addr
	for _, a := range value(node).Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip = ip.Unmap(); ip.Is4() {
			v4 = cmp.Or(v4, ip)
		} else {
			v6 = cmp.Or(v6, ip)
		}
	}
	for _, ip := range []netip.Addr{v4, v6} {
		if ip.IsValid() {
			list = append(list, ip)
		}
	}
	return list
}
