// Package outlive lets a request outlive its handlers: a watch that waits for hours keeps neither the stack of a dozen handlers,
// which Go would not shrink, nor what they know of the request.
package outlive

import (
	"context"
	"net/http"
	"strings"
)

// End is called when a request is over, with what it panicked with, or nil. It returns what the request still panics with.
type End func(failure any) any

// Writer is an http.ResponseWriter that keeps a response open after its handlers, and calls rest then, on a goroutine with a small stack.
type Writer interface{ Outlive(rest func()) }

// Request is a request that may outlive its handlers.
type Request struct {
	rest  func() // nil: it ends with its handlers
	ends  []End
	moved bool // rest runs on another goroutine
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
	q := &Request{}
	defer q.end()
	q.handle(h.Handler, w, r)
	if out, ok := w.(Writer); ok && q.rest != nil {
		q.moved = true
		out.Outlive(q.finish)
	} else if q.rest != nil {
		q.rest()
	}
}

// finish is the rest of a request whose handlers have returned.
func (q *Request) finish() {
	q.moved = false
	defer q.end()
	q.rest()
}

func (q *Request) handle(h http.Handler, w http.ResponseWriter, r *http.Request) {
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, q)))
	if q.rest != nil && r.ProtoMajor > 1 {
		// HTTP/2 keeps the request, and only needs its method.
		r.Header, r.URL, r.RequestURI = nil, nil, ""
	}
}

// end is deferred.
func (q *Request) end() {
	if q.moved {
		return
	}
	failure := recover()
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
	if q := within(r); q != nil && q.rest != nil {
		return q
	}
	return nil
}

// within returns the request that r belongs to if it may outlive its handlers, otherwise nil.
func within(r *http.Request) *Request {
	q, _ := r.Context().Value(key{}).(*Request)
	return q
}

// Later runs rest after all handlers have returned, when the router's part of the context belongs to another request. It returns false
// if r may not outlive them.
func Later(r *http.Request, rest func()) bool {
	q := within(r)
	if q != nil {
		q.rest = rest
	}
	return q != nil
}

// End calls end when the request is over, after those of the handlers inside of the caller.
func (q *Request) End(end End) { q.ends = append(q.ends, end) }
