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
		pull   bool // whether to pull if the image is still missing
	}{
		"first attempt": {before: func(*Try) {}, pull: true},
		"pull running":  {before: func(t *Try) { t.Missing() }, waits: true},
		"second pull running": {before: func(t *Try) { t.Failed(denied, start); t.Missing() }, waits: true,
			why: Error{Reason: ReasonPull, Message: "denied"}},
		"pull failed": {before: func(t *Try) { t.Missing(); t.Pulled(denied, start) }, after: 5 * time.Second,
			waits: true, why: Error{ReasonPull, "denied", 15 * time.Second}, pull: true},
		"backoff over": {before: func(t *Try) { t.Missing(); t.Pulled(denied, start) }, after: 20 * time.Second,
			pull: true},
		"failed with another error": {before: func(t *Try) { t.Pulled(errors.New("odd"), start) }, waits: true,
			why: Error{ReasonPull, "odd", 10 * time.Second}, pull: true},
		"runtime lost":             {before: func(t *Try) { t.Missing(); t.Pulled(lost, start) }, pull: true},
		"imported meanwhile":       {before: func(t *Try) { t.Missing(); t.Again() }},
		"imported after it failed": {before: func(t *Try) { t.Failed(denied, start); t.Again() }, pull: true},
		"other image imported":     {before: func(t *Try) { t.Missing(); t.Again(); t.Missing() }, waits: true},
	} {
		var try Try
		c.before(&try)
		why, waits := try.Wait(start.Add(c.after))
		if why != c.why || waits != c.waits {
			t.Errorf("%s: waits %v, error %+v", name, waits, why)
		}
		if got := try.Missing(); got != c.pull {
			t.Errorf("%s: pull %v, want %v", name, got, c.pull)
		}
	}
}
