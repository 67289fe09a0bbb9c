package pull

import (
	"errors"
	"time"

	"monopod/agent/runtime"
	"monopod/apiserver/kit/backoff"
)

// Try is the state of an image that is not present yet: whether it is being pulled,
// and how the last attempt ended. The zero value means no attempt yet. Only one
// goroutine may use it.
type Try struct {
	pulling bool
	again   bool // images have been imported since
	err     *Error
	until   time.Time // err holds
}

// Wait reports whether to wait for the image, and why: the error of the last attempt,
// if any, and when to retry; without a Retry, wait for the end of the pull.
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

// Said returns the error of the last attempt, if any.
func (t *Try) Said() Error {
	if t.err == nil {
		return Error{}
	}
	return Error{Reason: t.err.Reason, Message: t.err.Message}
}

// Missing records that the image is not on the machine. It returns true if the caller
// must start a pull.
func (t *Try) Missing() (pull bool) {
	pull = !t.pulling
	t.again, t.pulling = false, true
	return pull
}

// Again makes the next check look for the image at once, even during a pull.
func (t *Try) Again() { t.again = true }

// Failed records why the image is missing.
func (t *Try) Failed(e *Error, now time.Time) { t.err, t.until = e, now.Add(e.Retry) }

// Pulled records how the pull ended. An interrupted pull does not count.
func (t *Try) Pulled(err error, now time.Time) {
	t.pulling, t.err = false, nil
	if err == nil || runtime.Lost(err) {
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Reason: ReasonPull, Message: err.Error(), Retry: backoff.Initial}
	}
	t.Failed(e, now)
}
