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
	// sign is the name in probes for a sign of life: most resolvers answer for it by themselves (RFC 6761).
	sign = "localhost."
)

// The errors of queries that are not answered.
var (
	errNoResolver = errors.New("no resolver of the node answers")
	errBusy       = errors.New("too many queries wait for the resolvers of the node")
	errSilent     = errors.New("the resolver does not respond")
)

// Forwarder forwards queries to the resolvers of the node. If a query is not answered promptly, the Forwarder also
// probes the resolvers for a sign of life: it waits longer for a resolver that shows one, and treats the others as
// silent.
type Forwarder struct {
	resolvers func() []netip.AddrPort
	stubs     Stubs
	query     func(ctx context.Context, ask *dns.Msg, at netip.AddrPort) (*dns.Msg, error)
	clock     clock.PassiveClock
	guard     *guard.Guard
	cache     *cache
	peers     *peers
	flights   singleflight.Group
	seats     chan struct{}
}

// NewForwarder returns a Forwarder that asks the resolvers of a name's zone, or for other names what resolvers returns,
// one after the other.
func NewForwarder(resolvers func() []netip.AddrPort, stubs Stubs, clk clock.PassiveClock, g *guard.Guard) *Forwarder {
	return &Forwarder{
		resolvers: resolvers, stubs: stubs, query: query, clock: clk, guard: g, cache: newCache(clk), peers: newPeers(clk), seats: make(chan struct{}, maxForwards),
	}
}

// Greet probes all resolvers for a sign of life, so that queries do not wait for a silent one. It does not wait for
// them.
func (f *Forwarder) Greet() {
	f.greet(f.resolvers())
	for _, all := range f.stubs {
		f.greet(all)
	}
}

func (f *Forwarder) greet(all []netip.AddrPort) {
	for _, at := range all {
		if !f.peers.look(at) {
			continue
		}
		f.peers.ask(at)
		f.guard.Spawn(part, func() {
			began := f.clock.Now()
			if _, err := f.query(context.Background(), newAsk(dns.Question{Name: sign, Qtype: dns.TypeA, Qclass: dns.ClassINET}, false), at); err != nil {
				f.peers.mute(at)
			} else {
				f.peers.seen(at, f.clock.Since(began))
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

func newAsk(q dns.Question, dnssec bool) *dns.Msg {
	ask := new(dns.Msg)
	ask.Id, ask.RecursionDesired, ask.Question = dns.Id(), true, []dns.Question{q}
	ask.SetEdns0(maxPayload, dnssec)
	return ask
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
		known, probe := f.peers.state(at)
		if !known && !probe {
			continue
		}
		answer, err := f.send(newAsk(q, dnssec), key, at)
		if err != nil {
			return nil, err
		}
		if !known {
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

// send asks one resolver, and caches its answer, even if no query waits for it any longer. The channel
// receives the answer; nil: there is none.
func (f *Forwarder) send(ask *dns.Msg, key cacheKey, at netip.AddrPort) (<-chan *dns.Msg, error) {
	select {
	case f.seats <- struct{}{}:
	default:
		return nil, errBusy
	}
	answer := make(chan *dns.Msg, 1)
	f.peers.ask(at)
	f.guard.Spawn(part, func() {
		defer func() { <-f.seats }()
		began := f.clock.Now()
		m, err := f.query(context.Background(), ask, at) // at most patience
		if err != nil {
			f.peers.mute(at)
			answer <- nil
			return
		}
		f.peers.hear(at, f.clock.Since(began))
		f.cache.put(key, m)
		answer <- m
	})
	return answer, nil
}

// await returns the answer, for which it waits while the resolver, one of all that are asked, shows signs of life. Time
// in which this process did not run counts neither for nor against a resolver: its reply may be there, unread.
func (f *Forwarder) await(ctx context.Context, answer <-chan *dns.Msg, all []netip.AddrPort, at netip.AddrPort, began time.Time) (*dns.Msg, error) {
	wait, lost := lookAfter, time.Duration(0)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for looked := false; ; {
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
		if took := f.clock.Since(set); took > wait+stall {
			lost += took
		}
		if !looked {
			looked = true
			f.greet(all)
		}
		left, unsure := f.peers.left(at, began)
		switch {
		case !unsure: // until query gives up
		case left+lost <= 0:
			return nil, errSilent
		default:
			wait = left + lost
			timer.Reset(wait)
		}
	}
}

// query asks one resolver, over TCP if the answer is too large for UDP.
func query(ctx context.Context, ask *dns.Msg, at netip.AddrPort) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := &dns.Client{Net: "udp", Timeout: patience, UDPSize: maxPayload}
	m, _, err := client.ExchangeContext(ctx, ask, at.String())
	if err == nil && m.Truncated {
		client.Net = "tcp"
		if whole, _, err := client.ExchangeContext(ctx, ask, at.String()); err == nil {
			m = whole
		}
	}
	return m, err
}

// Resolvers reads a resolv.conf whenever it has changed, and returns its resolvers without those in except: the
// addresses at which the server would forward to itself.
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
