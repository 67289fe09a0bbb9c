// Package setup creates an API server: its state, the registry, authentication and authorization.
package setup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/apiserver"
	"monopod/apiserver/access/entry"
	nodeauth "monopod/apiserver/access/node"
	"monopod/apiserver/access/rbac"
	"monopod/apiserver/access/rbac/policy"
	"monopod/apiserver/access/token"
	"monopod/apiserver/aggregate"
	"monopod/apiserver/auth"
	"monopod/apiserver/connect"
	"monopod/apiserver/flow"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/health"
	"monopod/apiserver/kit/memory"
	"monopod/apiserver/kit/record"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/admission/plugins"
	"monopod/apiserver/registry/custom"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/service"
	"monopod/apiserver/registry/storage"
	"monopod/apiserver/virtual"
	"monopod/store"
	"monopod/store/state"
)

// Config configures an API.
type Config struct {
	Settings
	DataDir  string
	Node     string        // name of this process's node
	Kubelet  string        // host:port of the kubelet's API; empty: disabled
	Names    []string      // additional names and addresses for the server's certificate
	EventTTL time.Duration // the time after which events expire
	// LoopbackPods is the part of the loopback range that contains the addresses of pods, so that endpoints may contain
	// these addresses; the zero value: none.
	LoopbackPods netip.Prefix
	// Off reports whether --controllers disables a controller.
	Off func(controller string) bool
	Log *zap.Logger
}

// API contains the parts of an API server. The process can use Registry after Open; clients can connect when the server
// of New serves.
type API struct {
	Registry   *registry.Registry
	State      *state.State
	Access     *entry.Entry
	Advertised netip.AddrPort // address for pods and other machines
	Restored   string         // describes the state that was restored before this start; empty: none

	cfg        Config
	metrics    *prometheus.Registry
	guard      *guard.Guard // for the goroutines of the registry
	roles      *rbac.Authorizer
	tokens     *token.Issuer
	aggregator *aggregate.Aggregator
	pods       atomic.Pointer[connect.PodNetwork] // nil: pods are reached as everything else
}

// Stores returns the configuration of a store for the built-in kinds.
func Stores() store.Config { return store.Config{Kind: registry.Kinds(registry.Resources())} }

// SharedStores is Stores for state that may be in etcd, where events expire after eventTTL even if no server runs.
func SharedStores(eventTTL time.Duration) state.Config {
	resources := registry.Resources()
	cfg := state.Config{
		Config: store.Config{Kind: registry.Kinds(resources)},
		// The objects of a custom kind are stored under the name of their definition.
		Definitions: custom.DefinitionsName,
		TTL:         map[string]time.Duration{client.Events.Resource: eventTTL},
	}
	for _, r := range resources {
		if r.Stored() {
			cfg.Resources = append(cfg.Resources, r.StoreName())
		}
	}
	return cfg
}

// maxState returns the maximum size of the state on a machine with this memory; 0: no limit.
func maxState(flag int64, memory uint64) int64 {
	switch {
	case flag < 0:
		return 0
	case flag > 0:
		return flag
	}
	return int64(min(max(memory/16, 64<<20), 2<<30))
}

// Open opens the state, creates the default objects of a cluster, and reads or creates keys and certificates. The
// caller must call Close.
func Open(ctx context.Context, cfg Config, metrics *prometheus.Registry) (*API, error) {
	stores := SharedStores(cfg.EventTTL)
	stores.Log = cfg.Log.Named("store")
	stores.MaxBytes = maxState(cfg.State.MaxSize, memory.Limit())
	state, err := state.Open(ctx, cfg.State, stores)
	if err != nil {
		return nil, err
	}
	a := &API{State: state, cfg: cfg, metrics: metrics}
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, state.Close())
	}
	return a, nil
}

func (a *API) open(ctx context.Context) error {
	log := a.cfg.Log.Named("registry")
	var err error
	if a.guard, err = guard.New(log, clock.RealClock{}, a.metrics); err != nil {
		return err
	}
	a.roles = rbac.New(rbac.Config{Log: a.cfg.Log.Named("rbac")})
	a.tokens = token.New(token.Config{KeyFile: a.cfg.path("pki", "sa.key")})
	resources := service.WithLoopbackPods(registry.Resources(), a.cfg.LoopbackPods)
	a.Registry = registry.New(a.State.Store, resources, registry.Config{
		Roles: a.roles, Tokens: a.tokens.Issue, Log: log, Guard: a.guard, Services: a.cfg.services, Off: a.cfg.Off,
		DisabledPlugins: a.cfg.DisabledPlugins, Dial: a.dial, Establish: establishTime,
		Tolerations: plugins.TolerationSeconds{
			NotReady: &a.cfg.NotReadySeconds, Unreachable: &a.cfg.UnreachableSeconds},
	})
	if _, err := registry.NewDefinitions(a.Registry).Load(ctx); err != nil {
		return fmt.Errorf("load the definitions of custom kinds: %w", err)
	}
	if err := registry.ConfiguredAdmission(a.Registry).Load(ctx); err != nil {
		return fmt.Errorf("load the configurations of webhooks: %w", err)
	}
	if err := a.bootstrap(ctx); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	a.Restored = a.State.Tell(a.cfg.Log.Named("store"))
	if err := a.shareKeys(ctx); err != nil {
		return err
	}
	if err := a.openAccess(); err != nil {
		return err
	}
	a.aggregator = aggregate.New(aggregate.Config{
		API: a.Registry, Dial: a.dial, Identity: sync.OnceValues(a.Access.FrontProxy), Log: log,
		Announce: a.Registry.Announce,
		Served: func() ([]kind.Resource, <-chan struct{}) {
			changed := a.Registry.Changed()
			return a.Registry.Resources(), changed
		}})
	a.metrics.MustRegister(a.tokens.Collectors()...)
	a.metrics.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), a.State.Collector(a.Registry.Stored()))
	a.Advertised, err = a.Access.Advertised()
	return err
}

// bootstrap creates the default objects of a cluster.
func (a *API) bootstrap(ctx context.Context) error {
	if err := a.Registry.Bootstrap(ctx); err != nil {
		return err
	}
	group, ctx := guard.With(ctx)
	group.Do(func() error { return policy.Bootstrap(ctx, a.Registry) })
	group.Do(func() error { return storage.Bootstrap(ctx, a.Registry) })
	group.Do(func() error { return flow.Ensure(ctx, a.Registry) })
	return group.Wait()
}

// shareKeys makes the servers on one etcd use the same authority and tokens.
func (a *API) shareKeys(ctx context.Context) error {
	if !a.State.Shared() {
		return nil
	}
	pki := a.cfg.path("pki")
	differs, err := auth.Share(pki, func(mine []byte) ([]byte, error) { return a.State.Etcd.Agree(ctx, "pki", mine) })
	if err != nil {
		return fmt.Errorf("share pki: %w", err)
	}
	if differs {
		a.cfg.Log.Warn("this server has a different authority and token: kubeconfigs of the other servers do not work here",
			zap.String("folder", pki))
	}
	return nil
}

func (a *API) openAccess() (err error) {
	cfg := entry.Config{
		Dir: a.cfg.DataDir, Serving: a.cfg.Serving, Listen: a.cfg.Listen, Kubelet: a.cfg.Kubelet, Node: a.cfg.Node,
		Names: slices.Concat([]string{a.cfg.services.APIServerAddress().String()}, a.cfg.Serving.SANs, a.cfg.Names),
		Clock: clock.RealClock{}, Guard: a.guard,
	}
	if a.State.Shared() {
		cfg.Agree = func(name string, mine []byte) ([]byte, error) {
			return a.State.Etcd.Agree(context.Background(), name, mine) // which limits the time, and ends with the store
		}
	}
	a.Access, err = entry.Open(cfg)
	if err != nil {
		return err
	}
	for _, err := range a.Access.Problems {
		a.cfg.Log.Error("failed to replace a credential file", zap.Error(err))
	}
	return nil
}

// Health returns an error if goroutines of the registry panicked recently.
func (a *API) Health(context.Context) error { return a.guard.Check() }

// Checks returns the health checks of the API itself, of the state, and of the goroutines of the registry.
func (a *API) Checks() []health.Check {
	return []health.Check{
		{Name: "ping", Ready: true, Live: true, Ask: func(context.Context) error { return nil }},
		{Name: a.State.Name(), Ready: true, Live: a.State.Shared(), Ask: a.State.Healthy},
		{Name: "registry", Ask: a.Health},
	}
}

// Close closes the state.
func (a *API) Close() error { return a.State.Close() }

// New returns the server. It sets the fields of cfg about the registry, users and the state. The caller must call
// closeLog, which closes the audit log, after the server has stopped.
func (a *API) New(ctx context.Context, cfg apiserver.Config) (server *apiserver.Server, closeLog func() error,
	err error) {
	log, file, err := a.cfg.Audit.Open(clock.RealClock{}, a.cfg.Log.Named("audit"))
	if err != nil {
		return nil, nil, err
	}
	if cfg.Pods != nil {
		a.pods.Store(&cfg.Pods)
	}
	cfg.Registry, cfg.Metrics = a.Registry, a.metrics
	cfg.Authenticator = auth.Any(a.Access.Authenticator(), a.tokens.Authenticator(a.Registry),
		token.Bootstrap(a.Registry, clock.RealClock{}))
	cfg.Authorizer = nodeauth.Authorizer{Authorizer: a.roles, Client: a.Registry}
	cfg.Aggregator = a.aggregator
	cfg.Tokens, cfg.Kubelets = a.tokens, a.Access.Kubelets
	cfg.Admin.Access, cfg.Admin.Snapshot, cfg.Admin.SignIn = a.Access, a.State.Save, a.Access.Token
	cfg.Profiling, cfg.Limits = a.cfg.Profiling, a.cfg.Limits
	cfg.Audit, cfg.Log = log, a.cfg.Log.Named("apiserver")
	server, err = apiserver.New(ctx, cfg)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return server, file.Close, nil
}

// establishTime is how long the creation of a definition waits until its kinds are served. Clients such as envtest look
// for them at once, and then only every 100 ms.
const establishTime = 50 * time.Millisecond

// Whole returns a client of the whole API for parts of this process: the registry, metrics.k8s.io, which usage computes
// unless another server serves it, and the kinds of other servers.
func (a *API) Whole(usage virtual.Usage) client.Ordered {
	return a.aggregator.Client(virtual.Measured(a.Registry, usage))
}

// Kinds returns the kinds whose objects controllers delete, including those of other servers.
func (a *API) Kinds() client.Kinds { return a.aggregator.Kinds(registry.ServedBy(a.Registry)) }

// Silent returns the groups and versions whose servers do not answer.
func (a *API) Silent() []string { return a.aggregator.Silent() }

// MayRequest reports whether the user who created a CertificateSigningRequest may create a subresource of them. The
// request of such a user is approved.
func (a *API) MayRequest(ctx context.Context, by *certificatesv1.CertificateSigningRequestSpec,
	subresource string) (bool, error) {
	user := auth.User{Name: by.Username, UID: by.UID, Groups: by.Groups, Extra: map[string][]string{}}
	for key, values := range by.Extra {
		user.Extra[key] = values
	}
	allowed, _, err := a.roles.Authorize(ctx, auth.Attributes{
		User: user, Verb: "create", Group: certificatesv1.GroupName, Version: "*",
		Resource: client.CertificateSigningRequests.Resource, Subresource: subresource,
	})
	return allowed, err
}

// Roles returns the task that watches roles and bindings.
func (a *API) Roles(follow.Deps) follow.Controller {
	return follow.Task("rbac", func(ctx context.Context) error { return a.roles.Run(ctx, a.Registry) })
}

// Definitions returns the task that serves the custom kinds.
func (a *API) Definitions(follow.Deps) follow.Controller {
	return follow.Task("definitions", registry.NewDefinitions(a.Registry).Run)
}

// Webhooks returns the task that watches the configurations of admission webhooks and policies.
func (a *API) Webhooks(follow.Deps) follow.Controller {
	return follow.Task("webhooks", registry.ConfiguredAdmission(a.Registry).Run)
}

// Aggregation returns the controller of APIServices.
func (a *API) Aggregation(deps follow.Deps) follow.Controller { return a.aggregator.Controller(deps) }

// dial connects to a webhook or an API server, which may run in a pod.
func (a *API) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if at, err := netip.ParseAddrPort(address); err == nil {
		if pods := a.pods.Load(); pods != nil && (*pods).Holds(at.Addr().Unmap()) {
			return (*pods).Dial(ctx, network, address)
		}
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// KeepState maintains the state until ctx ends. It creates an Event about the Node when the state file is lost.
func (a *API) KeepState(ctx context.Context) error {
	dropped, err := record.NewMetrics(a.metrics)
	if err != nil {
		return err
	}
	events := record.New(record.Config{
		Client: a.Registry, Component: "monopod", Host: a.cfg.Node, Clock: clock.RealClock{}, Metrics: dropped,
		Guard: a.guard,
	})
	defer events.Close()
	node := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.cfg.Node, UID: types.UID(a.cfg.Node)}
	return a.State.Run(ctx, func(message string) {
		events.Reference(node, corev1.EventTypeWarning, "StateFileLost", "%s", message)
	})
}
