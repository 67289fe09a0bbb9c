package dns

import (
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// queryTimeout is the timeout of a query to a resolver that has recently replied to anything.
	queryTimeout = 2 * time.Second
	// silentPause is the time for which a resolver that did not answer gets no queries. After it, one query probes the
	// resolver and does not wait for the result: while a resolver is known to be silent, all queries fail immediately.
	silentPause = time.Second
	// probeAfter is the time after which an unanswered query makes the Forwarder probe the resolvers.
	probeAfter = 8 * time.Millisecond
	// minWait is the minimum time that a query waits for a resolver that does not reply: offline, it fails within 50 ms.
	minWait = 35 * time.Millisecond
	// maxTimerDelay is how late a timer fires on a busy machine. If it fires later, the process did not run.
	maxTimerDelay = 4 * time.Millisecond
	// lateFactor is the multiple of its usual reply time after which a resolver that has not replied is silent.
	lateFactor = 3
	// unknownReplyTime is the assumed reply time of an unknown resolver: longer than over a satellite link.
	unknownReplyTime = 250 * time.Millisecond
	// maxResolvers bounds the records of resolvers that the node no longer uses.
	maxResolvers = 64
)

// resolverState is the recent behavior of a resolver.
type resolverState struct {
	replyTime        time.Duration // the longest of its recent reply times; 0: not known
	oldestUnanswered time.Time     // when the oldest unanswered message was sent; zero: none is unanswered
	lastReply        time.Time     // when its last message arrived
	silentUntil      time.Time     // it is silent and gets no queries until then; zero: it gets queries
	probing          bool          // a probe is in flight
}

// resolverStates records the recent behavior of resolvers. Its methods are safe for concurrent use.
type resolverStates struct {
	clock clock.PassiveClock

	mu sync.Mutex // guards of
	of map[netip.AddrPort]*resolverState
}

// get returns the state of a resolver, which the caller may use while it holds the lock.
func (p *resolverStates) get(at netip.AddrPort) *resolverState {
	if p.of[at] == nil {
		if len(p.of) >= maxResolvers {
			clear(p.of)
		}
		p.of[at] = &resolverState{}
	}
	return p.of[at]
}

// usable reports whether a resolver is expected to answer, and if not, whether to probe it with this query.
func (p *resolverStates) usable(at netip.AddrPort) (answers, probe bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, now := p.get(at), p.clock.Now()
	if r.silentUntil.IsZero() {
		return true, false
	}
	if now.Before(r.silentUntil) {
		return false, false
	}
	r.silentUntil = now.Add(queryTimeout + silentPause)
	return false, true
}

// sent records that a message is about to be sent.
func (p *resolverStates) sent(at netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.get(at); r.oldestUnanswered.IsZero() {
		r.oldestUnanswered = p.clock.Now()
	}
}

// replied records an answer and how long it took. Only prompt answers measure the distance to the resolver: others
// include the time of further servers.
func (p *resolverStates) replied(at netip.AddrPort, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.get(at)
	r.oldestUnanswered, r.lastReply, r.silentUntil = time.Time{}, p.clock.Now(), time.Time{}
	if r.replyTime == 0 && took < probeAfter {
		r.replyTime = max(took, 1)
	}
}

// startProbe reports whether to probe a resolver; the caller then calls probeReplied or noReply.
func (p *resolverStates) startProbe(at netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.get(at)
	if r.probing || !r.silentUntil.IsZero() {
		return false
	}
	r.probing = true
	return true
}

// probeReplied records the reply to a probe and how long it took. A long reply time decays slowly.
func (p *resolverStates) probeReplied(at netip.AddrPort, took time.Duration) {
	p.replied(at, took)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.get(at)
	r.probing, r.replyTime = false, max(took, r.replyTime*7/8, 1)
}

// noReply records that a resolver did not answer a message. If it has answered another one meanwhile, it is not silent.
func (p *resolverStates) noReply(at netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.get(at)
	r.probing = false
	if !r.oldestUnanswered.IsZero() {
		r.silentUntil = p.clock.Now().Add(silentPause)
	}
}

// remainingWait returns how long a query that began at the time still waits for any reply of the resolver; false: there
// was a reply since.
func (p *resolverStates) remainingWait(at netip.AddrPort, began time.Time) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.get(at)
	if r.oldestUnanswered.IsZero() || r.lastReply.After(began) {
		return 0, false
	}
	replyTime := r.replyTime
	if replyTime == 0 {
		replyTime = unknownReplyTime
	}
	until := r.oldestUnanswered.Add(lateFactor * replyTime)
	if earliest := began.Add(minWait); until.Before(earliest) {
		until = earliest
	}
	return until.Sub(p.clock.Now()), true
}
