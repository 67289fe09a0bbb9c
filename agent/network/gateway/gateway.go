package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"monopod/agent/network/endpoints"
	"monopod/agent/network/ingress"
	"monopod/agent/network/ingress/proxy"
	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
)

// Name of the controller.
const Name = "gateway"

// Config of a Controller. All fields but Dial are required.
type Config struct {
	Node  string       // name of the node
	Kinds client.Kinds // the served kinds
	// Ingress are the settings of the ingress controller that also apply to Gateways.
	Ingress ingress.Config
	// Fallback returns the handler of Ingresses at a port; nil: they are not served there.
	Fallback func(scheme, port string) *proxy.Handler
	// Dial connects to a pod; nil: over the machine's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Controller serves Gateways on the node while the Gateway API is installed.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns a Controller; Run starts it.
func New(deps follow.Deps, cfg Config) *Controller { return &Controller{deps: deps, cfg: cfg} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// errKinds ends a run because other kinds of the Gateway API are served than at its start.
var errKinds = errors.New("other kinds are served")

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	metrics, err := proxy.NewMetrics(c.deps.Metrics)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		kinds, changed := c.kinds()
		if kinds == nil {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if err := c.serve(ctx, kinds, metrics); !errors.Is(err, errKinds) {
			return err
		}
	}
	return nil
}

// kinds returns the served kinds of the Gateway API by name, and a channel that is closed when any kinds change. It
// returns nil if one of those that are always needed is missing.
func (c *Controller) kinds() (map[string]client.Kind, <-chan struct{}) {
	all, changed := c.cfg.Kinds()
	kinds := map[string]client.Kind{}
	for _, k := range all {
		if k.Resource.Group == gatewayv1.GroupName && slices.Contains(allKinds, k.Kind) {
			kinds[k.Kind] = k
		}
	}
	if _, ok := kinds[kindClass]; !ok {
		return nil, changed
	}
	if _, ok := kinds[kindGateway]; !ok {
		return nil, changed
	}
	return kinds, changed
}

// serve serves the kinds until ctx ends. It returns errKinds when they change.
func (c *Controller) serve(ctx context.Context, kinds map[string]client.Kind, metrics *proxy.Metrics) error {
	r := newRunning(c, kinds, metrics)
	defer r.via.CloseIdle()
	group, ctx := guard.With(ctx)
	r.ctx = ctx
	group.Do(func() error {
		for {
			now, changed := c.kinds()
			if !maps.Equal(now, kinds) {
				return errKinds
			}
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
		}
	})
	group.Do(func() error { return r.loop.Run(ctx) })
	err := group.Wait()
	r.stopServers()
	for name := range r.routes {
		metrics.Forget(name)
	}
	return err
}

// key identifies what the loop reconciles: an object of a kind of the Gateway API, or what all of them need.
type key struct {
	kind string
	follow.Key
}

const (
	kindPlan    = "plan"    // of all objects, and the endpoints of backends
	kindServers = "servers" // that could not be opened
)

// running is a Controller while the Gateway API is installed.
type running struct {
	*Controller
	ctx      context.Context // of servers
	kinds    map[string]client.Kind
	metrics  *proxy.Metrics
	via      *proxy.Transport
	loop     *follow.Loop[key]
	services *endpoints.Cache
	defaults route.Options

	mu       sync.Mutex // guards what follows, which the sources fill
	observed objects
	nodes    map[string]*corev1.Node
	secrets  map[follow.Key]bool // Secrets that the plan needs, existing or not
	changed  bool                // the plan is outdated

	// Used by the loop alone:
	plan      *plan
	certs     map[follow.Key]certificate
	backends  map[proxy.Target]*proxy.Backend
	byService map[follow.Key][]*proxy.Backend // the same
	servers   map[serverKey]*server
	serving   sync.WaitGroup            // servers, also closed ones
	routes    map[follow.Key]bool       // names of routes in metrics
	owned     map[follow.Key]follow.Key // Services, and the Gateways that control them
}

func newRunning(c *Controller, kinds map[string]client.Kind, m *proxy.Metrics) *running {
	r := &running{Controller: c, kinds: kinds, metrics: m, via: proxy.NewTransport(c.cfg.Dial, m),
		services: endpoints.New(c.cfg.Node), defaults: c.cfg.Ingress.Defaults(),
		observed: newObjects(), nodes: map[string]*corev1.Node{}, secrets: map[follow.Key]bool{}, changed: true,
		plan: &plan{}, backends: map[proxy.Target]*proxy.Backend{}, servers: map[serverKey]*server{},
		owned: map[follow.Key]follow.Key{}}
	r.loop = follow.New(c.deps, follow.Config[key]{
		Name: Name, Sources: r.sources(), Start: []key{{kind: kindPlan}}, Reconcile: r.reconcile,
	})
	return r
}

func (r *running) sources() []follow.Source[key] {
	var all []follow.Source[key]
	add := func(sel client.Selector, keys func(old, next client.Object) []key) {
		all = append(all, follow.Source[key]{Selector: sel, Keys: follow.Plain(func(old, next client.Object) []key {
			r.mu.Lock()
			defer r.mu.Unlock()
			return keys(old, next)
		})})
	}
	for name, kind := range r.kinds {
		add(client.Selector{Resource: kind.Resource}, func(old, next client.Object) []key {
			changed, err := r.observed.set(name, old, next)
			if err != nil {
				r.deps.Log.Warn("failed to read an object of the Gateway API", zap.String("kind", name),
					zap.String("namespace", next.GetNamespace()), zap.String("name", next.GetName()), zap.Error(err))
			}
			if changed {
				r.changed = true
				return []key{{kind: kindPlan}} // which wakes the object
			}
			obj := next
			if obj == nil {
				obj = old
			}
			return []key{{name, follow.KeyOf(obj)}}
		})
	}
	add(client.Selector{Resource: client.Namespaces}, r.onNamespace)
	add(client.Selector{Resource: client.Secrets}, r.onSecret)
	add(client.Selector{Resource: client.Nodes}, r.onNode)
	return append(all, endpoints.Wake(r.services, key{kind: kindPlan})...)
}

func (r *running) onNamespace(old, next client.Object) []key {
	if next == nil {
		delete(r.observed.namespaces, old.GetName())
	} else {
		r.observed.namespaces[next.GetName()] = labels.Set(next.GetLabels())
	}
	if old != nil && next != nil && maps.Equal(old.GetLabels(), next.GetLabels()) {
		return nil
	}
	r.changed = true
	return []key{{kind: kindPlan}}
}

func (r *running) onSecret(old, next client.Object) []key {
	obj := next
	if obj == nil {
		obj = old
	}
	if !r.secrets[follow.KeyOf(obj)] {
		return nil
	}
	r.changed = true
	return []key{{kind: kindPlan}}
}

// onNode wakes everything if the addresses of a node have changed.
func (r *running) onNode(old, next client.Object) []key {
	var before, after []string
	if old != nil {
		before = nodeAddresses(old.(*corev1.Node))
		delete(r.nodes, old.GetName())
	}
	if next != nil {
		node := next.(*corev1.Node)
		after = nodeAddresses(node)
		r.nodes[node.Name] = node
	}
	if slices.Equal(before, after) {
		return nil
	}
	r.changed = true
	return []key{{kind: kindPlan}}
}

func (r *running) reconcile(ctx context.Context, k key) (time.Duration, error) {
	switch k.kind {
	case kindPlan:
		r.takeServices()
		return 0, r.build(ctx)
	case kindGrant:
		return 0, nil
	case kindServers:
		return 0, r.syncServers()
	case kindClass:
		return 0, r.publishClass(ctx, k.Name)
	case kindGateway:
		return 0, r.publishGateway(ctx, k.Key)
	}
	return 0, r.publishRoute(ctx, routeKey(k))
}

// takeServices updates the endpoints of backends. A Service that appears, disappears, or loses a port outdates the plan,
// and a change of the Service that a Gateway has, or could not have, wakes the Gateway.
func (r *running) takeServices() {
	for name := range r.services.Take() {
		svc, slices := r.services.Get(name)
		if owner, ok := gatewayOf(svc); ok {
			r.owned[name] = owner
		}
		if owner, ok := r.owned[name]; ok {
			r.loop.Add(key{kindGateway, owner})
		}
		if svc == nil {
			delete(r.owned, name)
		}
		for _, gw := range r.plan.services[name] {
			r.loop.Add(key{kindGateway, gw})
		}
		for _, b := range r.byService[name] {
			if b.Set(proxy.Resolve(b.Target, svc, slices)) {
				r.mu.Lock()
				r.changed = true
				r.mu.Unlock()
			}
		}
	}
}

// build computes the plan again if it is outdated, and wakes what it concerns.
func (r *running) build(ctx context.Context) error {
	r.mu.Lock()
	changed := r.changed
	r.changed = false
	if changed {
		r.secrets = r.observed.secrets() // set before they are read, so that no change is missed
	}
	wanted := r.secrets
	r.mu.Unlock()
	if !changed {
		return nil
	}
	certs, err := ingress.ReadSecrets(ctx, r.deps.Client, wanted, r.certs, route.ParseCertificate)
	if err != nil {
		r.outdate()
		return err
	}
	r.certs = certs
	r.mu.Lock()
	p := planOf(&r.observed, surroundings{
		defaults: r.defaults,
		secret: func(name follow.Key) (*tls.Certificate, error) {
			c := r.certs[name]
			if c.Value == nil && c.Err == nil {
				return nil, errors.New("it has not been read yet")
			}
			return c.Value, c.Err
		},
		service: func(name follow.Key) *corev1.Service { svc, _ := r.services.Get(name); return svc },
	})
	for name := range r.observed.classes {
		r.loop.Add(key{kindClass, follow.Key{Name: name}})
	}
	for name := range r.observed.gateways {
		r.loop.Add(key{kindGateway, name})
	}
	for name, route := range r.observed.routes {
		if !equalParents(own(route.status), p.routes[name]) {
			r.loop.Add(key(name))
		}
	}
	r.mu.Unlock()
	r.connect(p)
	r.plan = p
	if r.syncServers() != nil {
		r.loop.Add(key{kind: kindServers}) // which fails again, or not; meanwhile the others serve
	}
	return nil
}

// outdate lets the next build repeat one that failed.
func (r *running) outdate() {
	r.mu.Lock()
	r.changed = true
	r.mu.Unlock()
}

// secrets returns the Secrets to which listeners refer.
func (o *objects) secrets() map[follow.Key]bool {
	wanted := map[follow.Key]bool{}
	for _, gw := range o.gateways {
		if !o.ours(gw) {
			continue
		}
		for _, l := range gw.Spec.Listeners {
			for _, ref := range value(l.TLS).CertificateRefs {
				if name, ok := secretKey(gw, ref); ok {
					wanted[name] = true
				}
			}
		}
	}
	return wanted
}

// certificate is what one version of a Secret contains.
type certificate = ingress.Parsed[*tls.Certificate]

// connect sets the backends and metrics of a plan.
func (r *running) connect(p *plan) {
	backends, byService := map[proxy.Target]*proxy.Backend{}, map[follow.Key][]*proxy.Backend{}
	routes := map[follow.Key]bool{}
	counts := map[follow.Key]*proxy.Counts{}
	set := func(s *proxy.Split) {
		for _, c := range s.Choices {
			to := c.To
			if counts[to.Ingress] == nil {
				counts[to.Ingress], routes[to.Ingress] = r.metrics.Of(to.Ingress), true
			}
			to.Counts = counts[to.Ingress]
			if to.Service.Name == "" {
				continue
			}
			b := backends[to.Target]
			if b == nil {
				if b = r.backends[to.Target]; b == nil {
					b = proxy.NewBackend(to.Target)
				}
				svc, slices := r.services.Get(to.Service)
				b.Set(proxy.Resolve(to.Target, svc, slices))
				backends[to.Target] = b
				byService[to.Service] = append(byService[to.Service], b)
			}
			to.Backend = b
		}
	}
	for _, g := range p.gateways {
		for _, l := range g.listeners {
			for i := range l.rules {
				set(l.rules[i].To)
			}
			if l.tcp != nil {
				set(l.tcp)
			}
		}
	}
	for name := range r.routes {
		if !routes[name] {
			r.metrics.Forget(name)
		}
	}
	r.backends, r.byService, r.routes = backends, byService, routes
}
