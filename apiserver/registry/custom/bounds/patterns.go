package bounds

import (
	"regexp"
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe" // for linkname

	"k8s.io/utils/clock"
)

// upstreams is the cache of compiled patterns in kube-openapi's validate, a map[string]*regexp.Regexp: it keeps each for the life of
// the process, and there is no other way to have it forget one.
//
//go:linkname upstreams k8s.io/kube-openapi/pkg/validation/validate.reDict
var upstreams atomic.Value

// ForgetPatterns empties upstream's cache of compiled patterns. A pattern that is used again is compiled again.
func ForgetPatterns() {
	if _, used := upstreams.Load().(map[string]*regexp.Regexp); used {
		upstreams.Store(map[string]*regexp.Regexp{})
	}
}

const (
	// maxCompiled is the maximum size of the patterns in upstream's cache, in instructions of some 40 bytes, unless those of one schema
	// are larger.
	maxCompiled = 200_000
	// keptFor is how long a pattern stays in the cache.
	keptFor = 5 * time.Minute
)

// Patterns bounds the patterns that upstream's validator has compiled, in size and in time.
type Patterns struct {
	clock clock.WithDelayedExecution

	mu   sync.Mutex // guards what follows
	used map[*Work]bool
	size int
	due  bool // they are forgotten after keptFor
}

// NewPatterns returns a Patterns.
func NewPatterns(clock clock.WithDelayedExecution) *Patterns {
	return &Patterns{clock: clock, used: map[*Work]bool{}}
}

// Use must be called before a value is compared with the schema of w.
func (p *Patterns) Use(w *Work) {
	if w == nil || len(w.patterns) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[w] {
		return
	}
	size := 0
	for _, n := range w.patterns {
		size += perPattern + n
	}
	if p.size += size; p.size > maxCompiled {
		p.forget()
		p.size = size
	}
	if !p.due {
		p.due = true
		p.clock.AfterFunc(keptFor, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.due = false
			p.forget()
		})
	}
	p.used[w] = true
}

func (p *Patterns) forget() {
	ForgetPatterns()
	clear(p.used)
	p.size = 0
}
