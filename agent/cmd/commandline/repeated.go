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
	// overAfter is the time without a repetition after which a warning counts as new.
	overAfter = 10 * time.Minute
	// maxRepeated is the maximum number of remembered warnings.
	maxRepeated = 1024
)

// repeated is a zapcore.Core that logs a warning or error once, and then, while it repeats, at growing intervals
// with the number of suppressed repetitions. Warnings are equal if message and fields are, apart from numbers.
type repeated struct {
	zapcore.Core
	context string // of the fields that With has added
	said    *said
}

func newRepeated(core zapcore.Core) zapcore.Core {
	return repeated{Core: core, said: &said{at: map[string]*saying{}}}
}

// With implements zapcore.Core.
func (r repeated) With(fields []zapcore.Field) zapcore.Core {
	return repeated{Core: r.Core.With(fields), context: r.context + words(fields), said: r.said}
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
		missed, ok := r.said.again(e.LoggerName+"\n"+e.Message+r.context+words(fields), e.Time)
		if !ok {
			return nil
		}
		if missed > 0 {
			fields = append(fields, zap.Int("repeated", missed))
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

// said records when each warning was logged.
type said struct {
	mu sync.Mutex // guards at
	at map[string]*saying
}

type saying struct {
	last   time.Time     // when it was logged
	seen   time.Time     // when it last occurred, logged or not
	pause  time.Duration // until it is logged again
	missed int
}

// again reports whether a warning is logged now, and how many repetitions were suppressed before.
func (s *said) again(key string, now time.Time) (missed int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.at[key]
	if was == nil || now.Sub(was.seen) > overAfter {
		if len(s.at) >= maxRepeated {
			clear(s.at) // all are logged once more
		}
		s.at[key] = &saying{last: now, seen: now, pause: firstPause}
		return 0, true
	}
	was.seen = now
	if now.Sub(was.last) < was.pause {
		was.missed++
		return 0, false
	}
	missed = was.missed
	*was = saying{last: now, seen: now, pause: min(2*was.pause, lastPause)}
	return missed, true
}
