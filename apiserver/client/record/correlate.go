package record

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Upstream's numbers (client-go tools/record/events_cache.go).
const (
	cacheSize       = 1024             // objects and messages remembered; upstream has 4096
	similarMax      = 10               // different messages before they are folded into one event
	similarInterval = 10 * time.Minute // since the last similar one
	spamBurst       = 25               // events about one object at once
	spamRefill      = 5 * time.Minute  // for each more
	foldedPrefix    = "(combined from similar events): "
)

// eventKey is what makes two events the same.
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

// storedKey is correlationKey, but the same for all events folded into one.
func storedKey(e *corev1.Event) eventKey {
	key := correlationKey(e)
	if strings.HasPrefix(key.message, foldedPrefix) {
		key.message = foldedPrefix
	}
	return key
}

// correlator recognises repeated, similar and too many events. One goroutine
// uses it.
type correlator struct {
	clock   clock.PassiveClock
	names   *lru.Cache // eventKey → name of the stored event
	similar *lru.Cache // eventKey without message → *group
	buckets *lru.Cache // object → *bucket
}

func newCorrelator(c clock.PassiveClock) *correlator {
	return &correlator{clock: c, names: lru.New(cacheSize), similar: lru.New(cacheSize), buckets: lru.New(cacheSize)}
}

// observe returns the name of the stored event that e repeats, or "", and false
// when e is one too many about its object. It may change e's message into that of
// a folded event.
func (c *correlator) observe(e *corev1.Event) (prior string, ok bool) {
	c.fold(e)
	if !c.allow(e.InvolvedObject) {
		return "", false
	}
	name, _ := c.names.Get(storedKey(e))
	prior, _ = name.(string)
	return prior, true
}

// group counts the different messages of events alike in all else.
type group struct {
	messages map[string]struct{}
	last     time.Time
}

func (c *correlator) fold(e *corev1.Event) {
	key := correlationKey(e)
	key.message = ""
	now := c.clock.Now()
	found, _ := c.similar.Get(key)
	g, _ := found.(*group)
	if g == nil || now.Sub(g.last) > similarInterval {
		g = &group{messages: map[string]struct{}{}}
		c.similar.Add(key, g)
	}
	g.last = now
	if _, known := g.messages[e.Message]; !known && len(g.messages) >= similarMax-1 {
		e.Message = foldedPrefix + e.Message
		return
	}
	g.messages[e.Message] = struct{}{}
}

// bucket holds the events an object may still have.
type bucket struct {
	tokens float64
	last   time.Time
}

func (c *correlator) allow(object corev1.ObjectReference) bool {
	object.ResourceVersion, object.FieldPath = "", ""
	now := c.clock.Now()
	found, _ := c.buckets.Get(object)
	b, _ := found.(*bucket)
	if b == nil {
		b = &bucket{tokens: spamBurst, last: now}
		c.buckets.Add(object, b)
	}
	b.tokens = min(spamBurst, b.tokens+float64(now.Sub(b.last))/float64(spamRefill))
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
