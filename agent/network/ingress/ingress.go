package ingress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
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
	deps  follow.Deps
	cfg   Config
	taken atomic.Pointer[taken] // nil: the controller has not opened its ports
	// handlers are the *proxy.Handler that serve, by entry.
	handlers sync.Map
}

// entry is a port that the controller serves.
type entry struct{ scheme, port string }

var _ follow.Controller = (*Controller)(nil)

// New returns a Controller of a Config that Check accepts; Run starts it.
func New(deps follow.Deps, cfg Config) *Controller { return &Controller{deps: deps, cfg: cfg} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// At returns the handler of Ingresses at a port; nil: they are not served there.
func (c *Controller) At(scheme, port string) *proxy.Handler {
	if h, ok := c.handlers.Load(entry{scheme, port}); ok {
		return h.(*proxy.Handler)
	}
	return nil
}

// Run implements follow.Controller. It fails if it cannot listen at a configured address.
func (c *Controller) Run(ctx context.Context) error {
	metrics, err := proxy.NewMetrics(c.deps.Metrics)
	if err != nil {
		return err
	}
	dropped, err := record.NewMetrics(c.deps.Metrics.Registerer)
	if err != nil {
		return err
	}
	events := record.New(record.Config{
		Client: c.deps.Client, Component: "ingress-controller", Host: c.cfg.Node, Clock: c.deps.Clock,
		Metrics: dropped, Guard: c.deps.Guard,
	})
	defer events.Close()
	for {
		if err := c.serve(ctx, metrics, events); !errors.Is(err, errPorts) || ctx.Err() != nil {
			return err
		}
	}
}

// serve opens the ports and serves until ctx ends. It returns errPorts when other ports are free than at its start.
func (c *Controller) serve(ctx context.Context, metrics *proxy.Metrics, events record.Eventer) error {
	servers, missing, err := c.open(ctx)
	if err != nil {
		return err
	}
	c.announce(missing, events)
	via := proxy.NewTransport(c.cfg.Dial, metrics)
	defer via.CloseIdle()
	r := newRunning(c, servers, missing, metrics, events)
	group, ctx := guard.With(ctx)
	for _, s := range servers {
		h := s.Handler(&r.site, via, metrics)
		c.cfg.Prepare(h, c.deps.Log)
		h.HTTPSPort = func() string { return r.ports["https"] }
		c.handlers.Store(entry{s.Scheme, s.Port}, h)
		defer c.handlers.Delete(entry{s.Scheme, s.Port})
		group.Do(func() error { <-r.ready.Done(); return s.Serve(ctx, h, c.deps.Guard) })
	}
	if len(c.cfg.automatic) > 0 {
		group.Do(func() error { return c.awaitPorts(ctx, missing, r.yield) })
	}
	group.Do(func() error { defer r.markReady(); return r.loop.Run(ctx) })
	return group.Wait()
}

// key identifies what the loop reconciles.
type key struct {
	kind kind
	follow.Key
}

type kind string

const (
	kindClass    kind = "class"    // the IngressClasses that the controller creates
	kindSite     kind = "site"     // the configuration of the servers
	kindServices kind = "services" // the endpoints of backends
	kindIngress  kind = "ingress"  // the status and Events of one Ingress
)

// running is a Controller while it runs.
type running struct {
	*Controller
	ports    map[string]string // by scheme
	missing  taken
	yield    chan struct{} // gets a value when a pod needs a port
	defaults route.Options
	fallback follow.Key // key of the Secret with the default certificate
	metrics  *proxy.Metrics
	events   record.Eventer
	loop     *follow.Loop[key]
	services *endpoints.Cache
	site     atomic.Pointer[proxy.Site]

	ready     context.Context // ends when the first site is complete
	markReady func()

	mu       sync.Mutex // guards observed, which the sources fill
	observed observed
	desired  // used by the loop alone
}

// observed is the state of the API.
type observed struct {
	changed   bool // the site is outdated
	ingresses map[follow.Key]*networkingv1.Ingress
	classes   classes
	nodes     map[string]*corev1.Node
	secrets   map[follow.Key]bool // Secrets that the site needs, existing or not
}

// desired is the result of the last build.
type desired struct {
	backends     map[proxy.Target]*proxy.Backend
	destinations map[follow.Key][]*proxy.Destination // by Ingress; every served Ingress has an entry
	ingresses    map[follow.Key][]follow.Key         // by Service
	problems     map[follow.Key][]problem
	certs        map[follow.Key]Parsed[*tls.Certificate]
	users        map[usersKey]Parsed[*route.Users]
	reported     map[follow.Key]map[problem]time.Time // by Ingress; when the problem began, zero after its Event
}

func newRunning(c *Controller, servers []*proxy.Server, missing taken, m *proxy.Metrics,
	events record.Eventer) *running {
	r := &running{Controller: c, ports: map[string]string{}, missing: missing, yield: make(chan struct{}, 1), metrics: m,
		events: events, services: endpoints.New(c.cfg.Node)}
	for _, s := range servers {
		r.ports[s.Scheme] = s.Port
	}
	r.fallback, _ = c.cfg.defaultCertificate()
	r.defaults = c.cfg.Defaults()
	r.defaults.Redirect = true
	r.observed = observed{
		changed: true, ingresses: map[follow.Key]*networkingv1.Ingress{}, classes: classes{},
		nodes: map[string]*corev1.Node{}, secrets: map[follow.Key]bool{},
	}
	r.desired = desired{
		backends: map[proxy.Target]*proxy.Backend{}, certs: map[follow.Key]Parsed[*tls.Certificate]{},
		reported: map[follow.Key]map[problem]time.Time{},
	}
	r.site.Store(proxy.NewSite())
	r.ready, r.markReady = context.WithCancel(context.Background())
	r.loop = follow.New(c.deps, follow.Config[key]{
		Name: Name, Sources: r.sources(), Start: []key{{kind: kindSite}, {kind: kindClass}}, Reconcile: r.reconcile,
	})
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
	if len(r.cfg.automatic) > 0 {
		all = append(all, on(client.Pods, r.onPod))
	}
	return append(all, endpoints.Wake(r.services, key{kind: kindServices})...)
}

func (r *running) onIngress(old, next client.Object) []key {
	if next == nil {
		name := follow.KeyOf(old)
		delete(r.observed.ingresses, name)
		r.observed.changed = true
		return []key{{kindIngress, name}}
	}
	name, ing := follow.KeyOf(next), next.(*networkingv1.Ingress)
	previous := r.observed.ingresses[name]
	r.observed.ingresses[name] = ing
	if previous == nil || previous.UID != ing.UID || !reflect.DeepEqual(previous.Spec, ing.Spec) ||
		!maps.Equal(previous.Annotations, ing.Annotations) {
		r.observed.changed = true
	}
	return []key{{kindIngress, name}}
}

func (r *running) onClass(old, next client.Object) []key {
	if next == nil {
		delete(r.observed.classes, old.GetName())
	} else {
		r.observed.classes[next.GetName()] = next.(*networkingv1.IngressClass)
	}
	r.observed.changed = true
	return []key{{kind: kindSite}}
}

func (r *running) onSecret(old, next client.Object) []key {
	obj := next
	if obj == nil {
		obj = old
	}
	if !r.observed.secrets[follow.KeyOf(obj)] {
		return nil
	}
	r.observed.changed = true
	return []key{{kind: kindSite}}
}

// onNode wakes the Ingresses if an address has changed.
func (r *running) onNode(old, next client.Object) []key {
	var before, after []string
	if old != nil {
		before = nodeAddresses(old.(*corev1.Node))
	}
	if next == nil {
		delete(r.observed.nodes, old.GetName())
	} else {
		node := next.(*corev1.Node)
		after = nodeAddresses(node)
		r.observed.nodes[node.Name] = node
	}
	if slices.Equal(before, after) {
		return nil
	}
	var keys []key
	for name := range r.observed.ingresses {
		keys = append(keys, key{kindIngress, name})
	}
	return keys
}

// onPod gives up a port that a pod with the node's network needs.
func (r *running) onPod(_, next client.Object) []key {
	if next == nil {
		return nil
	}
	for scheme := range r.cfg.automatic {
		if r.ports[scheme] != "" && needs(next.(*corev1.Pod), r.cfg.Node, r.ports[scheme]) {
			select {
			case r.yield <- struct{}{}:
			default:
			}
		}
	}
	return nil
}

func (r *running) reconcile(ctx context.Context, k key) (time.Duration, error) {
	if err := r.build(ctx); err != nil {
		return 0, err
	}
	for name := range r.services.Take() {
		r.resolve(name)
	}
	r.markReady()
	switch k.kind {
	case kindClass:
		return 0, r.createClasses(ctx)
	case kindIngress:
		return r.publish(ctx, k.Key)
	}
	return 0, nil
}

// build rebuilds the site if it is outdated, and wakes the Ingresses whose problems have changed.
func (r *running) build(ctx context.Context) error {
	r.mu.Lock()
	changed := r.observed.changed
	r.observed.changed = false
	var list []*networkingv1.Ingress
	names := r.cfg.served()
	if changed {
		for _, ing := range r.observed.ingresses {
			if r.observed.classes.serve(ing, names) {
				list = append(list, ing)
			}
		}
	}
	r.mu.Unlock()
	if !changed {
		return nil
	}
	p := planOf(list, r.defaults, r.noHTTPS())
	if text := r.missing["http"]; text != "" {
		for _, ing := range list {
			p.problem(follow.KeyOf(ing), "PortTaken", "HTTP is not served: %s", text)
		}
	}
	next := proxy.NewSite()
	if err := r.certify(ctx, p, next); err != nil {
		r.outdate()
		return err
	}
	destinations := map[follow.Key][]*proxy.Destination{}
	for _, ing := range list {
		destinations[follow.KeyOf(ing)] = nil
	}
	r.connect(p, destinations)
	if err := r.authenticate(ctx, p, destinations); err != nil {
		r.outdate()
		return err
	}
	next.Table, _ = route.New(p.rules)
	r.site.Store(next)
	affected := maps.Clone(destinations)
	maps.Copy(affected, r.destinations)
	for name := range affected {
		_, served := destinations[name]
		if _, before := r.destinations[name]; served != before || !slices.Equal(p.problems[name], r.problems[name]) {
			r.loop.Add(key{kindIngress, name})
		}
	}
	r.destinations, r.problems = destinations, p.problems
	return nil
}

// noHTTPS returns why HTTPS is not served; empty: it is.
func (r *running) noHTTPS() string {
	if r.ports["https"] != "" {
		return ""
	}
	return cmp.Or(r.missing["https"], "monopod runs without --ingress-https")
}

// outdate lets the next build repeat one that failed.
func (r *running) outdate() {
	r.mu.Lock()
	r.observed.changed = true
	r.mu.Unlock()
}

// connect sets the backends and counts of the rules of a plan, and collects the destinations by Ingress.
func (r *running) connect(p *plan, destinations map[follow.Key][]*proxy.Destination) {
	backends, ingresses := map[proxy.Target]*proxy.Backend{}, map[follow.Key][]follow.Key{}
	counts := map[follow.Key]*proxy.Counts{}
	var all []*proxy.Destination
	for i := range p.rules {
		to := p.rules[i].To
		all = append(all, to)
		if to.Canary != nil {
			all = append(all, to.Canary.To)
		}
	}
	for _, to := range all {
		b := backends[to.Target]
		if b == nil {
			if b = r.backends[to.Target]; b == nil {
				b = proxy.NewBackend(to.Target)
				svc, eps := r.services.Get(to.Service)
				b.Set(proxy.Resolve(to.Target, svc, eps))
			}
			backends[to.Target] = b
		}
		if counts[to.Ingress] == nil {
			counts[to.Ingress] = r.metrics.Of(to.Ingress)
		}
		to.Backend, to.Counts = b, counts[to.Ingress]
		destinations[to.Ingress] = append(destinations[to.Ingress], to)
		if list := ingresses[to.Service]; !slices.Contains(list, to.Ingress) {
			ingresses[to.Service] = append(list, to.Ingress)
		}
	}
	r.backends, r.ingresses = backends, ingresses
}

// resolve updates the endpoints of a Service.
func (r *running) resolve(name follow.Key) {
	ingresses := r.ingresses[name]
	if len(ingresses) == 0 {
		return
	}
	svc, eps := r.services.Get(name)
	problemChanged := false
	for _, ing := range ingresses {
		for _, to := range r.destinations[ing] {
			if to.Service == name && to.Backend.Set(proxy.Resolve(to.Target, svc, eps)) {
				problemChanged = true
			}
		}
	}
	if problemChanged {
		for _, ing := range ingresses {
			r.loop.Add(key{kindIngress, ing})
		}
	}
}

// certify adds the certificates that a plan needs to the site.
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
	watched := maps.Clone(wanted)
	for i := range p.rules {
		if to := p.rules[i].To; to.Auth.Secret != "" {
			watched[usersOf(to).Key] = true
		}
	}
	r.mu.Lock()
	r.observed.secrets = watched // set before they are read, so that no change is missed
	r.mu.Unlock()
	read, err := ReadSecrets(ctx, r.deps.Client, wanted, r.certs, route.ParseCertificate)
	if err != nil {
		return err
	}
	r.certs = read
	s.Certs, s.Secured, s.Fallback = route.Hosts[*tls.Certificate]{}, route.Hosts[struct{}]{}, read[r.fallback].Value
	if err := read[r.fallback].Err; err != nil {
		r.deps.Log.Warn("failed to load the default certificate of the ingress controller",
			zap.Stringer("secret", r.fallback), zap.Error(err))
	}
	taken := map[string]bool{} // hosts with a certificate
	for _, c := range p.certs {
		cert := s.Fallback
		if c.secret != "" {
			one := read[follow.Key{Namespace: c.owner.Namespace, Name: c.secret}]
			if cert = one.Value; one.Err != nil { // its hosts still redirect to HTTPS
				p.problem(c.owner, "BadCertificate", "Secret %q: %s; clients get the default certificate", c.secret, one.Err)
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
			if why := route.RejectReason(cert, host, r.deps.Clock.Now()); why != "" {
				p.problem(c.owner, "BadCertificate", "the certificate in Secret %q %s", c.secret, why)
			}
		}
	}
	return nil
}

// authenticate sets the users of destinations from Secrets. Without, clients get 503. It fails only if the API does.
func (r *running) authenticate(ctx context.Context, p *plan, destinations map[follow.Key][]*proxy.Destination) error {
	read := map[usersKey]Parsed[*route.Users]{}
	reported := map[follow.Key]bool{}
	for owner, list := range destinations {
		for _, to := range list {
			if to.Auth.Secret == "" {
				continue
			}
			k := usersOf(to)
			one, ok := read[k]
			if !ok {
				var err error
				one, err = readSecret(ctx, r.deps.Client, k.Key, r.users[k], func(s *corev1.Secret) (*route.Users, error) {
					return route.ParseUsers(s, k.byKey)
				})
				if err != nil {
					return err
				}
				read[k] = one
			}
			to.Users = one.Value
			if one.Err == nil || reported[owner] {
				continue
			}
			reported[owner] = true
			p.problem(owner, "BadUsers", "Secret %q: %s", k.Name, one.Err)
		}
	}
	r.users = read
	return nil
}

// usersKey identifies users: a Secret, and how it is read.
type usersKey struct {
	follow.Key
	byKey bool
}

func usersOf(to *proxy.Destination) usersKey {
	return usersKey{follow.Key{Namespace: to.Ingress.Namespace, Name: to.Auth.Secret}, to.Auth.Map}
}

// Parsed is what one version of a Secret contains.
type Parsed[T any] struct {
	version string
	Value   T
	Err     error // also if only a part is invalid
}

// ReadSecrets parses Secrets, except those whose current version is among the known ones. It fails only if the API does.
func ReadSecrets[T any](ctx context.Context, c client.Client, names map[follow.Key]bool,
	known map[follow.Key]Parsed[T], parse func(*corev1.Secret) (T, error)) (map[follow.Key]Parsed[T], error) {
	read := map[follow.Key]Parsed[T]{}
	for name := range names {
		one, err := readSecret(ctx, c, name, known[name], parse)
		if err != nil {
			return nil, err
		}
		read[name] = one
	}
	return read, nil
}

// readSecret parses a Secret unless known is its current version. It fails only if the API does.
func readSecret[T any](ctx context.Context, c client.Client, name follow.Key, known Parsed[T],
	parse func(*corev1.Secret) (T, error)) (Parsed[T], error) {
	secret, err := client.Get[*corev1.Secret](ctx, c, name.Namespace, name.Name)
	switch {
	case apierrors.IsNotFound(err):
		return Parsed[T]{Err: errNoSecret}, nil
	case err != nil:
		return Parsed[T]{}, err
	case known.version == secret.ResourceVersion:
		return known, nil
	}
	value, err := parse(secret)
	return Parsed[T]{version: secret.ResourceVersion, Value: value, Err: err}, nil
}
