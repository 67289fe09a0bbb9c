package fake

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming"

	"monopod/apiserver/kit/guard"
)

// server is the loopback server of the streams. The first request for a URL starts it.
type server struct {
	mu      sync.Mutex // guards all but tasks
	closed  bool
	streams streaming.Server // nil: not started
	http    *http.Server
	conns   map[net.Conn]struct{} // connections with a request

	tasks sync.WaitGroup // the accept loop and every request
}

// start returns the server; the first call starts it. It fails after close.
func (s *server) start(runtime streaming.Runtime) (streaming.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, http.ErrServerClosed
	}
	if s.streams != nil {
		return s.streams, nil
	}
	// Listening on a loopback address does not wait for anything.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/"}
	streams, err := streaming.NewServer(config, runtime)
	if err != nil {
		l.Close()
		return nil, err
	}
	s.streams, s.conns = streams, map[net.Conn]struct{}{}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ConnContext: withConn, ReadHeaderTimeout: 10 * time.Second}
	(*guard.Guard)(nil).Go(&s.tasks, "streams", func() { _ = s.http.Serve(l) }) // it ends with the listener
	return streams, nil
}

// serve records the connection during the request, so that close can close it: http.Server does not close connections
// that a stream has hijacked.
func (s *server) serve(w http.ResponseWriter, req *http.Request) {
	conn, _ := req.Context().Value(connKey{}).(net.Conn)
	if !s.begin(conn) {
		return
	}
	defer s.end(conn)
	s.streams.ServeHTTP(w, req)
}

func (s *server) begin(conn net.Conn) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.tasks.Add(1)
	s.conns[conn] = struct{}{}
	return true
}

func (s *server) end(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	s.tasks.Done()
}

type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// close ends the server and every stream, and waits for them.
func (s *server) close() error {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	running := s.http
	s.mu.Unlock()
	if running == nil {
		return nil
	}
	err := running.Close()
	s.tasks.Wait()
	return err
}
