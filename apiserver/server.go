// Package apiserver serves the Kubernetes API over HTTP. There is one file per verb; server.go lists all routes.
package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/pprof"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"monopod/apiserver/access"
	"monopod/apiserver/access/entry"
	"monopod/apiserver/access/token"
	"monopod/apiserver/admin"
	"monopod/apiserver/aggregate"
	"monopod/apiserver/audit"
	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/connect"
	"monopod/apiserver/connect/watch"
	"monopod/apiserver/discovery"
	"monopod/apiserver/flow"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/health"
	"monopod/apiserver/kit/images"
	"monopod/apiserver/kit/metrics"
	"monopod/apiserver/kit/nodetunnel"
	"monopod/apiserver/registry"
	"monopod/apiserver/request"
	"monopod/apiserver/status"
	"monopod/apiserver/virtual"
	"monopod/apiserver/why"
)

// maxScrapes is the maximum number of concurrent requests for metrics: each needs a megabyte. More get 503.
const maxScrapes = 4

// Config configures a Server. Registry and Authenticator are required.
type Config struct {
	Registry      *registry.Registry
	Authenticator auth.Authenticator
	// Authorizer decides what users may do; nil: everything is allowed.
	Authorizer auth.Authorizer
	// Tokens issues service account tokens and publishes the key that verifies them; nil: disabled.
	Tokens *token.Issuer
	// Node returns the node of this process if it has the name, otherwise nil; nil: this process runs no node.
	Node func(name string) (client.Node, error)
	// Kubelets returns the TLS configuration for kubelets of other machines; nil: they are not called.
	Kubelets func() (*tls.Config, error)
	// Pods connects to pods that the machine's network cannot reach; nil: there are none.
	Pods connect.PodNetwork
	// Checks are the checks of /healthz, /livez and /readyz, in this order.
	Checks []health.Check
	// Aggregator proxies requests to other API servers; nil: there are none.
	Aggregator *aggregate.Aggregator
	// Answers compute resources that the registry does not store; nil: none.
	Answers virtual.Answers
	// Usage returns the usage of the node of this process, for metrics.k8s.io; nil: not available.
	Usage connect.OwnUsage
	// Metrics is served at /metrics and contains the server's metrics; nil: none.
	Metrics *prometheus.Registry
	// Web is served at /; nil: no page.
	Web http.Handler
	// Configz is the effective configuration by component, for /configz.
	Configz map[string]any
	// Debug returns the handler of /debug/controllers/<name>; nil for an unknown name.
	Debug func(name string) http.Handler
	// Admin configures the endpoints that only admins may use.
	Admin admin.Config
	// Profiling serves Go's profiles at /debug/pprof/.
	Profiling bool
	Limits    flow.Limits
	// MaxWholeList is the maximum size in bytes of a list that must be in memory as a whole, for the audit log or as
	// protobuf metadata; 0: 64 MiB.
	MaxWholeList int
	Audit        *audit.Log                          // nil: no audit log
	Clock        clock.WithTickerAndDelayedExecution // nil: the real one
	Log          *zap.Logger                         // nil: silent
}

// Server serves the API. Use New.
type Server struct {
	cfg      Config
	registry *registry.Registry
	out      *codec.Responder
	guard    *access.Guard
	gate     gate
	streams  *connect.Connector
	watches  *watch.Watcher
	docs     *discovery.Documents
	targets  *targets
	computed computed
	health   *health.Health
	admin    *admin.Admin
	explain  *virtual.Explainer
	counters counters
	remotes  remotes
}

// New returns the server of the whole API. When ctx ends, watches and streams end; other requests complete.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Registry == nil || cfg.Authenticator == nil {
		return nil, errors.New("apiserver: Registry and Authenticator are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	out := &codec.Responder{Log: cfg.Log, Clock: cfg.Clock, Audited: cfg.Audit != nil, MaxWhole: cfg.MaxWholeList}
	guard := access.New(
		access.Config{Authenticator: cfg.Authenticator, Authorizer: cfg.Authorizer, Audit: cfg.Audit, Fail: out.Fail})
	limits := flow.New(cfg.Limits, cfg.Clock, cfg.Metrics)
	gate := gate{limits, out.Fail}
	remotes := remotes{cfg.Aggregator, out.Fail}
	streams := connect.New(connect.Config{
		API: cfg.Registry, Guard: guard, Gate: limits, Fail: out.Fail, Node: cfg.Node, Kubelets: cfg.Kubelets,
		Pods: cfg.Pods, OwnUsage: cfg.Usage, Stop: ctx, Clock: cfg.Clock, Log: cfg.Log,
	})
	answers := virtual.New(virtual.Config{
		API: cfg.Registry, Guard: guard, Authenticator: cfg.Authenticator, Checks: cfg.Checks,
		Usage: streams.Usage, Clock: cfg.Clock,
	}, cfg.Answers)
	authenticated := func(ctx context.Context) bool { _, ok := auth.Known(ctx); return ok }
	return &Server{
		cfg: cfg, registry: cfg.Registry, out: out, guard: guard, gate: gate, remotes: remotes, streams: streams,
		targets: &targets{registry: cfg.Registry, guard: guard, gate: gate, remotes: remotes, fail: out.Fail},
		watches: watch.New(watch.Config{API: cfg.Registry, MinTime: limits.MinWatchTime(), Stop: ctx, Clock: cfg.Clock}),
		docs: discovery.New(discovery.Config{
			Resources: cfg.Registry.Resources, Version: Version.GitVersion, Out: out, Clock: cfg.Clock,
			Aggregator: cfg.Aggregator,
		}),
		computed: computed{answers, out},
		explain: &virtual.Explainer{
			Registry: cfg.Registry, Guard: guard, Gate: limits, Node: streams.NodeNamed, Connect: streams.Dial,
			Tunnel: streams.TunnelOf, Clock: cfg.Clock, Out: out,
		},
		health:   health.New(cfg.Checks, authenticated, cfg.Log),
		admin:    admin.New(cfg.Admin, out, cfg.Clock, cfg.Log),
		counters: newCounters(cfg.Metrics),
	}, nil
}

// Handler returns the handler of all routes.
func (s *Server) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(trimSlash, s.count, s.recoverPanic, s.gate.LimitBody, s.gate.Steady)
	object := s.targets.handle(func(http.ResponseWriter, *http.Request, target) error { return request.ErrNotFound() })
	notFound := func(w http.ResponseWriter, r *http.Request) { s.out.Fail(w, r, request.ErrNotFound()) }
	notSupported := func(w http.ResponseWriter, r *http.Request) {
		s.out.Fail(w, r, apierrors.NewMethodNotSupported(request.GroupResource(r), r.Method))
	}
	rest := s.remotes.subpaths(object, s.guard.AuthorizePath(http.HandlerFunc(notFound)))
	r.NotFound(s.guard.Authenticate(rest).ServeHTTP)
	r.MethodNotAllowed(s.guard.Authenticate(http.HandlerFunc(notSupported)).ServeHTTP)

	r.Group(s.public)
	if s.cfg.Web != nil {
		r.Group(func(r chi.Router) { page(r, s.cfg.Web) })
	}
	r.Group(func(r chi.Router) {
		r.Use(s.guard.Authenticate)
		r.Group(s.paths)
		r.With(s.guard.AuditedPath).Get(why.Path, s.explain.Serve)         // authorizes each read
		r.With(s.guard.AuditedPath).Get(why.HealthPath, s.explain.Health)  // likewise
		r.With(s.guard.AuditedPath).Get(nodetunnel.Path, s.streams.Tunnel) // authorizes only the agents of nodes
		r.With(s.guard.AuditedPath).Delete(nodetunnel.Path, s.streams.Leave)
		for _, prefix := range []string{"/api/{version}", "/apis/{group}/{version}"} {
			r.Route(prefix, s.resources)
		}
	})
	return r
}

// Kubelet returns the handler of the node's own port.
func (s *Server) Kubelet(node string) http.Handler {
	return s.recoverPanic(s.gate.LimitBody(s.gate.Steady(s.streams.Kubelet(node))))
}

// Serve serves the listeners of e until ctx ends; then it waits for running requests. It closes the listeners.
func (s *Server) Serve(ctx context.Context, e *entry.Entry) error {
	return e.Serve(ctx, s.Handler(), s.Kubelet(e.Node()), s.cfg.Log)
}

// FlowControl returns the controller that applies FlowSchemas and PriorityLevelConfigurations to the server's requests.
func (s *Server) FlowControl(deps follow.Deps) follow.Controller {
	return flow.NewController(deps, s.gate.Configure)
}

// Usage returns the usage of all nodes and their pods, as metrics.k8s.io serves it.
func (s *Server) Usage(ctx context.Context) ([]*metrics.NodeMetrics, []*metrics.PodMetrics, error) {
	return s.streams.Usage(ctx)
}

// Ready returns nil if all checks of /readyz pass.
func (s *Server) Ready(ctx context.Context) error { return s.health.Ready(ctx) }

// public routes paths that need no authentication.
func (s *Server) public(r chi.Router) {
	r.Use(s.guard.Identify)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		r.Get(path, s.health.Serve)
		r.Head(path, s.health.Serve)
		r.Get(path+"/{check}", s.health.Serve)
	}
	r.Get("/version", s.version)
	if s.cfg.Admin.SignIn != nil {
		r.Post(admin.Exchange, s.admin.Session)
	}
}

// paths routes non-resource paths.
func (s *Server) paths(r chi.Router) {
	r.Use(s.guard.AuditedPath, s.gate.withSeat, s.guard.AuthorizePath)
	if tokens := s.cfg.Tokens; tokens != nil { // OpenID configuration for service account tokens
		r.Get(token.ConfigurationPath, tokens.Configuration)
		r.Get(token.KeysPath, tokens.Keys)
	}
	r.Get("/configz", s.configz)
	scrapes := promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(s.cfg.Metrics, scrapes))
	r.Method(http.MethodGet, "/metrics/slis", promhttp.HandlerFor(s.health.SLIs(), scrapes))
	r.Get("/debug/controllers/{name}", s.debug)
	for path, dump := range s.gate.Dumps() {
		r.Get(path, dump)
	}
	if s.cfg.Profiling {
		r.Get("/debug/pprof", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/debug/pprof/", http.StatusMovedPermanently)
		})
		r.HandleFunc("/debug/pprof/*", pprof.Index)
		r.Get("/debug/pprof/cmdline", pprof.Cmdline)
		r.Get("/debug/pprof/profile", pprof.Profile)
		r.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		r.Get("/debug/pprof/trace", pprof.Trace)
	}
	r.Get(status.Path, s.admin.Status)
	r.Get(status.LogPath, s.admin.Log)
	r.Post(admin.Path, s.admin.Login)
	r.Post("/monopod/snapshot", s.admin.Snapshot)
	r.Get("/monopod/shutdown", s.admin.Shutdown)
	r.Post("/monopod/shutdown", s.admin.Shutdown)
	r.Get(images.Path, s.admin.Images)
	r.Post(images.Path, s.admin.Images)
	r.Delete(images.Path, s.admin.Images)
	r.Get(auth.CertificatesPath, s.admin.Certs)
	r.Post(auth.CertificatesPath, s.admin.Certs)
	r.Get("/openapi/v2", s.docs.OpenapiV2)
	r.Get("/openapi/v3", s.docs.OpenapiIndex)
	r.Get("/openapi/v3/*", s.docs.OpenapiGroup)
	r.Get("/api", s.docs.DiscoverCore)
	r.Get("/apis", s.docs.DiscoverGroups)
	r.Get("/apis/{group}", s.docs.DiscoverGroup)
}

// resources routes everything below a group and version. The subresources of Namespaces come first, because their paths
// look like those of resources in a namespace.
func (s *Server) resources(r chi.Router) {
	r.With(s.gate.withSeat, s.guard.AuthorizePath).Get("/", s.remotes.orLocal(s.docs.DiscoverResources))
	s.object(r.With(namespacesTarget), "/namespaces/{name}/{subresource:status|finalize}")
	const proxied = "/{resource}/{name}/{subresource:proxy}" // to pods, Services and nodes
	proxy := s.targets.handle(func(w http.ResponseWriter, r *http.Request, t target) error {
		return s.streams.Proxy(w, r, t.ref)
	})
	for _, scope := range []string{"", "/namespaces/{namespace}"} {
		r.Get(scope+"/{resource}", s.targets.handle(s.listOrWatch))
		r.Post(scope+"/{resource}", s.targets.handle(s.create))
		r.Delete(scope+"/{resource}", s.targets.handle(s.deleteCollection))
		r.HandleFunc(scope+proxied, proxy) // for all methods
		r.HandleFunc(scope+proxied+"/*", proxy)
		s.object(r, scope+"/{resource}/{name}")
		s.object(r, scope+"/{resource}/{name}/{subresource}")
	}
}

// namespacesTarget sets the resource of a path of a Namespace's subresource.
func namespacesTarget(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chi.RouteContext(r.Context()).URLParams.Add("resource", client.Namespaces.Resource)
		next.ServeHTTP(w, r)
	})
}

func (s *Server) object(r chi.Router, path string) {
	r.Get(path, s.targets.handle(s.get))
	r.Put(path, s.targets.handle(s.update))
	r.Patch(path, s.targets.handle(s.patch))
	r.Post(path, s.targets.handle(s.createSub))
	r.Delete(path, s.targets.handle(s.delete))
}
