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
	// healthCheckPart names the servers in metrics and health.
	healthCheckPart = "health check"
	// healthCheckTimeout limits a request of a load balancer.
	healthCheckTimeout = 5 * time.Second
	// maxHeader limits the header of a request, in bytes.
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
	services map[types.NamespacedName]*healthCheck
}

// healthCheck is the server of one Service.
type healthCheck struct {
	port  int32
	local int // endpoints on this node
	stop  func()
}

// NewHealthChecks returns HealthChecks that answer until ctx ends.
func NewHealthChecks(ctx context.Context, g *guard.Guard, log *zap.Logger) *HealthChecks {
	return &HealthChecks{ctx: ctx, guard: g, log: log, services: map[types.NamespacedName]*healthCheck{}}
}

// Wait returns when ctx and all servers have ended.
func (s *HealthChecks) Wait() { s.group.Wait() }

// Set sets the health check port of a Service, 0 for none, and the number of its endpoints on this node.
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
		s.log.Warn("failed to listen on the health check port of a Service", zap.Stringer("service", key),
			zap.Int32("port", port), zap.Error(err))
		return
	}
	s.services[key] = &healthCheck{port: port, local: local, stop: stop}
}

func (s *HealthChecks) serve(key types.NamespacedName, port int32) (stop func(), err error) {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: s.guard.Handler(healthCheckPart,
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { s.answer(w, key) })),
		ReadHeaderTimeout: healthCheckTimeout, ReadTimeout: healthCheckTimeout,
		WriteTimeout: healthCheckTimeout, IdleTimeout: healthCheckTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: zap.NewStdLog(zap.NewNop()),
	}
	end := context.AfterFunc(s.ctx, func() { server.Close() })
	s.guard.Go(&s.group, healthCheckPart, func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Warn("the health check server of a Service has failed", zap.Stringer("service", key), zap.Error(err))
		}
	})
	return func() { end(); server.Close() }, nil
}

// answer writes a response in kube-proxy's format.
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
	_ = json.NewEncoder(w).Encode(map[string]any{ // an error means that the load balancer is gone
		"service":             map[string]string{"namespace": key.Namespace, "name": key.Name},
		"localEndpoints":      local,
		"serviceProxyHealthy": true,
	})
}
