package dns

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/guard"
)

const (
	// maxForwards is the maximum number of concurrent forwarded queries; more fail immediately.
	maxForwards = 256
	// maxPayload is the size of answers over UDP that every network carries (DNS flag day 2020).
	maxPayload = 1232
	// probeName is the name in probes: most resolvers answer for it by themselves (RFC 6761).
	probeName = "localhost."
)

// The errors of queries without an answer.
var (
	errNoResolver = errors.New("no resolver of the node responds")
	errBusy       = errors.New("too many queries wait for the resolvers of the node")
	errSilent     = errors.New("the resolver does not respond")
)

// Forwarder forwards queries to the resolvers of the node. If a query is not answered promptly, the Forwarder also
// probes the resolvers with a query that needs no other servers: it waits longer for resolvers that reply to it, and
// treats the others as silent.
type Forwarder struct {
	resolvers func() []netip.AddrPort
	stubs     Stubs
	query     func(ctx context.Context, question *dns.Msg, at netip.AddrPort) (*dns.Msg, error)
	clock     clock.PassiveClock
	guard     *guard.Guard
	cache     *cache
	states    *resolverStates
	flights   singleflight.Group
	slots     chan struct{} // one for each concurrent query
}

// NewForwarder returns a Forwarder that asks resolvers one after the other: those of stubs for the names in their
// zones, and those that the function resolvers returns for all others.
func NewForwarder(resolvers func() []netip.AddrPort, stubs Stubs, clk clock.PassiveClock, g *guard.Guard) *Forwarder {
	return &Forwarder{
		resolvers: resolvers, stubs: stubs, query: query, clock: clk, guard: g,
		cache: newCache(clk), states: &resolverStates{clock: clk, of: map[netip.AddrPort]*resolverState{}},
		slots: make(chan struct{}, maxForwards),
	}
}

// Probe probes all resolvers, so that queries do not wait for a silent one. It does not wait for the replies.
func (f *Forwarder) Probe() {
	f.probe(f.resolvers())
	for _, all := range f.stubs {
		f.probe(all)
	}
}

func (f *Forwarder) probe(all []netip.AddrPort) {
	for _, at := range all {
		if !f.states.startProbe(at) {
			continue
		}
		f.states.sent(at)
		f.guard.Spawn(part, func() {
			began := f.clock.Now()
			probe := newQuery(dns.Question{Name: probeName, Qtype: dns.TypeA, Qclass: dns.ClassINET}, false)
			if _, err := f.query(context.Background(), probe, at); err != nil {
				f.states.noReply(at)
			} else {
				f.states.probeReplied(at, f.clock.Since(began))
			}
		})
	}
}

// Ask returns the answer to a query. It belongs to the caller.
func (f *Forwarder) Ask(ctx context.Context, q dns.Question, dnssec bool) (*dns.Msg, error) {
	key := keyOf(q, dnssec)
	if m := f.cache.get(key); m != nil {
		return m, nil
	}
	// Concurrent callers with the same query share the answer.
	v, err, shared := f.flights.Do(key.String(), func() (any, error) { return f.exchange(ctx, q, dnssec) })
	if err != nil {
		if m := f.cache.stale(key); m != nil {
			return m, nil
		}
		return nil, err
	}
	m := v.(*dns.Msg)
	if shared {
		m = m.Copy()
	}
	return m, nil
}

func newQuery(q dns.Question, dnssec bool) *dns.Msg {
	m := new(dns.Msg)
	m.Id, m.RecursionDesired, m.Question = dns.Id(), true, []dns.Question{q}
	m.SetEdns0(maxPayload, dnssec)
	return m
}

func (f *Forwarder) exchange(ctx context.Context, q dns.Question, dnssec bool) (*dns.Msg, error) {
	began := f.clock.Now()
	key := keyOf(q, dnssec)
	var failed *dns.Msg
	resolvers := f.stubs.of(q.Name)
	if resolvers == nil {
		resolvers = f.resolvers()
	}
	for _, at := range resolvers {
		usable, probe := f.states.usable(at)
		if !usable && !probe {
			continue
		}
		answer, err := f.send(newQuery(q, dnssec), key, at)
		if err != nil {
			return nil, err
		}
		if !usable {
			continue
		}
		m, err := f.await(ctx, answer, resolvers, at, began)
		if err != nil {
			continue
		}
		if m.Rcode == dns.RcodeServerFailure || m.Rcode == dns.RcodeRefused {
			failed = m
			continue
		}
		return m, nil
	}
	if failed != nil {
		return failed, nil
	}
	return nil, errNoResolver
}

// send sends a query to one resolver, and caches the answer, even if no query waits for it any longer. The channel
// receives the answer; nil: there is none.
func (f *Forwarder) send(m *dns.Msg, key cacheKey, at netip.AddrPort) (<-chan *dns.Msg, error) {
	select {
	case f.slots <- struct{}{}:
	default:
		return nil, errBusy
	}
	answer := make(chan *dns.Msg, 1)
	f.states.sent(at)
	f.guard.Spawn(part, func() {
		defer func() { <-f.slots }()
		began := f.clock.Now()
		m, err := f.query(context.Background(), m, at) // takes at most queryTimeout
		if err != nil {
			f.states.noReply(at)
			answer <- nil
			return
		}
		f.states.replied(at, f.clock.Since(began))
		f.cache.put(key, m)
		answer <- m
	})
	return answer, nil
}

// await waits for the answer of a resolver as long as the resolver replies to probes, which await sends to all of the
// resolvers. Time in which this process did not run counts neither for nor against a resolver: its reply may have
// arrived, unread.
func (f *Forwarder) await(ctx context.Context, answer <-chan *dns.Msg, all []netip.AddrPort, at netip.AddrPort,
	began time.Time) (*dns.Msg, error) {
	wait, suspended := probeAfter, time.Duration(0)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for probed := false; ; {
		set := f.clock.Now()
		select {
		case m := <-answer:
			if m == nil {
				return nil, errNoResolver
			}
			return m, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
		}
		if took := f.clock.Since(set); took > wait+maxTimerDelay {
			suspended += took
		}
		if !probed {
			probed = true
			f.probe(all)
		}
		remaining, silent := f.states.remainingWait(at, began)
		switch {
		case !silent: // await waits until query gives up
		case remaining+suspended <= 0:
			return nil, errSilent
		default:
			wait = remaining + suspended
			timer.Reset(wait)
		}
	}
}

// query sends a query to one resolver, over TCP if the answer is too large for UDP.
func query(ctx context.Context, question *dns.Msg, at netip.AddrPort) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	client := &dns.Client{Net: "udp", Timeout: queryTimeout, UDPSize: maxPayload}
	m, _, err := client.ExchangeContext(ctx, question, at.String())
	if err == nil && m.Truncated {
		client.Net = "tcp"
		if whole, _, err := client.ExchangeContext(ctx, question, at.String()); err == nil {
			m = whole
		}
	}
	return m, err
}

// Resolvers returns a function that reads a resolv.conf whenever it has changed, and returns its resolvers without
// those in except: the addresses at which the server would forward to itself.
func Resolvers(file string, except func() []netip.Addr, stat func(string) (time.Time, error)) func() []netip.AddrPort {
	var (
		mu   sync.Mutex // guards what follows
		read time.Time
		all  []netip.AddrPort
	)
	return func() []netip.AddrPort {
		mu.Lock()
		defer mu.Unlock()
		changed, err := stat(file)
		if err != nil {
			return nil
		}
		if changed.Equal(read) {
			return all
		}
		conf, err := dns.ClientConfigFromFile(file)
		if err != nil {
			return nil
		}
		read, all = changed, nil
		for _, server := range conf.Servers {
			ip, err := netip.ParseAddr(server)
			if err == nil && !slices.Contains(except(), ip.Unmap().WithZone("")) {
				all = append(all, netip.AddrPortFrom(ip, 53))
			}
		}
		return all
	}
}
