package commandline

import (
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

const (
	// often is how many equal messages within a second are logged; beyond that, one of as many is.
	often = 100
	// maxCounted is the maximum number of messages that are counted; messages are constants, so there are not many.
	maxCounted = 1024
)

// sampled is a zapcore.Core that limits how often a message is logged. zap's own does that with a table of 0.7 MB.
type sampled struct {
	zapcore.Core
	counts *counts
}

func newSampled(core zapcore.Core) zapcore.Core {
	return sampled{Core: core, counts: &counts{of: map[string]int{}}}
}

// With implements zapcore.Core.
func (s sampled) With(fields []zapcore.Field) zapcore.Core {
	return sampled{Core: s.Core.With(fields), counts: s.counts}
}

// Check implements zapcore.Core.
func (s sampled) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !s.Enabled(e.Level) || !s.counts.logs(e.Level.String()+e.Message, e.Time) {
		return to
	}
	return s.Core.Check(e, to)
}

// counts is how often each message occurred in the current second.
type counts struct {
	mu    sync.Mutex // guards what follows
	since time.Time
	of    map[string]int
}

// logs counts a message, and reports whether it is logged.
func (c *counts) logs(message string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.since); age >= time.Second || age < 0 || len(c.of) >= maxCounted {
		c.since = now
		clear(c.of)
	}
	c.of[message]++
	n := c.of[message]
	return n <= often || n%often == 0
}
