package dns

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"k8s.io/utils/clock"
)

const (
	// maxCached bounds the cache: about a kilobyte for each answer.
	maxCached = 1000
	// maxTTL and maxNegativeTTL bound the time for which answers of other servers are cached.
	maxTTL         = time.Hour
	maxNegativeTTL = time.Minute
	// maxStale is how long after its TTL an answer is used while no resolver responds, and staleTTL is its TTL then, in
	// seconds (RFC 8767 suggests 1 to 3 days, and 30 s).
	maxStale = 24 * time.Hour
	staleTTL = 30
	// maxAnswer is the maximum number of records of a cached answer.
	maxAnswer = 64
)

// cacheKey is a query.
type cacheKey struct {
	name   string
	typ    uint16
	class  uint16
	dnssec bool
}

func keyOf(q dns.Question, dnssec bool) cacheKey {
	return cacheKey{name: strings.ToLower(q.Name), typ: q.Qtype, class: q.Qclass, dnssec: dnssec}
}

func (k cacheKey) String() string { return fmt.Sprint(k.typ, k.class, k.dnssec, k.name) }

// cache keeps answers until their TTLs expire, and then for maxStale, in case no resolver responds.
type cache struct {
	clock clock.PassiveClock

	mu      sync.Mutex // guards answers
	answers map[cacheKey]cached
}

type cached struct {
	msg             *dns.Msg // never changed
	stored, expires time.Time
}

func newCache(clk clock.PassiveClock) *cache {
	return &cache{clock: clk, answers: map[cacheKey]cached{}}
}

// get returns a copy of the answer, with the remaining TTLs; nil: there is none.
func (c *cache) get(key cacheKey) *dns.Msg {
	now := c.clock.Now()
	c.mu.Lock()
	found, ok := c.answers[key]
	if ok && !now.Before(found.expires.Add(maxStale)) {
		delete(c.answers, key)
		ok = false
	}
	c.mu.Unlock()
	if !ok || !now.Before(found.expires) {
		return nil
	}
	age := uint32(now.Sub(found.stored) / time.Second)
	return withTTL(found.msg, func(ttl uint32) uint32 { return ttl - min(age, ttl) })
}

// stale returns a copy of an answer that has expired, with a short TTL (RFC 8767); nil: there is none, or it was
// negative.
func (c *cache) stale(key cacheKey) *dns.Msg {
	c.mu.Lock()
	found, ok := c.answers[key]
	c.mu.Unlock()
	if !ok || len(found.msg.Answer) == 0 || !c.clock.Now().Before(found.expires.Add(maxStale)) {
		return nil
	}
	return withTTL(found.msg, func(ttl uint32) uint32 { return min(ttl, staleTTL) })
}

// withTTL returns a copy with other TTLs.
func withTTL(m *dns.Msg, next func(uint32) uint32) *dns.Msg {
	m = m.Copy()
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, r := range section {
			if h := r.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl = next(h.Ttl)
			}
		}
	}
	return m
}

// put adds an answer. If the cache is full, the answer replaces any other.
func (c *cache) put(key cacheKey, m *dns.Msg) {
	keep := lifetime(m)
	if keep <= 0 {
		return
	}
	now := c.clock.Now()
	entry := cached{msg: m.Copy(), stored: now, expires: now.Add(keep)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.answers[key]; !ok && len(c.answers) >= maxCached {
		for other := range c.answers {
			delete(c.answers, other)
			break
		}
	}
	c.answers[key] = entry
}

// lifetime returns how long an answer may be cached: the smallest TTL of its records, for a negative one the SOA's.
func lifetime(m *dns.Msg) time.Duration {
	if m.Truncated || len(m.Answer)+len(m.Ns)+len(m.Extra) > maxAnswer || m.Rcode != dns.RcodeSuccess &&
		m.Rcode != dns.RcodeNameError {
		return 0
	}
	if len(m.Answer) == 0 || m.Rcode == dns.RcodeNameError {
		for _, r := range m.Ns {
			if soa, ok := r.(*dns.SOA); ok {
				return min(time.Duration(min(soa.Minttl, soa.Hdr.Ttl))*time.Second, maxNegativeTTL)
			}
		}
		return 0
	}
	least := maxTTL
	for _, r := range m.Answer {
		least = min(least, time.Duration(r.Header().Ttl)*time.Second)
	}
	return least
}
