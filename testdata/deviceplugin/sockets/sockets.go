// Package sockets opens the Unix sockets of device plugins and DRA drivers for tests, on the host or in memory.
package sockets

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// Replace listens at path with listen, or on the host if listen is nil. It first removes the socket of an earlier
// process.
func Replace(path string, listen func(path string) (net.Listener, error)) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if listen == nil {
		return net.Listen("unix", path)
	}
	return listen(path)
}

// Memory is a set of Unix sockets in memory, for synctest bubbles. The zero value is empty.
type Memory struct {
	paths sync.Map // path → *bufconn.Listener
}

// Listen creates the socket at path, and replaces an existing one.
func (s *Memory) Listen(path string) (net.Listener, error) {
	l := bufconn.Listen(1 << 16)
	s.paths.Store(path, l)
	return l, nil
}

// Dial connects to the listener at path.
func (s *Memory) Dial(ctx context.Context, path string) (net.Conn, error) {
	l, ok := s.paths.Load(path)
	if !ok {
		return nil, errors.New("connection refused: no listener")
	}
	return l.(*bufconn.Listener).DialContext(ctx)
}
