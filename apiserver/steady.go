package apiserver

import (
	"net/http"
	"time"
)

const (
	// stallTime is how long a client may take nothing of what it asked for. After
	// that it counts as gone, so that its watch or list is not kept for it.
	stallTime = time.Minute
	// steadyChunk is how much is written under one stallTime, in bytes.
	steadyChunk = 64 << 10
)

// steady cuts off clients that stop reading. How long an answer takes as a
// whole is not bounded: links may be slow.
func steady(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &steadyWriter{w, http.NewResponseController(w)}
		s.lift()        // what the connection's last request left
		defer s.bound() // the end of the answer goes out after the handler
		next.ServeHTTP(s, r)
	})
}

// steadyWriter writes in chunks, each with a deadline of its own. Between
// writes there is none.
type steadyWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Unwrap lets http.ResponseController find the rest.
func (s *steadyWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write implements io.Writer.
func (s *steadyWriter) Write(p []byte) (int, error) {
	total := 0
	for {
		chunk := p[:min(len(p), steadyChunk)]
		n, err := s.write(chunk)
		total += n
		if p = p[len(chunk):]; err != nil || len(p) == 0 {
			return total, err
		}
	}
}

func (s *steadyWriter) write(chunk []byte) (int, error) {
	s.bound()
	defer s.lift()
	return s.ResponseWriter.Write(chunk)
}

// FlushError sends what was written, as http.ResponseController asks for it.
func (s *steadyWriter) FlushError() error {
	s.bound()
	defer s.lift()
	return s.control.Flush()
}

// bound sets a deadline. Writers that know none have no clients that stall.
func (s *steadyWriter) bound() { s.control.SetWriteDeadline(time.Now().Add(stallTime)) }

func (s *steadyWriter) lift() { s.control.SetWriteDeadline(time.Time{}) }
