package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/process/guard"
)

const (
	// healthPart names the servers in metrics and health.
	healthPart = "health check"
	// healthTime limits a request of a load balancer.
	healthTime = 5 * time.Second
	// healthHeader limits its header, in bytes.
	healthHeader = 4 << 10
)

// Health answers load balancers at the healthCheckNodePorts of Services: 200 if this node has endpoints that are ready,
// otherwise 503.
type Health struct {
	ctx   context.Context // whose end stops the servers
	guard *guard.Guard
	log   *zap.Logger
	group sync.WaitGroup

	mu       sync.Mutex // guards what follows
	services map[types.NamespacedName]*checked
}

// checked is a Service with a port for health checks.
type checked struct {
	port  int32
	local int // endpoints on this node
	stop  func()
}

// NewHealth returns a Health that serves until ctx ends.
func NewHealth(ctx context.Context, g *guard.Guard, log *zap.Logger) *Health {
	return &Health{ctx: ctx, guard: g, log: log, services: map[types.NamespacedName]*checked{}}
}

// Wait returns when ctx has ended and all servers have.
func (h *Health) Wait() { h.group.Wait() }

// Set sets the health check of a Service: the port of its health checks, 0 for none, and how many endpoints this node
// has.
func (h *Health) Set(key types.NamespacedName, port int32, local int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.services[key]
	if old != nil && old.port == port {
		old.local = local
		return
	}
	if old != nil {
		old.stop()
		delete(h.services, key)
	}
	if port == 0 || h.ctx.Err() != nil {
		return
	}
	stop, err := h.serve(key, port)
	if err != nil {
		h.log.Warn("health checks of a Service are not answered", zap.Stringer("service", key), zap.Int32("port", port), zap.Error(err))
		return
	}
	h.services[key] = &checked{port: port, local: local, stop: stop}
}

func (h *Health) serve(key types.NamespacedName, port int32) (stop func(), err error) {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler:           h.guard.Handler(healthPart, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h.answer(w, key) })),
		ReadHeaderTimeout: healthTime, ReadTimeout: healthTime, WriteTimeout: healthTime, IdleTimeout: healthTime, MaxHeaderBytes: healthHeader,
		ErrorLog: zap.NewStdLog(zap.NewNop()),
	}
	end := context.AfterFunc(h.ctx, func() { server.Close() })
	h.guard.Go(&h.group, healthPart, func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			h.log.Warn("health checks of a Service are no longer answered", zap.Stringer("service", key), zap.Error(err))
		}
	})
	return func() { end(); server.Close() }, nil
}

// answer sends kube-proxy's format.
func (h *Health) answer(w http.ResponseWriter, key types.NamespacedName) {
	h.mu.Lock()
	local := 0
	if c := h.services[key]; c != nil {
		local = c.local
	}
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(local))
	if local == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{ // or the load balancer is gone
		"service":             map[string]string{"namespace": key.Namespace, "name": key.Name},
		"localEndpoints":      local,
		"serviceProxyHealthy": true,
	})
}

// checkPort returns the port of a Service's health checks; 0: it has none.
func checkPort(svc *corev1.Service) int32 {
	if !served(svc) || svc.Spec.Type != corev1.ServiceTypeLoadBalancer || svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return 0
	}
	return svc.Spec.HealthCheckNodePort
}

// localReady counts the distinct endpoints of one family on this node that are ready. Terminating ones still get traffic
// while there are no others, but load balancers should use other nodes.
func localReady(svc *corev1.Service, eps []*discoveryv1.EndpointSlice, family corev1.IPFamily, node string) int {
	seen := map[netip.Addr]struct{}{}
	for _, port := range svc.Spec.Ports {
		for _, c := range endpoints(eps, port, family, node) {
			if c.ready && c.Local {
				seen[c.Addr()] = struct{}{}
			}
		}
	}
	return len(seen)
}
