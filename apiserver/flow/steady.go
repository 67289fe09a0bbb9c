package flow

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"monopod/apiserver/codec"
	"monopod/apiserver/request"
	"monopod/apiserver/request/outlive"
)

const (
	// StallTime is how long a client may not read from a response. After that it is disconnected.
	StallTime = time.Minute
	// steadyChunk is how much is written within one StallTime, in bytes.
	steadyChunk = 64 << 10
)

// past is a deadline that ends waiting reads and writes.
func past() time.Time { return time.Unix(1, 0) }

// Steady disconnects clients that stop reading, and those whose body takes longer than a request may. It does
// not limit the duration of a response, because links may be slow.
func (g *Gate) Steady(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &steadyWriter{ResponseWriter: w, control: http.NewResponseController(w)}
		if r.ProtoMajor < 2 {
			sw.control.SetWriteDeadline(time.Time{}) // remove the deadline of the connection's last request
		}
		// The end of the response is written after the handler returns. Writers without deadlines have no
		// clients that stall.
		defer outlive.Finally(r, sw.end)
		if request.HasBody(r) && !request.IsUnbounded(r) {
			body := &steadyBody{ReadCloser: r.Body, control: sw.control, limit: g.limits.RequestTimeout}
			r.Body = body
			defer body.stop()
		}
		next.ServeHTTP(sw, r)
	})
}

// steadyWriter writes in chunks, each with its own deadline. It uses a timer of this process, because a deadline
// of an HTTP/2 stream costs a message to the connection. The timer is not set again for each chunk: when it fires, it looks
// since when the current one waits.
type steadyWriter struct {
	http.ResponseWriter
	control *http.ResponseController

	mu    sync.Mutex // guards what follows
	since time.Time  // when the current chunk began; zero if none is written
	timer *time.Timer
	armed bool
}

// Unwrap implements http.ResponseController's interface.
func (s *steadyWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write implements io.Writer.
func (s *steadyWriter) Write(p []byte) (int, error) {
	defer s.stop()
	total := 0
	for {
		s.start()
		chunk := p[:min(len(p), steadyChunk)]
		n, err := s.ResponseWriter.Write(chunk)
		total += n
		if p = p[len(chunk):]; err != nil || len(p) == 0 {
			return total, err
		}
	}
}

// FlushError implements http.ResponseController's interface.
func (s *steadyWriter) FlushError() error {
	s.start()
	defer s.stop()
	return s.control.Flush()
}

func (s *steadyWriter) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now()
	switch {
	case s.timer == nil:
		s.timer = time.AfterFunc(StallTime, s.check)
	case !s.armed:
		s.timer.Reset(StallTime)
	}
	s.armed = true
}

func (s *steadyWriter) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// check ends a write that has waited for StallTime.
func (s *steadyWriter) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() { // a quiet watch keeps no timer
		s.armed, s.timer = false, nil
		return
	}
	if left := StallTime - time.Since(s.since); left > 0 {
		s.timer.Reset(left)
		return
	}
	s.control.SetWriteDeadline(past())
}

// end is called when the response is written but for its end.
func (s *steadyWriter) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.since = time.Time{}
	s.control.SetWriteDeadline(time.Now().Add(StallTime))
}

// steadyBody fails a body that has not arrived in time, counted from the first read.
type steadyBody struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration
	timer   *time.Timer
}

// Read implements io.Reader.
func (b *steadyBody) Read(p []byte) (int, error) {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.limit, func() { b.control.SetReadDeadline(past()) })
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = codec.ErrTimeout()
	case err != nil:
		b.stop()
	}
	return n, err
}

func (b *steadyBody) stop() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// LimitBody limits all bodies except those that are proxied, and archives of images. Requests for streams have no body, unless they only
// pretend to open one.
func (g *Gate) LimitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if request.HasBody(r) && !request.IsUnbounded(r) {
			r.Body = http.MaxBytesReader(w, r.Body, codec.MaxBody)
		}
		next.ServeHTTP(w, r)
	})
}
