package dns

import (
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// patience is how long a resolver that shows signs of life may take for one answer.
	patience = 2 * time.Second
	// silence is how long a resolver that did not answer is not asked. After it, one question probes it, which does not
	// wait for the result: while a resolver is known to be silent, all questions fail immediately.
	silence = time.Second
	// lookAfter is how long after a question the resolvers are asked for a sign of life.
	lookAfter = 8 * time.Millisecond
	// least is how long a question waits at least for a resolver that shows no sign of life: offline, it fails within 50 ms.
	least = 35 * time.Millisecond
	// A resolver without a sign of life for this many times the time of its signs is taken for silent.
	lateness = 3
	// firstSign is the assumed time of the first sign: slower than a satellite's.
	firstSign = 250 * time.Millisecond
	// maxPeers is a bound for resolvers that the node no longer has.
	maxPeers = 64
)

// peer is what is known of a resolver.
type peer struct {
	sign    time.Duration // how long its signs of life took of late, at most; 0: not known
	asked   time.Time     // when the first message since its last one was sent; zero: none was
	heard   time.Time     // when its last message came
	until   time.Time     // it is silent, and not asked before; zero: it is asked
	looking bool          // it was asked for a sign of life
}

// peers holds what is known of resolvers. Its methods are safe for concurrent use.
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

// state reports whether a resolver answers, as far as is known, or otherwise whether to probe it: one question at a time.
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

// ask notes that a message is about to be sent.
func (p *peers) ask(at netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if peer := p.get(at); peer.asked.IsZero() {
		peer.asked = p.clock.Now()
	}
}

// hear notes an answer that took the time. Only prompt answers tell how far the resolver is: others took
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

// look reports whether to ask for a sign of life; then seen or mute follows.
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

// seen notes a sign of life, which took the time. Slow ones are remembered for a while.
func (p *peers) seen(at netip.AddrPort, took time.Duration) {
	p.hear(at, took)
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.get(at)
	peer.looking, peer.sign = false, max(took, peer.sign*7/8, 1)
}

// mute notes that a resolver did not answer a message. If it has answered another one meanwhile, it is not silent.
func (p *peers) mute(at netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.get(at)
	peer.looking = false
	if !peer.asked.IsZero() {
		peer.until = p.clock.Now().Add(silence)
	}
}

// left returns how long a question that began at the time still waits for a sign of life; false: there was one since.
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
