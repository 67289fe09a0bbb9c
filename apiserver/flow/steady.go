package flow

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"monopod/apiserver/codec"
	"monopod/apiserver/request"
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
		defer func() { sw.control.SetWriteDeadline(time.Now().Add(StallTime)) }()
		if request.HasBody(r) && !request.IsUnbounded(r) {
			body := &steadyBody{ReadCloser: r.Body, control: sw.control, limit: g.limits.RequestTimeout}
			r.Body = body
			defer body.stop()
		}
		next.ServeHTTP(sw, r)
	})
}

// steadyWriter writes in chunks, each with its own time limit. That is a timer, and not a write deadline, which on an
// HTTP/2 stream also ends a response to which nothing is written.
type steadyWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap implements http.ResponseController's interface.
func (s *steadyWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write implements io.Writer.
func (s *steadyWriter) Write(p []byte) (int, error) {
	limit := s.limit()
	defer limit.Stop()
	total := 0
	for {
		chunk := p[:min(len(p), steadyChunk)]
		n, err := s.ResponseWriter.Write(chunk)
		total += n
		if p = p[len(chunk):]; err != nil || len(p) == 0 {
			return total, err
		}
		limit.Reset(StallTime)
	}
}

// FlushError implements http.ResponseController's interface.
func (s *steadyWriter) FlushError() error {
	defer s.limit().Stop()
	return s.control.Flush()
}

// limit ends a write that is not over within StallTime.
func (s *steadyWriter) limit() *time.Timer {
	return time.AfterFunc(StallTime, func() { s.control.SetWriteDeadline(past()) })
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

// LimitBody limits all bodies except those that are proxied, and archives of images. Requests for streams have no body,
// unless they only pretend to open one.
func (g *Gate) LimitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if request.HasBody(r) && !request.IsUnbounded(r) {
			r.Body = http.MaxBytesReader(w, r.Body, codec.MaxBody)
		}
		next.ServeHTTP(w, r)
	})
}
