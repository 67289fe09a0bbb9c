package record

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Upstream's values (client-go tools/record/events_cache.go).
const (
	cacheSize       = 1024             // cached objects and messages; upstream has 4096
	similarMax      = 10               // different messages before they are combined into one event
	similarInterval = 10 * time.Minute // since the last similar event
	spamBurst       = 25               // events about one object at once
	spamRefill      = 5 * time.Minute  // for each further one
	foldedPrefix    = "(combined from similar events): "
)

// eventKey contains the fields in which equal events agree.
type eventKey struct {
	object          corev1.ObjectReference
	kind            string
	reason, message string
}

func correlationKey(e *corev1.Event) eventKey {
	object := e.InvolvedObject
	object.ResourceVersion = ""
	return eventKey{object: object, kind: e.Type, reason: e.Reason, message: e.Message}
}

// storedKey is correlationKey, but the same for all events that are combined into one.
func storedKey(e *corev1.Event) eventKey {
	key := correlationKey(e)
	if strings.HasPrefix(key.message, foldedPrefix) {
		key.message = foldedPrefix
	}
	return key
}

// correlator recognizes repeated, similar and too many events. It stores hashes, because the texts would need as
// much memory as the events. Only one goroutine may use it.
type correlator struct {
	clock   clock.PassiveClock
	seed    maphash.Seed
	names   *lru.Cache // eventKey → name of the stored event
	similar *lru.Cache // eventKey without message → *group
	buckets *lru.Cache // object → *bucket
}

func newCorrelator(c clock.PassiveClock) *correlator {
	return &correlator{clock: c, seed: maphash.MakeSeed(), names: lru.New(cacheSize), similar: lru.New(cacheSize),
		buckets: lru.New(cacheSize)}
}

// key is a key of the caches.
func (c *correlator) key(of eventKey) uint64 { return maphash.Comparable(c.seed, of) }

// observe returns the name of the stored event that e repeats, or "", and false if there are too many events
// about the object. It may replace e's message by that of a combined event.
func (c *correlator) observe(e *corev1.Event) (prior string, ok bool) {
	c.fold(e)
	if !c.allow(e.InvolvedObject) {
		return "", false
	}
	name, _ := c.names.Get(c.key(storedKey(e)))
	prior, _ = name.(string)
	return prior, true
}

// group counts the different messages of otherwise equal events.
type group struct {
	messages []uint64 // hashes
	last     time.Time
}

func (c *correlator) fold(e *corev1.Event) {
	of := correlationKey(e)
	of.message = ""
	key, message := c.key(of), maphash.String(c.seed, e.Message)
	now := c.clock.Now()
	found, _ := c.similar.Get(key)
	g, _ := found.(*group)
	if g == nil || now.Sub(g.last) > similarInterval {
		g = &group{}
		c.similar.Add(key, g)
	}
	g.last = now
	switch {
	case slices.Contains(g.messages, message):
	case len(g.messages) >= similarMax-1:
		e.Message = foldedPrefix + e.Message
	default:
		g.messages = append(g.messages, message)
	}
}

// bucket is a token bucket for the events of an object.
type bucket struct {
	tokens float64
	last   time.Time
}

func (c *correlator) allow(object corev1.ObjectReference) bool {
	object.ResourceVersion, object.FieldPath = "", ""
	now := c.clock.Now()
	key := maphash.Comparable(c.seed, object)
	found, _ := c.buckets.Get(key)
	b, _ := found.(*bucket)
	if b == nil {
		b = &bucket{tokens: spamBurst, last: now}
		c.buckets.Add(key, b)
	}
	b.tokens = min(spamBurst, b.tokens+float64(now.Sub(b.last))/float64(spamRefill))
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
