package pull

import (
	"errors"
	"time"

	"monopod/agent/runtime"
	"monopod/apiserver/kit/backoff"
)

// Try is the state of an image that is not present yet: whether it is being pulled, and the error of the last attempt.
// The zero value means no attempt. Only one goroutine may use it.
type Try struct {
	pulling  bool
	imported bool // images have been imported since
	err      *Error
	until    time.Time // end of the backoff after err
}

// Wait reports whether to wait for the image. why is the error of the last attempt, if any, with the time to wait;
// without a Retry, wait for the end of the pull.
func (t *Try) Wait(now time.Time) (why Error, waits bool) {
	switch {
	case t.imported:
		return Error{}, false
	case t.pulling:
		return t.LastError(), true
	case t.err != nil && now.Before(t.until):
		why = t.LastError()
		why.Retry = t.until.Sub(now)
		return why, true
	}
	return Error{}, false
}

// LastError returns the error of the last attempt, if any.
func (t *Try) LastError() Error {
	if t.err == nil {
		return Error{}
	}
	return Error{Reason: t.err.Reason, Message: t.err.Message}
}

// Missing records that the image is not on the machine. It returns true if the caller must start a pull.
func (t *Try) Missing() (pull bool) {
	pull = !t.pulling
	t.imported, t.pulling = false, true
	return pull
}

// Again is called when images were imported: the next check looks for the image at once, even during a pull.
func (t *Try) Again() { t.imported = true }

// Failed records the error and starts its backoff.
func (t *Try) Failed(e *Error, now time.Time) { t.err, t.until = e, now.Add(e.Retry) }

// Pulled records the result of the pull. An interrupted pull is not an error.
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
