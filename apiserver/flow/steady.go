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
	// StallTime is how long a client may take nothing of what it asked for. After
	// that it counts as gone, so that its watch or list is not kept for it.
	StallTime = time.Minute
	// steadyChunk is how much is written under one stallTime, in bytes.
	steadyChunk = 64 << 10
)

// past is a deadline that ends what waits.
func past() time.Time { return time.Unix(1, 0) }

// Steady cuts off clients that stop reading, and those whose body takes longer
// than a request may. How long an answer takes as a whole is not bounded: links
// may be slow.
func (g *Gate) Steady(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &steadyWriter{ResponseWriter: w, control: http.NewResponseController(w)}
		if r.ProtoMajor < 2 {
			sw.control.SetWriteDeadline(time.Time{}) // what the connection's last request left
		}
		// The end of the answer goes out after the handler. Writers that know no
		// deadline have no clients that stall.
		defer func() { sw.control.SetWriteDeadline(time.Now().Add(StallTime)) }()
		if request.HasBody(r) && !request.IsProxied(r) {
			body := &steadyBody{ReadCloser: r.Body, control: sw.control, limit: g.limits.RequestTimeout}
			r.Body = body
			defer body.stop()
		}
		next.ServeHTTP(sw, r)
	})
}

// steadyWriter writes in chunks, each in a time of its own. Its timer lives in
// this process: deadlines of HTTP/2 streams cost a message to the connection.
type steadyWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timer   *time.Timer
}

// Unwrap lets http.ResponseController find the rest.
func (s *steadyWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write implements io.Writer.
func (s *steadyWriter) Write(p []byte) (int, error) {
	s.start()
	defer s.timer.Stop()
	total := 0
	for {
		chunk := p[:min(len(p), steadyChunk)]
		n, err := s.ResponseWriter.Write(chunk)
		total += n
		if p = p[len(chunk):]; err != nil || len(p) == 0 {
			return total, err
		}
		s.timer.Reset(StallTime)
	}
}

// FlushError sends what was written, as http.ResponseController asks for it.
func (s *steadyWriter) FlushError() error {
	s.start()
	defer s.timer.Stop()
	return s.control.Flush()
}

func (s *steadyWriter) start() {
	if s.timer == nil {
		s.timer = time.AfterFunc(StallTime, func() { s.control.SetWriteDeadline(past()) })
		return
	}
	s.timer.Reset(StallTime)
}

// steadyBody ends a body that is not there in time, counted from the first read.
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

// LimitBody bounds all bodies but those that go on to somebody else. What asks for
// a stream has none, unless it only says that it does.
func (g *Gate) LimitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if request.HasBody(r) && !request.IsProxied(r) {
			r.Body = http.MaxBytesReader(w, r.Body, codec.MaxBody)
		}
		next.ServeHTTP(w, r)
	})
}
