package plugin

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// Sockets are Unix sockets in memory, for synctest bubbles. The zero value has none.
type Sockets struct {
	paths sync.Map // path → *bufconn.Listener
}

// Listen creates the socket at path, and replaces an existing one.
func (s *Sockets) Listen(path string) (net.Listener, error) {
	l := bufconn.Listen(1 << 16)
	s.paths.Store(path, l)
	return l, nil
}

// Dial connects to the listener at path.
func (s *Sockets) Dial(ctx context.Context, path string) (net.Conn, error) {
	l, ok := s.paths.Load(path)
	if !ok {
		return nil, errors.New("connection refused: no listener")
	}
	return l.(*bufconn.Listener).DialContext(ctx)
}
