package commandline

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// A repeated warning is logged again after firstPause, doubling up to lastPause.
	firstPause = 10 * time.Second
	lastPause  = time.Hour
	// newAfter is the time without a repetition after which a warning counts as new.
	newAfter = 10 * time.Minute
	// maxRepeated is the maximum number of remembered warnings.
	maxRepeated = 1024
)

// repeated is a zapcore.Core that logs a warning or error once, and then, while it repeats, at growing intervals
// with the number of suppressed repetitions. Warnings are equal if message and fields are, apart from numbers.
type repeated struct {
	zapcore.Core
	context string // text of the fields that With has added
	history *history
}

func newRepeated(core zapcore.Core) zapcore.Core {
	return repeated{Core: core, history: &history{warnings: map[string]*warning{}}}
}

// With implements zapcore.Core.
func (r repeated) With(fields []zapcore.Field) zapcore.Core {
	return repeated{Core: r.Core.With(fields), context: r.context + words(fields), history: r.history}
}

// Check implements zapcore.Core.
func (r repeated) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if r.Enabled(e.Level) {
		return to.AddCore(e, r)
	}
	return to
}

// Write implements zapcore.Core.
func (r repeated) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if e.Level == zapcore.WarnLevel || e.Level == zapcore.ErrorLevel {
		suppressed, ok := r.history.allow(e.LoggerName+"\n"+e.Message+r.context+words(fields), e.Time)
		if !ok {
			return nil
		}
		if suppressed > 0 {
			fields = append(fields, zap.Int("repeated", suppressed))
		}
	}
	return r.Core.Write(e, fields)
}

// words returns the fields that are not numbers.
func words(fields []zapcore.Field) string {
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, "\n%s %s", f.Key, f.String)
		if f.Interface != nil {
			fmt.Fprintf(&b, "%v", f.Interface)
		}
	}
	return b.String()
}

// history records when each warning was logged.
type history struct {
	mu       sync.Mutex // guards warnings
	warnings map[string]*warning
}

type warning struct {
	lastLogged time.Time
	lastSeen   time.Time     // logged or not
	pause      time.Duration // until it is logged again
	suppressed int
}

// allow reports whether to log a warning now, and how many repetitions were suppressed before.
func (h *history) allow(key string, now time.Time) (suppressed int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.warnings[key]
	if w == nil || now.Sub(w.lastSeen) > newAfter {
		if len(h.warnings) >= maxRepeated {
			clear(h.warnings) // all are logged once more
		}
		h.warnings[key] = &warning{lastLogged: now, lastSeen: now, pause: firstPause}
		return 0, true
	}
	w.lastSeen = now
	if now.Sub(w.lastLogged) < w.pause {
		w.suppressed++
		return 0, false
	}
	suppressed = w.suppressed
	*w = warning{lastLogged: now, lastSeen: now, pause: min(2*w.pause, lastPause)}
	return suppressed, true
}
