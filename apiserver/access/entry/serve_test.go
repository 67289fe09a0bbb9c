package entry

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

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

// inMemory serves h to one HTTP/2 connection without TLS.
func inMemory(t *testing.T, h http.HandlerFunc) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	srv := newServer(h, zap.NewNop())
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetUnencryptedHTTP2(true)
	conns := make(connections, 1)
	conns <- near
	go srv.Serve(conns)
	t.Cleanup(func() {
		close(conns)
		srv.Close()
		far.Close()
	})
	return far
}

// A watch over HTTP/2 continues although the server writes nothing to it for hours.
func TestIdleWatchContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := inMemory(t, func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				io.WriteString(w, "x")
				http.NewResponseController(w).Flush()
				time.Sleep(5 * time.Hour)
			}
		})
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
			error) {
			return conn, nil
		}, Protocols: new(http.Protocols)}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Get("http://box/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "xxx" {
			t.Errorf("%q %v", text, err)
		}
	})
}

// A request of HTTP/2 ends when its client neither reads nor answers pings.
func TestDeadClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		conn := inMemory(t, func(_ http.ResponseWriter, r *http.Request) {
			from := time.Now()
			<-r.Context().Done()
			ended <- time.Since(from)
		})
		// A preface, empty SETTINGS, and a GET of / with HPACK's indexed fields.
		go io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"+
			"\x00\x00\x08\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x03box")
		if took := <-ended; took > pingTime+answerTime+time.Second {
			t.Errorf("the request ended after %v", took)
		}
	})
}
