package flow

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/utils/clock"

	"monopod/apiserver/flow/fair"
)

// DispatcherConfig of a Dispatcher.
type DispatcherConfig struct {
	Seats   int                   // of all levels together; 0 or less: no limit
	Wait    time.Duration         // maximum time that a request waits
	Clock   clock.Clock           // nil: the system's
	Metrics prometheus.Registerer // required
}

// Dispatcher admits requests to priority levels. Use New.
type Dispatcher struct {
	cfg     DispatcherConfig
	pool    *fair.Pool
	metrics *metrics
	now     atomic.Pointer[rules]

	mu     sync.Mutex // guards levels, and changes of now
	levels map[string]*level
}

// rules is a state of the configuration. It is immutable, except for what its levels count.
type rules struct {
	schemas  []*schema // in order of precedence
	catchAll *schema
}

// level is a priority level. It stays the same when its configuration changes.
type level struct {
	name      string
	seats     *fair.Level // without requests if it is exempt
	exempt    bool
	executing atomic.Int64 // requests, if it is exempt
	admitted  atomic.Int64 // requests, if it is exempt

	mu     sync.Mutex // guards newest, and the links of tickets
	newest *Ticket    // of the requests that are executing
}

// NewDispatcher returns a dispatcher with upstream's default objects, until Configure.
func NewDispatcher(cfg DispatcherConfig) *Dispatcher {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	d := &Dispatcher{cfg: cfg, pool: fair.NewPool(cfg.Clock), levels: map[string]*level{}}
	d.metrics = newMetrics()
	cfg.Metrics.MustRegister(collector{d})
	d.Configure(bootstrap.SuggestedFlowSchemas, bootstrap.SuggestedPriorityLevelConfigurations)
	return d
}

// Configure replaces the configuration. The mandatory objects apply although they are missing. Schemas whose level does
// not exist are ignored. It does not modify the objects.
func (d *Dispatcher) Configure(schemas []*flowcontrolv1.FlowSchema,
	configs []*flowcontrolv1.PriorityLevelConfiguration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	configs = withMissing(configs, bootstrap.MandatoryPriorityLevelConfigurations)
	schemas = withMissing(schemas, bootstrap.MandatoryFlowSchemas)
	slices.SortFunc(schemas, func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	d.setLevels(configs)
	byName := make(map[string]*flowcontrolv1.PriorityLevelConfiguration, len(configs))
	for _, c := range configs {
		byName[c.Name] = c
	}
	r := &rules{}
	for _, fs := range schemas {
		config := byName[fs.Spec.PriorityLevelConfiguration.Name]
		if config == nil {
			continue
		}
		s := &schema{name: fs.Name, rules: fs.Spec.Rules, level: d.levels[config.Name]}
		s.headers = [2][]string{{string(fs.UID)}, {string(config.UID)}}
		if fs.Spec.DistinguisherMethod != nil {
			s.distinct = fs.Spec.DistinguisherMethod.Type
		}
		s.counts = d.metrics.of(config.Name, fs.Name)
		r.schemas = append(r.schemas, s)
		if fs.Name == flowcontrolv1.FlowSchemaNameCatchAll {
			r.catchAll = s
		}
	}
	old := d.now.Swap(r)
	d.metrics.forget(old, r)
}

// withMissing returns a new slice of objects and of those of more whose names are missing.
func withMissing[T interface{ GetName() string }](objects, more []T) []T {
	out := slices.Clone(objects)
	for _, m := range more {
		if !slices.ContainsFunc(objects, func(o T) bool { return o.GetName() == m.GetName() }) {
			out = append(out, m)
		}
	}
	return out
}

// setLevels distributes the seats among the levels by their shares (upstream: the nominal limits are rounded up, so
// that their sum may exceed the server's).
func (d *Dispatcher) setLevels(configs []*flowcontrolv1.PriorityLevelConfiguration) {
	var sum, total, floor int
	for _, c := range configs {
		sum += sharesOf(c).nominal
	}
	limits := make(map[string]fair.LevelConfig, len(configs))
	for _, c := range configs {
		l := limitsOf(c, d.cfg.Seats, max(sum, 1))
		l.Wait = d.cfg.Wait
		limits[c.Name] = l
		total, floor = total+l.Nominal, floor+l.Min
	}
	total = max(total, d.cfg.Seats)
	seats := make(map[*fair.Level]fair.LevelConfig, len(configs))
	for _, c := range configs {
		l := limits[c.Name]
		reach := min(l.Max, total-floor+l.Min)
		// one user leaves seats for the others: a body that never ends keeps its seat for a minute
		l.PerUser = max(1, reach-reach/4)
		seats[d.level(c.Name).seats] = l
		d.metrics.limits(c.Name, l)
	}
	if d.cfg.Seats <= 0 {
		total = 0
	}
	d.pool.Configure(total, seats)
	for name := range d.levels {
		if _, ok := limits[name]; !ok {
			delete(d.levels, name)
			d.metrics.delete(prometheus.Labels{levelLabel: name})
		}
	}
}

func (d *Dispatcher) level(name string) *level {
	if d.levels[name] == nil {
		d.levels[name] = &level{name: name, seats: d.pool.Level(),
			exempt: name == flowcontrolv1.PriorityLevelConfigurationNameExempt}
	}
	return d.levels[name]
}

// shares contains the shares and percentages of a configuration. borrows is negative without a limit.
type shares struct{ nominal, lends, borrows int }

func sharesOf(c *flowcontrolv1.PriorityLevelConfiguration) shares {
	number := func(n *int32, fallback int) int {
		if n == nil {
			return fallback
		}
		return int(*n)
	}
	switch {
	case c.Spec.Limited != nil:
		return shares{number(c.Spec.Limited.NominalConcurrencyShares, defaultShares),
			number(c.Spec.Limited.LendablePercent, 0), number(c.Spec.Limited.BorrowingLimitPercent, -1)}
	case c.Spec.Exempt != nil:
		return shares{number(c.Spec.Exempt.NominalConcurrencyShares, 0), number(c.Spec.Exempt.LendablePercent, 0), -1}
	}
	return shares{borrows: -1}
}

// defaultShares is upstream's default of nominalConcurrencyShares.
const defaultShares = 30

// limitsOf returns the limits of a level that has a part of seats by its shares of sum.
func limitsOf(c *flowcontrolv1.PriorityLevelConfiguration, seats, sum int) fair.LevelConfig {
	s := sharesOf(c)
	percent := func(of, n int) int { return int(math.Round(float64(of) * float64(n) / 100)) }
	nominal := int(math.Ceil(float64(max(seats, 0)) * float64(s.nominal) / float64(sum)))
	l := fair.LevelConfig{Nominal: nominal, Min: nominal - percent(nominal, s.lends), Max: max(seats, nominal)}
	if s.borrows >= 0 {
		l.Max = nominal + percent(nominal, s.borrows)
	}
	if c.Spec.Limited == nil {
		l.Min = 0 // an exempt level takes no seats of the pool, so none are kept for it
		return l
	}
	if q := c.Spec.Limited.LimitResponse.Queuing; q != nil {
		l.Queues, l.Hand, l.Length = int(q.Queues), int(q.HandSize), int(q.QueueLengthLimit)
	}
	return l
}

// Ticket is an admitted request. Leave must follow.
type Ticket struct {
	schema       *schema
	request      Request
	came, began  time.Time
	older, newer *Ticket // of the same level
}

// Enter classifies a request and waits for a seat in its level. It adds upstream's headers to h, which may be nil. It
// returns nil if the request is refused.
func (d *Dispatcher) Enter(ctx context.Context, h http.Header, r *Request) *Ticket {
	s := d.now.Load().classify(r)
	if h != nil && s.headers[0][0] != "" {
		h[schemaHeader], h[levelHeader] = s.headers[0], s.headers[1]
	}
	t := &Ticket{schema: s, request: *r, came: d.cfg.Clock.Now()}
	if s.level.exempt {
		s.level.executing.Add(1)
		s.level.admitted.Add(1)
	} else if outcome := d.wait(ctx, t); outcome != fair.Admitted {
		s.counts.rejected(outcome)
		return nil
	}
	s.counts.dispatched.Inc()
	s.counts.executing.Inc()
	s.counts.seats.Inc()
	t.began = d.cfg.Clock.Now()
	s.level.begins(t)
	return t
}

// begins adds a request to the executing ones.
func (l *level) begins(t *Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.older = l.newest; t.older != nil {
		t.older.newer = t
	}
	l.newest = t
}

// ends is the inverse of begins.
func (l *level) ends(t *Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.newer != nil {
		t.newer.older = t.older
	} else {
		l.newest = t.older
	}
	if t.older != nil {
		t.older.newer = t.newer
	}
	t.older, t.newer = nil, nil
}

// tickets returns the tickets of the executing requests, the oldest first.
func (l *level) tickets() (out []*Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := l.newest; t != nil; t = t.older {
		out = append(out, t)
	}
	slices.Reverse(out)
	return out
}

func (d *Dispatcher) wait(ctx context.Context, t *Ticket) fair.Outcome {
	s, r := t.schema, &t.request
	if s.level.seats.TryEnter(r.User.Name, 1) {
		s.counts.waited.Observe(0)
		return fair.Admitted
	}
	s.counts.waits(1)
	outcome := s.level.seats.Enter(ctx,
		fair.Flow{User: r.User.Name, Schema: s.name, Distinguisher: s.distinguisher(r), Note: t, Queued: s.counts.queued}, 1)
	s.counts.waits(-1)
	observer := s.counts.waited
	if outcome != fair.Admitted {
		observer = s.counts.refused
	}
	observer.Observe(d.cfg.Clock.Since(t.came).Seconds())
	return outcome
}

// Leave returns the seat.
func (d *Dispatcher) Leave(t *Ticket) {
	level := t.schema.level
	level.ends(t)
	counts := t.schema.counts
	counts.executing.Dec()
	counts.seats.Dec()
	observer := counts.regular
	if t.request.Verb == "watch" {
		observer = counts.watches
	}
	observer.Observe(d.cfg.Clock.Since(t.began).Seconds())
	if level.exempt {
		level.executing.Add(-1)
		return
	}
	level.seats.Leave(t.request.User.Name, 1)
}
