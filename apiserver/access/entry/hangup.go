package entry

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monopod/apiserver/request"
	"monopod/apiserver/request/outlive"
)

// hangupTime is the interval at which a running request is checked for a closed connection.
const hangupTime = 30 * time.Second

type connKey struct{}

// withConn stores the connection for endsWithClient.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// endsWithClient ends an HTTP/1.1 request at most hangupTime after its client has closed the connection.
// net/http detects that only until the first byte after the request: a client that had sent more would keep a
// watch open.
func endsWithClient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		raw := socket(conn)
		if raw == nil || r.ProtoMajor != 1 || request.IsUpgrade(r) && request.IsProxied(r) { // a tunnel may be closed on one side
			h.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		var check *time.Timer
		set := make(chan struct{}) // the check runs
		check = time.AfterFunc(hangupTime, func() {
			<-set
			if hungUp(raw) {
				cancel()
			} else if ctx.Err() == nil {
				check.Reset(hangupTime)
			}
		})
		close(set)
		defer outlive.Finally(r, func() {
			check.Stop()
			cancel()
		})
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// socket returns the socket below c; nil if there is none.
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

// hungUp reports whether the other side has closed the connection, or the connection is closed on this side.
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
