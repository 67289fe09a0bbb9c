// Package apiserver is the Kubernetes API over HTTP: New makes a handler of a
// registry. One file per verb; server.go is the table of contents.
package apiserver

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"monopod/apiserver/access"
	"monopod/apiserver/access/audit"
	"monopod/apiserver/access/auth"
	"monopod/apiserver/access/certscmd"
	"monopod/apiserver/access/entry"
	"monopod/apiserver/access/token"
	"monopod/apiserver/client"
	"monopod/apiserver/codec"
	"monopod/apiserver/connect"
	"monopod/apiserver/discovery"
	"monopod/apiserver/flow"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/request"
	"monopod/apiserver/virtual"
	"monopod/apiserver/watch"
)

// Config of a Server. Registry and Authenticator are required.
type Config struct {
	Registry      *registry.Registry
	Authenticator auth.Authenticator
	// Authorizer decides what users may do; nil: everything.
	Authorizer auth.Authorizer
	// Tokens issues the tokens of service accounts, and tells others how to check
	// them; nil: it does not.
	Tokens *token.Issuer
	// Node finds the node that runs a pod's containers; nil: no node does.
	Node func(name string) (client.Node, error)
	// Pods reaches those to which the machine's network does not lead; nil: there are
	// none.
	Pods connect.PodNetwork
	// Checks are asked by /healthz, /livez and /readyz, in this order.
	Checks []Check
	// Answers are served beside what the registry stores; nil: none.
	Answers virtual.Answers
	// Usage answers metrics.k8s.io; nil: nothing is known.
	Usage virtual.Usage
	// Metrics is served at /metrics and gets the server's own; nil: none.
	Metrics *prometheus.Registry
	// Web is served at /; nil: no page.
	Web http.Handler
	// Access is whose certificates /monopod/certs is about; nil: none's.
	Access *entry.Entry
	// Configz is the effective configuration by component, for /configz.
	Configz map[string]any
	// Debug answers /debug/controllers/<name>; nil for one that is not known.
	Debug func(name string) http.Handler
	// Snapshot makes a copy of the state for POST /monopod/snapshot, which answers
	// with what it returns; nil: none.
	Snapshot func() (any, error)
	// Shutdown stops the pods of this process's node for admins, at
	// /monopod/shutdown; nil: there is none.
	Shutdown http.Handler
	// Profiling serves Go's profiles at /debug/pprof/.
	Profiling bool
	Limits    flow.Limits
	Audit     *audit.Log                          // nil: requests are not written down
	Clock     clock.WithTickerAndDelayedExecution // nil: the real one
	Log       *zap.Logger                         // nil: silent
}

// Server answers requests; it is made by New.
type Server struct {
	cfg      Config
	registry *registry.Registry
	out      *codec.Responder
	guard    *access.Guard
	gate     *flow.Gate
	streams  *connect.Connector
	watches  *watch.Watcher
	docs     *discovery.Documents
	answers  virtual.Answers
	health   *health
	admin    *admin
	counters counters
}

// New returns the handler of the whole API. When ctx ends, watches and streams
// end; requests under way are not disturbed.
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
	out := &codec.Responder{Log: cfg.Log, Clock: cfg.Clock, Audited: cfg.Audit != nil}
	guard := access.New(access.Config{Authenticator: cfg.Authenticator, Authorizer: cfg.Authorizer, Audit: cfg.Audit, Fail: out.Fail})
	gate := flow.New(cfg.Limits, cfg.Clock, cfg.Metrics)
	return &Server{
		cfg: cfg, health: &health{cfg.Checks, cfg.Log}, admin: &admin{cfg, out}, registry: cfg.Registry, out: out, guard: guard, gate: gate, counters: newCounters(cfg.Metrics),
		streams: connect.New(connect.Config{
			API: cfg.Registry, Guard: guard, Gate: gate, Fail: out.Fail, Node: cfg.Node, Pods: cfg.Pods, Stop: ctx, Clock: cfg.Clock, Log: cfg.Log}),
		watches: watch.New(watch.Config{API: cfg.Registry, MinTime: gate.MinWatchTime(), Stop: ctx, Clock: cfg.Clock}),
		docs:    discovery.New(discovery.Config{Resources: cfg.Registry.Resources, Version: Version.GitVersion, Out: out, Clock: cfg.Clock}),
		answers: virtual.New(virtual.Config{
			API: cfg.Registry, Guard: guard, Authenticator: cfg.Authenticator, Checks: componentChecks(cfg.Checks), Usage: cfg.Usage, Clock: cfg.Clock}, cfg.Answers),
	}, nil
}

// Handler is the router.
func (s *Server) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(trimSlash, s.count, s.recoverPanic, s.gate.LimitBody, s.gate.Steady)
	r.NotFound(s.guard.Authenticate(s.guard.AuthorizePath(http.HandlerFunc(s.notFound))).ServeHTTP)
	r.MethodNotAllowed(s.guard.Authenticate(http.HandlerFunc(s.methodNotAllowed)).ServeHTTP)

	r.Group(s.public)
	if s.cfg.Web != nil {
		r.Group(func(r chi.Router) { page(r, s.cfg.Web) })
	}
	r.Group(func(r chi.Router) {
		r.Use(s.guard.Authenticate)
		r.Group(s.paths)
		for _, prefix := range []string{"/api/{version}", "/apis/{group}/{version}"} {
			r.Route(prefix, s.resources)
		}
	})
	return r
}

// Kubelet is the handler of the port of the node's own agent.
func (s *Server) Kubelet(node string) http.Handler {
	return s.recoverPanic(s.gate.LimitBody(s.gate.Steady(s.streams.Kubelet(node))))
}

// Serve answers those who come in through a until ctx ends; then it lets
// requests under way finish. It closes a's listeners.
func (s *Server) Serve(ctx context.Context, a *entry.Entry) error {
	return a.Serve(ctx, s.Handler(), s.Kubelet(a.Node()), s.cfg.Log)
}

// Ready is nil when /readyz is ok.
func (s *Server) Ready(ctx context.Context) error { return s.health.ready(ctx) }

// public is what anybody may see.
func (s *Server) public(r chi.Router) {
	r.Use(s.guard.Identify)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		r.Get(path, s.health.serve)
		r.Head(path, s.health.serve)
		r.Get(path+"/{check}", s.health.serve)
	}
	r.Get("/version", s.admin.version)
}

// paths are what is no resource.
func (s *Server) paths(r chi.Router) {
	r.Use(s.guard.AuditedPath, s.guard.AuthorizePath)
	s.openID(r)
	r.Get("/configz", s.admin.configz)
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{}))
	r.Get("/debug/controllers/{name}", s.admin.debug)
	if s.cfg.Profiling {
		profiles(r)
	}
	r.Post("/monopod/snapshot", s.admin.snapshot)
	r.Get("/monopod/shutdown", s.admin.shutdown)
	r.Post("/monopod/shutdown", s.admin.shutdown)
	r.Get(certscmd.Path, s.admin.certs)
	r.Post(certscmd.Path, s.admin.certs)
	r.Get("/openapi/v2", s.docs.OpenapiV2)
	r.Get("/openapi/v3", s.docs.OpenapiIndex)
	r.Get("/openapi/v3/*", s.docs.OpenapiGroup)
	r.Get("/api", s.docs.DiscoverCore)
	r.Get("/apis", s.docs.DiscoverGroups)
	r.Get("/apis/{group}", s.docs.DiscoverGroup)
}

// resources routes everything below a group and version. A namespace's own
// subresources look like resources in it, so they come first.
func (s *Server) resources(r chi.Router) {
	r.With(s.guard.AuthorizePath).Get("/", s.docs.DiscoverResources)
	s.object(r.With(ofNamespaces), "/namespaces/{name}/{subresource:status|finalize}")
	for _, scope := range []string{"", "/namespaces/{namespace}"} {
		r.Get(scope+"/{resource}", s.on(s.listOrWatch))
		r.Post(scope+"/{resource}", s.on(s.create))
		r.Delete(scope+"/{resource}", s.on(s.deleteCollection))
		s.proxies(r, scope)
		s.object(r, scope+"/{resource}/{name}")
		s.object(r, scope+"/{resource}/{name}/{subresource}")
	}
}

// ofNamespaces says what the path of a namespace's subresource is about.
func ofNamespaces(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chi.RouteContext(r.Context()).URLParams.Add("resource", client.Namespaces.Resource)
		next.ServeHTTP(w, r)
	})
}

func (s *Server) object(r chi.Router, path string) {
	r.Get(path, s.on(s.get))
	r.Put(path, s.on(s.update))
	r.Patch(path, s.on(s.patch))
	r.Post(path, s.on(s.createSub))
	r.Delete(path, s.on(s.delete))
}

// proxies routes what goes on to pods, services and nodes, whatever its method.
func (s *Server) proxies(r chi.Router, scope string) {
	at := scope + "/{resource}/{name}/{subresource:proxy}"
	h := s.on(func(w http.ResponseWriter, r *http.Request, t target) error { return s.streams.Reach(w, r, t.ref) })
	r.HandleFunc(at, h)
	r.HandleFunc(at+"/*", h)
}

// target is what the path of a request names.
type target struct {
	res *registry.Resource
	ref client.Ref
	sub *kind.Subresource // nil: the object itself
}

// another says that the target takes and answers objects of another kind than its
// resource's.
func (t target) another() bool { return t.sub != nil && t.sub.New != nil }

// body is what writes to the target take.
func (t target) body() codec.Expected {
	into := codec.Expected{New: t.res.New, Kind: t.res.GVK(), Ref: t.ref, Namespaced: t.res.Namespaced}
	if t.another() {
		into.New, into.Kind = t.sub.New, t.sub.Kind
	}
	return into
}

// verb answers a request about a target; its error becomes a Status.
type verb func(w http.ResponseWriter, r *http.Request, t target) error

// on finds the target and answers with the verb's error, if there is one. What
// the user may not ask for is refused before it is known whether it exists.
func (s *Server) on(do verb) http.HandlerFunc {
	do = s.bounded(do)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var t target
		err := s.guard.Permit(r)
		if err == nil {
			t, err = s.target(r)
		}
		if err == nil {
			err = request.CheckQuery(r)
		}
		if err == nil {
			err = checkVerb(r, t)
		}
		if err == nil {
			err = do(w, heard(w, r, t.res), t)
		}
		if err != nil {
			s.out.Fail(w, r, err)
		}
	})
	return s.guard.Audited(h, request.Ref).ServeHTTP
}

func (s *Server) target(r *http.Request) (target, error) {
	ref := request.Ref(r)
	res, err := s.registry.Resource(ref.Resource)
	if err != nil {
		return target{}, err
	}
	sub := res.Subresource(ref.Subresource)
	if ref.Subresource != "" && sub == nil {
		return target{}, s.errNoSubresource(r, ref)
	}
	if scoped := ref.Namespace != ""; scoped && !res.Namespaced || !scoped && res.Namespaced && ref.Name != "" {
		return target{}, request.ErrNotFound()
	}
	return target{res, ref, sub}, nil
}

// errNoSubresource is 404, or 405 where the path is one of a collection in a
// namespace, which looks alike.
func (s *Server) errNoSubresource(r *http.Request, ref client.Ref) error {
	if inside := ref.Resource.GroupVersion().WithResource(ref.Subresource); ref.Resource.Resource == "namespaces" {
		if _, err := s.registry.Resource(inside); err == nil {
			return apierrors.NewMethodNotSupported(inside.GroupResource(), r.Method)
		}
	}
	return request.ErrNotFound()
}

// checkVerb is 405 for what the resource has no verb for.
func checkVerb(r *http.Request, t target) error {
	if t.ref.Subresource == "" && !t.res.Can(request.Verb(r, t.ref)) {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	return nil
}

// openID tells others how to check the tokens of service accounts.
func (s *Server) openID(r chi.Router) {
	if s.cfg.Tokens == nil {
		return
	}
	r.Method(http.MethodGet, token.ConfigurationPath, http.HandlerFunc(s.cfg.Tokens.Configuration))
	r.Method(http.MethodGet, token.KeysPath, http.HandlerFunc(s.cfg.Tokens.Keys))
}
