// Package apiserver is the Kubernetes API over HTTP: New makes a handler of a
// registry. One file per verb; server.go is the table of contents.
package apiserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"monopod/apiserver/access/audit"
	"monopod/apiserver/access/auth"
	"monopod/apiserver/access/certscmd"
	"monopod/apiserver/access/token"
	"monopod/apiserver/client"
	"monopod/apiserver/codec"
	"monopod/apiserver/flow/fair"
	"monopod/apiserver/openapi"
	"monopod/apiserver/registry"
	"monopod/apiserver/request"
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
	Pods PodNetwork
	// Checks are asked by /healthz, /livez and /readyz, in this order.
	Checks []Check
	// Answers are served beside what the registry stores; nil: none.
	Answers Answers
	// Usage answers metrics.k8s.io; nil: nothing is known.
	Usage Usage
	// Metrics is served at /metrics and gets the server's own; nil: none.
	Metrics *prometheus.Registry
	// Web is served at /; nil: no page.
	Web http.Handler
	// Access is whose certificates /monopod/certs is about; nil: none's.
	Access *Access
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
	Limits    Limits
	Audit     *audit.Log                          // nil: requests are not written down
	Clock     clock.WithTickerAndDelayedExecution // nil: the real one
	Log       *zap.Logger                         // nil: silent
}

// Server answers requests; it is made by New.
type Server struct {
	Config
	registry *registry.Registry
	openapi  *openapi.Documents
	counters counters
	rooms    rooms
	open     fair.Tally // watches and streams, by user
	budget   budget
	frames   frames
	stop     context.Context
	out      codec.Responder

	crossOrigin *http.CrossOriginProtection
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
	cfg.Limits = cfg.Limits.complete()
	rooms := newRooms(cfg.Limits, cfg.Clock)
	s := &Server{
		Config: cfg, registry: cfg.Registry, stop: ctx, crossOrigin: http.NewCrossOriginProtection(),
		openapi:  newOpenAPI(cfg),
		counters: newCounters(cfg.Metrics, rooms), rooms: rooms,
		budget: newBudget(cfg.Limits, cfg.Clock),
		out:    codec.Responder{Log: cfg.Log, Clock: cfg.Clock, Audited: cfg.Audit != nil},
	}
	s.Answers = s.withPods(s.answers())
	return s, nil
}

// Handler is the router.
func (s *Server) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(trimSlash, s.count, s.recoverPanic, s.limitBody, s.steady)
	r.NotFound(s.authenticate(s.authorizePath(http.HandlerFunc(s.notFound))).ServeHTTP)
	r.MethodNotAllowed(s.authenticate(http.HandlerFunc(s.methodNotAllowed)).ServeHTTP)

	r.Group(s.public)
	if s.Web != nil {
		r.Group(s.page)
	}
	r.Group(func(r chi.Router) {
		r.Use(s.authenticate)
		r.Group(s.paths)
		for _, prefix := range []string{"/api/{version}", "/apis/{group}/{version}"} {
			r.Route(prefix, s.resources)
		}
	})
	return r
}

// public is what anybody may see.
func (s *Server) public(r chi.Router) {
	r.Use(s.identify)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		r.Get(path, s.health)
		r.Head(path, s.health)
		r.Get(path+"/{check}", s.health)
	}
	r.Get("/version", s.version)
}

// paths are what is no resource.
func (s *Server) paths(r chi.Router) {
	r.Use(s.auditedPath, s.authorizePath)
	s.openID(r)
	r.Get("/configz", s.configz)
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{}))
	r.Get("/debug/controllers/{name}", s.debug)
	if s.Profiling {
		profiles(r)
	}
	r.Post("/monopod/snapshot", s.snapshot)
	r.Get("/monopod/shutdown", s.shutdown)
	r.Post("/monopod/shutdown", s.shutdown)
	r.Get(certscmd.Path, s.certs)
	r.Post(certscmd.Path, s.certs)
	r.Get("/openapi/v2", s.openapiV2)
	r.Get("/openapi/v3", s.openapiIndex)
	r.Get("/openapi/v3/*", s.openapiGroup)
	r.Get("/api", s.discoverCore)
	r.Get("/apis", s.discoverGroups)
	r.Get("/apis/{group}", s.discoverGroup)
}

// resources routes everything below a group and version. A namespace's own
// subresources look like resources in it, so they come first.
func (s *Server) resources(r chi.Router) {
	r.With(s.authorizePath).Get("/", s.discoverResources)
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

// target is what the path of a request names.
type target struct {
	res *registry.Resource
	ref client.Ref
}

// body is what writes to the target take.
func (t target) body() codec.Expected {
	into := codec.Expected{New: t.res.New, Kind: t.res.GVK(), Ref: t.ref, Namespaced: t.res.Namespaced}
	if t.ref.Subresource == "scale" {
		into.New = func() registry.Object { return &autoscalingv1.Scale{} }
		into.Kind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")
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
		err := s.permit(r)
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
	return s.audited(h, request.Ref).ServeHTTP
}

func (s *Server) target(r *http.Request) (target, error) {
	ref := request.Ref(r)
	res, err := s.registry.Resource(ref.Resource)
	if err != nil {
		return target{}, err
	}
	if ref.Subresource != "" && !res.Serves(ref.Subresource) {
		return target{}, s.errNoSubresource(r, ref)
	}
	if scoped := ref.Namespace != ""; scoped && !res.Namespaced || !scoped && res.Namespaced && ref.Name != "" {
		return target{}, request.ErrNotFound()
	}
	return target{res, ref}, nil
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

func (s *Server) now() time.Time { return s.Clock.Now() }

// checkVerb is 405 for what the resource has no verb for.
func checkVerb(r *http.Request, t target) error {
	if t.ref.Subresource == "" && !t.res.Can(request.Verb(r, t.ref)) {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	return nil
}
