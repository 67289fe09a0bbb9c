package dns

import (
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// patience is the timeout of one answer from a resolver that has recently replied to anything.
	patience = 2 * time.Second
	// silence is how long a resolver that did not answer gets no queries. After it, one query probes it and does not
	// wait for the result: while a resolver is known to be silent, all queries fail immediately.
	silence = time.Second
	// lookAfter is how long after a query the resolvers are probed for a sign of life.
	lookAfter = 8 * time.Millisecond
	// least is the shortest time that a query waits for a resolver without a sign of life: offline, it fails within 50 ms.
	least = 35 * time.Millisecond
	// stall is how late a timer fires when this process had no processor, beyond what a busy machine's scheduler makes of
	// it.
	stall = 4 * time.Millisecond
	// lateness is the multiple of its usual reply time after which a resolver that has not replied is silent.
	lateness = 3
	// firstSign is the assumed reply time of an unknown resolver: longer than over a satellite link.
	firstSign = 250 * time.Millisecond
	// maxPeers bounds the records of resolvers that the node no longer uses.
	maxPeers = 64
)

// peer is the recent behavior of a resolver.
type peer struct {
	sign    time.Duration // the longest of its recent reply times; 0: not known
	asked   time.Time     // when the oldest unanswered message was sent; zero: none is unanswered
	heard   time.Time     // when its last message arrived
	until   time.Time     // it is silent and gets no queries until then; zero: it gets queries
	looking bool          // a probe for a sign of life is under way
}

// peers records the recent behavior of resolvers. Its methods are safe for concurrent use.
type peers struct {
	clock clock.PassiveClock

	mu sync.Mutex // guards of
	of map[netip.AddrPort]*peer
}

func newPeers(clk clock.PassiveClock) *peers {
	return &peers{clock: clk, of: map[netip.AddrPort]*peer{}}
}

// get returns a peer, which the caller may use while it holds the lock.
func (p *peers) get(at netip.AddrPort) *peer {
	if p.of[at] == nil {
		if len(p.of) >= maxPeers {
			clear(p.of)
		}
		p.of[at] = &peer{}
	}
	return p.of[at]
}

// state reports whether a resolver is known to answer, and if not, whether to probe it: with one query at a time.
func (p *peers) state(at netip.AddrPort) (answers, probe bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer, now := p.get(at), p.clock.Now()
	if peer.until.IsZero() {
		return true, false
	}
	if now.Before(peer.until) {
		return false, false
	}
	peer.until = now.Add(patience + silence)
	return false, true
}

// ask records that a message is about to be sent.
func (p *peers) ask(at netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if peer := p.get(at); peer.asked.IsZero() {
		peer.asked = p.clock.Now()
	}
}

// hear records an answer and how long it took. Only prompt answers measure the distance to the resolver: others include
// the time of further servers.
func (p *peers) hear(at netip.AddrPort, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.get(at)
	peer.asked, peer.heard, peer.until = time.Time{}, p.clock.Now(), time.Time{}
	if peer.sign == 0 && took < lookAfter {
		peer.sign = max(took, 1)
	}
}

// look reports whether to probe for a sign of life; the caller then calls seen or mute.
func (p *peers) look(at netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.get(at)
	if peer.looking || !peer.until.IsZero() {
		return false
	}
	peer.looking = true
	return true
}

// seen records a sign of life and how long it took. Slow ones are remembered for a while.
func (p *peers) seen(at netip.AddrPort, took time.Duration) {
	p.hear(at, took)
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.get(at)
	peer.looking, peer.sign = false, max(took, peer.sign*7/8, 1)
}

// mute records that a resolver did not answer a message. If it has answered another one meanwhile, it is not silent.
func (p *peers) mute(at netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.get(at)
	peer.looking = false
	if !peer.asked.IsZero() {
		peer.until = p.clock.Now().Add(silence)
	}
}

// left returns how long a query that began at the time still waits for a sign of life; false: there was one since.
func (p *peers) left(at netip.AddrPort, began time.Time) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.get(at)
	if peer.asked.IsZero() || peer.heard.After(began) {
		return 0, false
	}
	sign := peer.sign
	if sign == 0 {
		sign = firstSign
	}
	until := peer.asked.Add(lateness * sign)
	if earliest := began.Add(least); until.Before(earliest) {
		until = earliest
	}
	return until.Sub(p.clock.Now()), true
}
