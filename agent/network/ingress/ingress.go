package ingress

import (
	"context"
	"crypto/tls"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/agent/network/endpoints"
	"monopod/agent/network/ingress/proxy"
	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/record"
)

// Name of the controller.
const Name = "ingress"

// Controller serves Ingresses on the node.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns a Controller of a Config that Check accepts; Run starts it.
func New(deps follow.Deps, cfg Config) *Controller { return &Controller{deps: deps, cfg: cfg} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller. It fails if it cannot listen.
func (c *Controller) Run(ctx context.Context) error {
	metrics, err := proxy.NewMetrics(c.deps.Metrics)
	if err != nil {
		return err
	}
	servers, err := c.open()
	if err != nil {
		return err
	}
	dropped, err := record.NewMetrics(c.deps.Metrics.Registerer)
	if err != nil {
		return err
	}
	events := record.New(
		record.Config{Client: c.deps.Client, Component: "ingress-controller", Host: c.cfg.Node, Clock: c.deps.Clock,
			Metrics: dropped, Guard: c.deps.Guard})
	defer events.Close()
	via := proxy.NewTransport(c.cfg.Dial, metrics)
	defer via.CloseIdle()
	r := newRunning(c, servers, metrics, events)
	group, ctx := guard.With(ctx)
	for _, s := range servers {
		h := s.Handler(&r.site, via, metrics)
		h.Trusted = r.trusted
		h.Secure = func() string { return r.ports["https"] }
		if c.cfg.AccessLog {
			h.Access = c.deps.Log
		}
		group.Do(func() error { <-r.first.Done(); return s.Serve(ctx, h, c.deps.Guard) })
	}
	group.Do(func() error { defer r.begin(); return r.loop.Run(ctx) })
	return group.Wait()
}

// open listens at the configured addresses, or at none of them.
func (c *Controller) open() ([]*proxy.Server, error) {
	var servers []*proxy.Server
	for _, one := range []struct{ scheme, address string }{{"http", c.cfg.HTTP}, {"https", c.cfg.HTTPS}} {
		if one.address == "" {
			continue
		}
		s, err := proxy.Listen(one.scheme, one.address)
		if err != nil {
			for _, s := range servers {
				s.Close()
			}
			return nil, err
		}
		servers = append(servers, s)
		c.deps.Log.Info("ingress controller listens", zap.String("scheme", s.Scheme), zap.String("port", s.Port))
	}
	return servers, nil
}

// key is what the loop reconciles.
type key struct {
	what what
	follow.Key
}

type what string

const (
	theClass what = "class" // creates it
	theSite  what = "site"  // what all Ingresses depend on
	services what = "services"
	ingress  what = "ingress" // its status and events
)

// running is a Controller while it runs.
type running struct {
	*Controller
	ports    map[string]string // by scheme
	trusted  []netip.Prefix
	defaults route.Options
	fallback follow.Key // the Secret of the default certificate
	metrics  *proxy.Metrics
	events   record.Eventer
	loop     *follow.Loop[key]
	seen     *endpoints.View
	site     atomic.Pointer[proxy.Site]
	first    context.Context // ends when the first site is complete
	begin    func()

	mu      sync.Mutex // guards world, which the sources fill
	world   world
	desired // used by the loop alone
}

// world is the observed state of the API.
type world struct {
	changed   bool // since the site was built
	ingresses map[follow.Key]*networkingv1.Ingress
	classes   classes
	nodes     map[string]*corev1.Node
	secrets   map[follow.Key]bool // that the site has read, or looked for
}

// desired is the result of the last build.
type desired struct {
	backends map[proxy.Target]*proxy.Backend
	places   map[follow.Key][]*proxy.Place // by Ingress; those that are served have an entry
	owners   map[follow.Key][]follow.Key
	problems map[follow.Key][]problem
	certs    map[follow.Key]parsed
	reported map[follow.Key]map[problem]time.Time // by Ingress; when the problem began, zero if an event was written
}

func newRunning(c *Controller, servers []*proxy.Server, m *proxy.Metrics, events record.Eventer) *running {
	r := &running{Controller: c, ports: map[string]string{}, metrics: m, events: events, seen: endpoints.New(c.cfg.Node)}
	for _, s := range servers {
		r.ports[s.Scheme] = s.Port
	}
	r.trusted, _ = c.cfg.trusted()
	r.fallback, _ = c.cfg.defaultCertificate()
	r.defaults = route.Options{Redirect: true, Wait: proxy.WaitTime}
	r.defaults.MaxBody, _ = c.cfg.maxBody()
	r.world = world{changed: true, ingresses: map[follow.Key]*networkingv1.Ingress{}, classes: classes{},
		nodes: map[string]*corev1.Node{}, secrets: map[follow.Key]bool{}}
	r.desired = desired{backends: map[proxy.Target]*proxy.Backend{}, certs: map[follow.Key]parsed{},
		reported: map[follow.Key]map[problem]time.Time{}}
	r.site.Store(proxy.NewSite())
	r.first, r.begin = context.WithCancel(context.Background())
	r.loop = follow.New(c.deps,
		follow.Config[key]{Name: Name, Sources: r.sources(), Start: []key{{what: theSite}, {what: theClass}},
			Reconcile: r.reconcile})
	return r
}

func (r *running) sources() []follow.Source[key] {
	on := func(resource schema.GroupVersionResource, keys func(old, next client.Object) []key) follow.Source[key] {
		return follow.Source[key]{Selector: client.Selector{Resource: resource},
			Keys: follow.Plain(func(old, next client.Object) []key {
				r.mu.Lock()
				defer r.mu.Unlock()
				return keys(old, next)
			})}
	}
	all := []follow.Source[key]{
		on(client.Ingresses, r.onIngress), on(client.IngressClasses, r.onClass), on(client.Secrets, r.onSecret),
		on(client.Nodes, r.onNode),
	}
	for _, src := range r.seen.Sources() {
		all = append(all,
			follow.Source[key]{Selector: src.Selector, Keys: func(ctx context.Context, old, next client.Object) ([]key, error) {
				changed, err := src.Keys(ctx, old, next)
				if err != nil || len(changed) == 0 {
					return nil, err
				}
				return []key{{what: services}}, nil
			}})
	}
	return all
}

func (r *running) onIngress(old, next client.Object) []key {
	if next == nil {
		name := follow.KeyOf(old)
		delete(r.world.ingresses, name)
		r.world.changed = true
		return []key{{ingress, name}}
	}
	name, ing := follow.KeyOf(next), next.(*networkingv1.Ingress)
	known := r.world.ingresses[name]
	r.world.ingresses[name] = ing
	if known == nil || !reflect.DeepEqual(known.Spec, ing.Spec) || !maps.Equal(known.Annotations, ing.Annotations) ||
		known.UID != ing.UID {
		r.world.changed = true
	}
	return []key{{ingress, name}}
}

func (r *running) onClass(old, next client.Object) []key {
	if next == nil {
		delete(r.world.classes, old.GetName())
	} else {
		r.world.classes[next.GetName()] = next.(*networkingv1.IngressClass)
	}
	r.world.changed = true
	return []key{{what: theSite}}
}

func (r *running) onSecret(old, next client.Object) []key {
	obj := next
	if obj == nil {
		obj = old
	}
	if !r.world.secrets[follow.KeyOf(obj)] {
		return nil
	}
	r.world.changed = true
	return []key{{what: theSite}}
}

// onNode wakes the Ingresses if an address has changed.
func (r *running) onNode(old, next client.Object) []key {
	var before, after []string
	if old != nil {
		before = nodeAddresses(old.(*corev1.Node))
	}
	if next == nil {
		delete(r.world.nodes, old.GetName())
	} else {
		node := next.(*corev1.Node)
		after = nodeAddresses(node)
		r.world.nodes[node.Name] = node
	}
	if slices.Equal(before, after) {
		return nil
	}
	var keys []key
	for name := range r.world.ingresses {
		keys = append(keys, key{ingress, name})
	}
	return keys
}

func (r *running) reconcile(ctx context.Context, k key) (time.Duration, error) {
	if err := r.build(ctx); err != nil {
		return 0, err
	}
	for name := range r.seen.Take() {
		r.resolve(name)
	}
	r.begin()
	switch k.what {
	case theClass:
		return 0, r.createClass(ctx)
	case ingress:
		return r.publish(ctx, k.Key)
	}
	return 0, nil
}

// build builds the site if something has changed, and wakes the Ingresses for which the result differs.
func (r *running) build(ctx context.Context) error {
	r.mu.Lock()
	changed := r.world.changed
	r.world.changed = false
	var list []*networkingv1.Ingress
	if changed {
		for _, ing := range r.world.ingresses {
			if r.world.classes.serve(ing) {
				list = append(list, ing)
			}
		}
	}
	r.mu.Unlock()
	if !changed {
		return nil
	}
	p := planOf(list, r.defaults, r.ports["https"] != "")
	next := proxy.NewSite()
	if err := r.certify(ctx, p, next); err != nil {
		r.mu.Lock()
		r.world.changed = true
		r.mu.Unlock()
		return err
	}
	places := map[follow.Key][]*proxy.Place{}
	for _, ing := range list {
		places[follow.KeyOf(ing)] = nil
	}
	r.connect(p, places)
	next.Table, _ = route.New(p.rules)
	r.site.Store(next)
	for name := range unionKeys(places, r.places) {
		_, served := places[name]
		if _, before := r.places[name]; served != before || !slices.Equal(p.problems[name], r.problems[name]) {
			r.loop.Add(key{ingress, name})
		}
	}
	r.places, r.problems = places, p.problems
	return nil
}

func unionKeys[K comparable, V any](a, b map[K]V) map[K]struct{} {
	all := map[K]struct{}{}
	for k := range a {
		all[k] = struct{}{}
	}
	for k := range b {
		all[k] = struct{}{}
	}
	return all
}

// connect gives the rules of a plan their backends and counts.
func (r *running) connect(p *plan, places map[follow.Key][]*proxy.Place) {
	used, owners, of := map[proxy.Target]*proxy.Backend{}, map[follow.Key][]follow.Key{}, map[follow.Key]*proxy.Counts{}
	for i := range p.rules {
		to := p.rules[i].To
		b := used[to.Target]
		if b == nil {
			if b = r.backends[to.Target]; b == nil {
				b = proxy.NewBackend(to.Target)
				svc, eps := r.seen.Get(to.Service)
				b.Set(proxy.Resolve(to.Target, svc, eps))
			}
			used[to.Target] = b
		}
		if of[to.Ingress] == nil {
			of[to.Ingress] = r.metrics.Of(to.Ingress)
		}
		to.Backend, to.Counts = b, of[to.Ingress]
		places[to.Ingress] = append(places[to.Ingress], to)
		if list := owners[to.Service]; !slices.Contains(list, to.Ingress) {
			owners[to.Service] = append(list, to.Ingress)
		}
	}
	r.backends, r.owners = used, owners
}

// resolve updates the endpoints of a Service.
func (r *running) resolve(name follow.Key) {
	owners := r.owners[name]
	if len(owners) == 0 {
		return
	}
	svc, eps := r.seen.Get(name)
	other := false
	for _, owner := range owners {
		for _, to := range r.places[owner] {
			if to.Service == name && to.Backend.Set(proxy.Resolve(to.Target, svc, eps)) {
				other = true
			}
		}
	}
	if other {
		for _, owner := range owners {
			r.loop.Add(key{ingress, owner})
		}
	}
}

// certify reads the certificates that a plan needs into the site.
func (r *running) certify(ctx context.Context, p *plan, s *proxy.Site) error {
	wanted := map[follow.Key]bool{}
	if r.fallback.Name != "" {
		wanted[r.fallback] = true
	}
	for _, c := range p.certs {
		if c.secret != "" {
			wanted[follow.Key{Namespace: c.owner.Namespace, Name: c.secret}] = true
		}
	}
	r.mu.Lock()
	r.world.secrets = wanted // before they are read, so that no change is missed
	r.mu.Unlock()
	read := map[follow.Key]parsed{}
	for name := range wanted {
		one, err := r.readSecret(ctx, name)
		if err != nil {
			return err
		}
		read[name] = one
	}
	r.certs = read
	s.Certs, s.Secured, s.Fallback = route.Hosts[*tls.Certificate]{}, route.Hosts[struct{}]{}, read[r.fallback].cert
	if err := read[r.fallback].err; err != nil {
		r.deps.Log.Warn("the default certificate of the ingress controller cannot be used",
			zap.Stringer("secret", r.fallback), zap.Error(err))
	}
	taken := map[string]bool{} // hosts with a certificate
	for _, c := range p.certs {
		cert := s.Fallback
		if c.secret != "" {
			one := read[follow.Key{Namespace: c.owner.Namespace, Name: c.secret}]
			if cert = one.cert; one.err != nil { // its hosts must not fall back to plain HTTP
				p.problem(c.owner, "BadCertificate", "Secret %q: %s; clients get the default certificate", c.secret, one.err)
				for _, host := range c.hosts {
					s.Secured[host] = struct{}{}
				}
				continue
			}
		}
		for _, host := range c.hosts {
			if taken[host] {
				continue
			}
			taken[host], s.Secured[host] = true, struct{}{}
			if cert == nil {
				continue
			}
			s.Certs[host] = cert
			if doubt := route.Doubts(cert, host, r.deps.Clock.Now()); doubt != "" {
				p.problem(c.owner, "BadCertificate", "the certificate in Secret %q %s", c.secret, doubt)
			}
		}
	}
	return nil
}

// readSecret returns the certificate of a Secret, whose content is read once for each version. It fails if the API
// does.
func (r *running) readSecret(ctx context.Context, name follow.Key) (parsed, error) {
	secret, err := client.Get[*corev1.Secret](ctx, r.deps.Client, name.Namespace, name.Name)
	if apierrors.IsNotFound(err) {
		return parsed{err: errNoSecret}, nil
	}
	if err != nil {
		return parsed{}, err
	}
	if known, ok := r.certs[name]; ok && known.version == secret.ResourceVersion {
		return known, nil
	}
	cert, err := route.Parse(secret)
	return parsed{version: secret.ResourceVersion, cert: cert, err: err}, nil
}

// parsed is the certificate of one version of a Secret.
type parsed struct {
	version string
	cert    *tls.Certificate
	err     error
}
