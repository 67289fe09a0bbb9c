package entry

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod/apiserver/request"
)

// hangupTime is how often a request under way is checked for a client that has left.
const hangupTime = 30 * time.Second

type connKey struct{}

// withConn lets endsWithClient find the connection of a request.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// endsWithClient ends a request of HTTP/1.1, at most hangupTime after its client has
// closed the connection. net/http sees that by itself only until the first byte after
// the request; a client that has sent more would keep a watch open after its end.
func endsWithClient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		raw := socket(conn)
		if raw == nil || r.ProtoMajor != 1 || request.IsUpgrade(r) && request.IsProxied(r) { // a tunnel may be closed on one side
			h.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		var check *time.Timer
		set := make(chan struct{}) // check is
		check = time.AfterFunc(hangupTime, func() {
			<-set
			if hungUp(raw) {
				cancel()
			} else if ctx.Err() == nil {
				check.Reset(hangupTime)
			}
		})
		close(set)
		defer check.Stop()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// socket is the socket below c, nil if there is none.
func socket(c net.Conn) syscall.RawConn {
	for {
		switch in := c.(type) {
		case interface{ NetConn() net.Conn }: // TLS
			c = in.NetConn()
		case *plainConn:
			c = in.Conn
		case syscall.Conn:
			raw, err := in.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		default:
			return nil
		}
	}
}

// hungUp tells whether the other side has closed the connection. A closed one of ours
// counts too.
func hungUp(raw syscall.RawConn) bool {
	var events int16
	err := raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(fds, 0); err == nil && n > 0 {
			events = fds[0].Revents
		}
	})
	return err != nil || events&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
