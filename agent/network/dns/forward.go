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
)

const (
	// maxForwards is the maximum number of concurrent forwarded questions; more fail immediately.
	maxForwards = 256
	// patience is how long a resolver may take for one answer.
	patience = 2 * time.Second
	// silence is how long a resolver that did not answer is not asked. Meanwhile questions fail immediately.
	silence = 5 * time.Second
	// maxPayload is the size of answers over UDP that every network carries (DNS flag day 2020).
	maxPayload = 1232
)

// The errors of questions that are not answered.
var (
	errNoResolver = errors.New("no resolver of the node answers")
	errBusy       = errors.New("too many questions wait for the resolvers of the node")
)

// Forwarder asks the resolvers of the node.
type Forwarder struct {
	resolvers func() []netip.AddrPort
	clock     clock.PassiveClock
	cache     *cache
	flights   singleflight.Group
	seats     chan struct{}

	mu    sync.Mutex                   // guards quiet
	quiet map[netip.AddrPort]time.Time // resolvers that did not answer, and until when they are not asked
}

// NewForwarder returns a Forwarder that asks what resolvers returns, one after the other.
func NewForwarder(resolvers func() []netip.AddrPort, clk clock.PassiveClock) *Forwarder {
	return &Forwarder{
		resolvers: resolvers, clock: clk, cache: newCache(clk), seats: make(chan struct{}, maxForwards), quiet: map[netip.AddrPort]time.Time{},
	}
}

// Ask returns the answer to a question. It belongs to the caller.
func (f *Forwarder) Ask(ctx context.Context, q dns.Question, dnssec bool) (*dns.Msg, error) {
	key := keyOf(q, dnssec)
	if m := f.cache.get(key); m != nil {
		return m, nil
	}
	select {
	case f.seats <- struct{}{}:
		defer func() { <-f.seats }()
	default:
		return nil, errBusy
	}
	// Concurrent callers with the same question share the answer.
	v, err, shared := f.flights.Do(key.String(), func() (any, error) {
		m, err := f.exchange(ctx, q, dnssec)
		if err == nil {
			f.cache.put(key, m)
		}
		return m, err
	})
	if err != nil {
		return nil, err
	}
	m := v.(*dns.Msg)
	if shared {
		m = m.Copy()
	}
	return m, nil
}

func (f *Forwarder) exchange(ctx context.Context, q dns.Question, dnssec bool) (*dns.Msg, error) {
	ask := new(dns.Msg)
	ask.Id, ask.RecursionDesired, ask.Question = dns.Id(), true, []dns.Question{q}
	ask.SetEdns0(maxPayload, dnssec)
	var failed *dns.Msg
	for _, at := range f.resolvers() {
		if !f.answers(at) {
			continue
		}
		m, err := query(ctx, ask, at)
		if err != nil {
			f.mute(at)
			continue
		}
		f.unmute(at)
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

// answers reports whether a resolver may be asked. One that was silent is asked again by one question at a time.
func (f *Forwarder) answers(at netip.AddrPort) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	until, quiet := f.quiet[at]
	now := f.clock.Now()
	if quiet && now.Before(until) {
		return false
	}
	if quiet {
		f.quiet[at] = now.Add(patience + silence)
	}
	return true
}

func (f *Forwarder) mute(at netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.quiet) > 64 { // of resolvers that the node no longer has
		clear(f.quiet)
	}
	f.quiet[at] = f.clock.Now().Add(silence)
}

func (f *Forwarder) unmute(at netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.quiet, at)
}

// Resolvers reads a resolv.conf whenever it has changed, and returns its resolvers except the addresses in own, which
// would ask themselves.
func Resolvers(file string, own func() []netip.Addr, stat func(string) (time.Time, error)) func() []netip.AddrPort {
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
			if err == nil && !slices.Contains(own(), ip.Unmap().WithZone("")) {
				all = append(all, netip.AddrPortFrom(ip, 53))
			}
		}
		return all
	}
}
