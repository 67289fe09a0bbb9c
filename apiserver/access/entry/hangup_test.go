package entry

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"monopod/testdata/harness"
)

// hungUp detects a closed connection, also with TLS, and if unread data is left.
func TestHungUp(t *testing.T) {
	t.Parallel()
	seen := make(chan net.Conn, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.Context().Value(connKey{}).(net.Conn)
		<-r.Context().Done()
	}))
	srv.Listener = plainListener{srv.Listener}
	srv.Config.ConnContext = withConn
	srv.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	srv.StartTLS()
	t.Cleanup(srv.Close)
	client, err := tls.Dial("tcp", srv.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: box\r\n\r\nmore"); err != nil {
		t.Fatal(err)
	}
	conn := socket(<-seen)
	if conn == nil {
		t.Fatal("a connection of TLS has no socket")
	}
	if hungUp(conn) {
		t.Error("an open connection counts as hung up")
	}
	client.Close()
	if !harness.Eventually(5*time.Second, func() bool { return hungUp(conn) }) {
		t.Error("a closed connection does not count as hung up")
	}
	srv.CloseClientConnections()
}

// sockets is a connection in memory with a real socket to check.
type sockets struct {
	net.Conn
	look net.Conn
}

func (c sockets) NetConn() net.Conn { return c.look }

// connections is a listener whose connections come from a channel.
type connections chan net.Conn

func (c connections) Accept() (net.Conn, error) {
	if conn, ok := <-c; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (c connections) Close() error   { return nil }
func (c connections) Addr() net.Addr { return &net.TCPAddr{} }

// A request ends when its client has left, even if the client had sent more than the request; other requests and
// tunnels continue.
func TestEndsWithClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		request string
		leaves  bool
		ends    bool
	}{
		"it left":          {"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: box\r\n\r\nmore", true, true},
		"it stays":         {"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: box\r\n\r\nmore", false, false},
		"an upgrade":       {"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: box\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nmore", true, true},
		"a proxied tunnel": {"GET /api/v1/namespaces/a/pods/b/proxy/ HTTP/1.1\r\nHost: box\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nmore", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far := socketPair(t)
			if c.leaves {
				far.Close()
				if !harness.Eventually(5*time.Second, func() bool { return hungUp(socket(near)) }) {
					t.Fatal("the socket does not show its end")
				}
			}
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				defer client.Close()
				ended := make(chan time.Duration, 1)
				began := time.Now()
				srv := newServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					select {
					case <-r.Context().Done():
					case <-time.After(time.Hour):
					}
					ended <- time.Since(began)
				}), zap.NewNop())
				conns := make(connections, 1)
				conns <- sockets{server, near}
				go srv.Serve(conns)
				go io.WriteString(client, c.request)
				go io.Copy(io.Discard, bufio.NewReader(client))
				after := <-ended
				close(conns)
				srv.Close()
				if c.ends && after > 2*hangupTime || !c.ends && after < time.Hour {
					t.Errorf("it ended after %v", after)
				}
			})
		})
	}
}

// socketPair returns the two ends of a connection over loopback.
func socketPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}
