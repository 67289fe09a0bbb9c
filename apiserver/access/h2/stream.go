package h2

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// stream is one request. Its fields are guarded by its connection's lock, unless they never change.
type stream struct {
	c       *conn
	id      uint32
	cancel  context.CancelFunc
	changed sync.Cond // what its goroutine waits for
	err     error     // why it is over before its handler is

	window int64 // how much the client takes of the response
	queued bool  // in the connection's blocked
	// The body of the request.
	body     []byte // is not read yet
	bodyErr  error  // what follows it; nil: more of it
	room     int64  // how much of it the client may send
	read     int64  // how much of it was read, which the client does not know yet
	got      int64
	length   int64       // that the client announced; -1: none
	ended    bool        // the client sends no more
	expects  bool        // the client waits for "100 Continue"
	trailer  http.Header // what followed the body
	replying bool        // the response's header is sent

	deadline, bodyDeadline deadline

	later later
}

// later is the part of a stream that outlives its handler.
type later struct {
	gone     func() // called when the client has left; nil: nobody
	reserved int64  // how much of the connection's window is for its next writes
}

// serve calls the handler.
func (st *stream) serve(r *request) {
	w := &response{st: st, method: r.Method}
	over := st.call(w, st.c.out.send, func() (over bool) {
		r.handler.ServeHTTP(w, r.Request)
		return w.step == nil
	})
	if !over {
		st.run(w)
	}
}

// run makes a step of a response that outlives its handler. It does not wait for the client if the step does not.
func (st *stream) run(w *response) {
	st.call(w, func() { st.c.s.guard.Spawn("connection", st.c.out.send) }, w.step)
}

// call calls f, and ends the response if f returns true or panics; send sends what is left. Otherwise somebody else may call it again, meanwhile.
func (st *stream) call(w *response, send func(), f func() (over bool)) (over bool) {
	over = true
	defer func() {
		failure := recover()
		if failure != nil && failure != any(http.ErrAbortHandler) {
			st.c.s.logf("http2: panic serving %v: %v\n%s", st.c.remote, failure, debug.Stack())
		}
		if over && st.finish(w, failure != nil) {
			send()
		}
	}()
	over = f()
	return over
}

// finish appends what is left of the response. It returns true if the caller has to send it.
func (st *stream) finish(w *response, failed bool) bool {
	defer st.cancel()
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	st.closeBody()
	if !failed && st.err == nil {
		w.end()
	}
	switch {
	case st.err != nil:
	case failed:
		st.reset(http2.ErrCodeInternal)
	case !st.ended: // the client need not send the rest
		st.reset(http2.ErrCodeNo)
	}
	w.release()
	st.reserve(0)
	st.deadline.stop()
	st.bodyDeadline.stop()
	c.remove(st)
	c.handlers--
	st.err, st.later.gone = errReset, nil
	return c.out.mine()
}

// stop ends the request from outside: what its handler waits for fails. c.mu is held.
func (st *stream) stop(err error) {
	if st.err != nil {
		return
	}
	st.err = err
	if st.bodyErr == nil {
		st.bodyErr = err
	}
	st.cancel()
	st.changed.Broadcast()
	if st.later.gone != nil {
		st.c.s.guard.Spawn("request", st.later.gone)
	}
}

// reset ends the stream, and tells the client. c.mu is held.
func (st *stream) reset(code http2.ErrCode) {
	st.c.out.control(http2.FrameRSTStream, 0, st.id, binary.BigEndian.AppendUint32(nil, uint32(code)))
	st.c.remove(st)
	st.stop(errReset)
}

// wait waits for changed. c.mu is held.
func (st *stream) wait() {
	st.deadline.arm(st)
	st.bodyDeadline.arm(st)
	st.changed.Wait()
}

// trailers ends the body. c.mu is held.
func (st *stream) trailers(f *http2.MetaHeadersFrame) error {
	switch {
	case st.ended:
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeStreamClosed}
	case !f.StreamEnded(), len(f.PseudoFields()) > 0, st.length >= 0 && st.got < st.length:
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	}
	st.trailer = http.Header{}
	for _, field := range f.RegularFields() {
		name := st.c.canonical(field.Name)
		st.trailer[name] = append(st.trailer[name], field.Value)
	}
	st.finishBody(io.EOF)
	st.changed.Broadcast()
	return nil
}

// finishBody ends the body after what is there. c.mu is held.
func (st *stream) finishBody(err error) {
	st.ended = true
	if st.bodyErr == nil {
		st.bodyErr = err
	}
}

// consumed tells the client, now and then, that it may send more of the body. c.mu is held.
func (st *stream) consumed(n int64) {
	if n == 0 {
		return
	}
	st.c.consumed(n)
	if st.read += n; !st.ended && st.err == nil && st.read >= int64(st.c.s.srv.HTTP2.MaxReceiveBufferPerStream)/4 {
		st.c.out.control(http2.FrameWindowUpdate, 0, st.id, binary.BigEndian.AppendUint32(nil, uint32(st.read)))
		st.room, st.read = st.room+st.read, 0
	}
}

// closeBody ends the reading of the body; the client may send as much of other bodies instead. c.mu is held.
func (st *stream) closeBody() {
	st.c.consumed(int64(len(st.body)))
	st.body = nil
	if st.bodyErr == nil || errors.Is(st.bodyErr, io.EOF) {
		st.bodyErr = http.ErrBodyReadAfterClose
	}
}

// body is the body of a request.
type body struct {
	st      *stream
	request *http.Request // nil: it has no trailers
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	st := b.st
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.expects && !st.replying && st.err == nil {
		st.c.out.field(":status", "100")
		st.c.out.header(st.id, false)
		st.c.out.flush()
	}
	st.expects = false
	for len(st.body) == 0 && st.bodyErr == nil && len(p) > 0 {
		st.wait()
	}
	n := copy(p, st.body)
	if st.body = st.body[n:]; len(st.body) == 0 {
		st.body = nil
	}
	st.consumed(int64(n))
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	if b.request != nil && errors.Is(st.bodyErr, io.EOF) {
		for name := range b.request.Trailer { // those that were announced
			b.request.Trailer[name] = st.trailer[name]
		}
	}
	return 0, st.bodyErr
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.st.c.mu.Lock()
	defer b.st.c.mu.Unlock()
	b.st.closeBody()
	return nil
}

// deadline ends something at a time. Its timer is set only while somebody waits.
type deadline struct {
	at    time.Time
	timer *time.Timer
	over  func(*stream) // called at that time, with the connection's lock
}

// set changes the time; zero: none. c.mu is held.
func (d *deadline) set(st *stream, at time.Time, over func(*stream)) {
	d.stop()
	if !at.IsZero() && time.Until(at) <= 0 {
		over(st)
		return
	}
	d.at, d.over = at, over
	st.changed.Broadcast() // who waits sets the timer
}

// arm sets the timer. c.mu is held.
func (d *deadline) arm(st *stream) {
	if d.at.IsZero() || d.timer != nil {
		return
	}
	at := d.at
	d.timer = time.AfterFunc(time.Until(at), func() {
		st.c.mu.Lock()
		defer st.c.mu.Unlock()
		if d.at.Equal(at) {
			d.at = time.Time{}
			d.over(st)
		}
	})
}

// stop forgets the time. c.mu is held.
func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = time.Time{}
}

// expire ends the response: the client has not read it in time. c.mu is held.
func (st *stream) expire() {
	if st.err == nil {
		st.reset(http2.ErrCodeInternal)
		st.err = os.ErrDeadlineExceeded
	}
}

// expireBody fails the body: it has not arrived in time. c.mu is held.
func (st *stream) expireBody() {
	if st.bodyErr == nil {
		st.bodyErr = os.ErrDeadlineExceeded
		st.changed.Broadcast()
	}
}
