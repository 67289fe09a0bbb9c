package image

import (
	"errors"
	"time"

	"monopod/agent/runtime/cutoff"
	"monopod/apiserver/process/backoff"
)

// Try is what is known of an image that is not there yet: whether it is being pulled,
// and how the last attempt to bring it ended. The zero value is one that nobody has
// looked for. It is for one goroutine.
type Try struct {
	pulling bool
	again   bool // images have been imported since
	err     *Error
	until   time.Time // err holds
}

// Wait says that it is no use to look for the image now, and why: what the last attempt
// said, if there was one, and when to look; without a Retry the end of the pull tells.
func (t *Try) Wait(now time.Time) (why Error, waits bool) {
	switch {
	case t.again:
		return Error{}, false
	case t.pulling:
		return t.Said(), true
	case t.err != nil && now.Before(t.until):
		why = t.Said()
		why.Retry = t.until.Sub(now)
		return why, true
	}
	return Error{}, false
}

// Said is what the last attempt said, if there was one.
func (t *Try) Said() Error {
	if t.err == nil {
		return Error{}
	}
	return Error{Reason: t.err.Reason, Message: t.err.Message}
}

// Missing notes that the image is not on the machine; pull: it must be pulled, which
// nobody does yet.
func (t *Try) Missing() (pull bool) {
	pull = !t.pulling
	t.again, t.pulling = false, true
	return pull
}

// Again has the image looked for at once, even while it is being pulled.
func (t *Try) Again() { t.again = true }

// Failed notes why the image is not there.
func (t *Try) Failed(e *Error, now time.Time) { t.err, t.until = e, now.Add(e.Retry) }

// Pulled notes how the pull ended. One that was cut off is as none.
func (t *Try) Pulled(err error, now time.Time) {
	t.pulling, t.err = false, nil
	if err == nil || cutoff.Lost(err) {
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Reason: ReasonPull, Message: err.Error(), Retry: backoff.Initial}
	}
	t.Failed(e, now)
}
