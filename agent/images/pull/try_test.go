package pull

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestTry(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0)
	denied := &Error{Reason: ReasonPull, Message: "denied", Retry: 20 * time.Second}
	lost := status.Error(codes.Unavailable, "transport is closing")
	for name, c := range map[string]struct {
		before func(*Try)
		after  time.Duration
		waits  bool
		why    Error
		pull   bool // when it is still missing
	}{
		"never looked for": {before: func(*Try) {}, pull: true},
		"being pulled":     {before: func(t *Try) { t.Missing() }, waits: true},
		"pulled again": {before: func(t *Try) { t.Failed(denied, start); t.Missing() }, waits: true,
			why: Error{Reason: ReasonPull, Message: "denied"}},
		"failed": {before: func(t *Try) { t.Missing(); t.Pulled(denied, start) }, after: 5 * time.Second,
			waits: true, why: Error{ReasonPull, "denied", 15 * time.Second}, pull: true},
		"failed long ago": {before: func(t *Try) { t.Missing(); t.Pulled(denied, start) }, after: 20 * time.Second,
			pull: true},
		"failed in other words": {before: func(t *Try) { t.Pulled(errors.New("odd"), start) }, waits: true,
			why: Error{ReasonPull, "odd", 10 * time.Second}, pull: true},
		"cut off":                  {before: func(t *Try) { t.Missing(); t.Pulled(lost, start) }, pull: true},
		"imported meanwhile":       {before: func(t *Try) { t.Missing(); t.Again() }},
		"imported after it failed": {before: func(t *Try) { t.Failed(denied, start); t.Again() }, pull: true},
		"imported, but others":     {before: func(t *Try) { t.Missing(); t.Again(); t.Missing() }, waits: true},
	} {
		var try Try
		c.before(&try)
		why, waits := try.Wait(start.Add(c.after))
		if why != c.why || waits != c.waits {
			t.Errorf("%s: waits %v, %+v", name, waits, why)
		}
		if got := try.Missing(); got != c.pull {
			t.Errorf("%s: is to be pulled: %v", name, got)
		}
	}
}
