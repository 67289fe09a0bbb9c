// Package outlive lets a request outlive its handlers: a watch that waits for hours keeps neither the stack of a dozen handlers,
// which Go would not shrink, nor what they know of the request. With HTTP/2 it needs no goroutine either.
package outlive

import (
	"context"
	"net/http"
	"strings"
)

// Writer is an http.ResponseWriter that keeps a response open after its handlers have returned.
type Writer interface {
	// Outlive lets the response end when a call of step returns true or panics. The first call follows the handlers; each later one is
	// made by resume. gone is called when the client has left, on a goroutine of its own.
	Outlive(step func() (over bool), gone func()) (resume func())
	// Reserve makes room for n bytes that are written before the next flush, which then do not wait for the client. It returns false if
	// there is no room.
	Reserve(n int) bool
}

// End is called when a request is over, with what it panicked with, or nil. It returns what the request still panics with.
type End func(failure any) any

// Request is a request that may outlive its handlers: what is left to be done then is done step by step.
type Request struct {
	out    Writer             // nil: it keeps a goroutine
	step   func() (over bool) // nil: it ends with its handlers
	left   <-chan struct{}    // closed when the client has left; nil if out tells it
	gone   func()
	resume func()
	ends   []End
}

type key struct{}

// Handler calls h, and then what h leaves to be done.
func Handler(h http.Handler) http.Handler { return handler{h} }

// handler is not a function, because that would be one more frame on the stack of an idle watch.
type handler struct{ http.Handler }

// ServeHTTP implements http.Handler.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !may(r) || within(r) != nil {
		h.Handler.ServeHTTP(w, r)
		return
	}
	q, open := &Request{}, false
	q.out, _ = w.(Writer)
	defer func() {
		if !open {
			q.end(recover())
		}
	}()
	h.Handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, q)))
	switch {
	case q.step == nil:
	case q.out == nil:
		q.Run(q.left)
	default:
		open = true
		q.resume = q.out.Outlive(q.next, q.gone)
	}
}

// next is one step of a request whose handlers have returned. As soon as it is not the last one, somebody else may make another one.
func (q *Request) next() (over bool) {
	over = true
	defer func() {
		if over {
			q.end(recover())
		}
	}()
	over = q.step()
	return over
}

func (q *Request) end(failure any) {
	for _, end := range q.ends {
		failure = end(failure)
	}
	if failure != nil {
		panic(failure)
	}
}

// may reports whether r may outlive its handlers: whether it looks like a watch.
func may(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "watch")
}

// Finally calls f when the request is over, after what the handlers inside of the caller do then. A handler defers it.
func Finally(r *http.Request, f func()) {
	if q := Of(r); q != nil {
		q.End(func(failure any) any { f(); return failure })
	} else {
		f()
	}
}

// Of returns the request that r belongs to if it outlives its handlers, otherwise nil: for handlers whose end depends on a panic.
func Of(r *http.Request) *Request {
	if !may(r) {
		return nil
	}
	if q := within(r); q != nil && q.step != nil {
		return q
	}
	return nil
}

// within returns the request that r belongs to if it may outlive its handlers, otherwise nil.
func within(r *http.Request) *Request {
	q, _ := r.Context().Value(key{}).(*Request)
	return q
}

// Later calls step after all handlers have returned, when the router's part of the context belongs to another request, and again after each
// Resume, until step returns true. gone is called when the client has left: it lets step be called once more. Later returns nil if r may not
// outlive its handlers.
func Later(r *http.Request, step func() (over bool), gone func()) *Request {
	q := within(r)
	if q == nil {
		return nil
	}
	if q.step, q.gone = step, gone; q.out == nil {
		q.left = r.Context().Done() // which a handler may have replaced
	}
	return q
}

// Alone returns a request whose steps the caller makes, with Run.
func Alone(step func() (over bool), gone func()) *Request { return &Request{step: step, gone: gone} }

// Run makes all steps. left is closed when the client has left.
func (q *Request) Run(left <-chan struct{}) {
	more := make(chan struct{}, 1)
	q.resume = func() { more <- struct{}{} }
	for !q.step() {
		select {
		case <-more:
		case <-left:
			q.gone()
			<-more
		}
	}
}

// Resume lets step be called again, after it has returned false: on the caller's goroutine, unless the request has one.
func (q *Request) Resume() { q.resume() }

// Reserve makes room for n bytes that a step writes before its next flush, so that the caller of Resume does not wait for the client. It returns
// false if there is no room.
func (q *Request) Reserve(n int) bool { return q.out == nil || q.out.Reserve(n) }

// End calls end when the request is over, after those of the handlers inside of the caller.
func (q *Request) End(end End) { q.ends = append(q.ends, end) }
