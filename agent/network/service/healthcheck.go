package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/guard"
)

const (
	// part names the servers in metrics and health.
	part = "health check"
	// timeout limits a request of a load balancer.
	timeout = 5 * time.Second
	// maxHeader limits its header, in bytes.
	maxHeader = 4 << 10
)

// HealthChecks answer load balancers at the healthCheckNodePorts of Services: 200 if this node has endpoints that are
// ready, otherwise 503.
type HealthChecks struct {
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

// NewHealthChecks returns Servers that serve until ctx ends.
func NewHealthChecks(ctx context.Context, g *guard.Guard, log *zap.Logger) *HealthChecks {
	return &HealthChecks{ctx: ctx, guard: g, log: log, services: map[types.NamespacedName]*checked{}}
}

// Wait returns when ctx has ended and all servers have.
func (s *HealthChecks) Wait() { s.group.Wait() }

// Set sets the health check of a Service: the port of its health checks, 0 for none, and how many endpoints this node
// has.
func (s *HealthChecks) Set(key types.NamespacedName, port int32, local int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.services[key]
	if old != nil && old.port == port {
		old.local = local
		return
	}
	if old != nil {
		old.stop()
		delete(s.services, key)
	}
	if port == 0 || s.ctx.Err() != nil {
		return
	}
	stop, err := s.serve(key, port)
	if err != nil {
		s.log.Warn("health checks of a Service are not answered", zap.Stringer("service", key), zap.Int32("port", port),
			zap.Error(err))
		return
	}
	s.services[key] = &checked{port: port, local: local, stop: stop}
}

func (s *HealthChecks) serve(key types.NamespacedName, port int32) (stop func(), err error) {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: s.guard.Handler(part,
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { s.answer(w, key) })),
		ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: timeout, MaxHeaderBytes: maxHeader,
		ErrorLog: zap.NewStdLog(zap.NewNop()),
	}
	end := context.AfterFunc(s.ctx, func() { server.Close() })
	s.guard.Go(&s.group, part, func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Warn("health checks of a Service are no longer answered", zap.Stringer("service", key), zap.Error(err))
		}
	})
	return func() { end(); server.Close() }, nil
}

// answer sends kube-proxy's format.
func (s *HealthChecks) answer(w http.ResponseWriter, key types.NamespacedName) {
	s.mu.Lock()
	local := 0
	if c := s.services[key]; c != nil {
		local = c.local
	}
	s.mu.Unlock()
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
