// Package connect connects clients to containers, pods, Services and nodes. It proxies requests (proxy.go, kubelet.go)
// and carries the streams of exec, attach, port-forward and logs, also over WebSockets with any of Kubernetes'
// subprotocols.
//
// The runtime serves its streams over SPDY. For a WebSocket, connect opens the SPDY streams and translates: each
// message begins with the number of its channel. A client that tunnels SPDY through its WebSocket gets the bytes
// unchanged.
//
// A panic in one of a stream's goroutines ends the stream and is raised again in the goroutine of the request,
// where the server recovers and counts it.
//
// WebSockets are in socket.go: it chooses the subprotocol and numbers messages by channel.
package connect

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	// dialTime limits how long the runtime, or a kubelet, may take to open a stream.
	dialTime = 30 * time.Second
	// handshakeTime limits a connection to another machine, and its TLS handshake.
	handshakeTime = 10 * time.Second
	// maxHeader is the maximum size of the response that opens a stream, in bytes.
	maxHeader = 1 << 20
)

// dial opens a SPDY connection with the given protocol to a target. It closes when ctx ends.
func dial(ctx context.Context, to target, protocol string) (net.Conn, error) {
	conn, err := dialHost(ctx, to)
	if err != nil {
		return nil, to.unreachable(err)
	}
	if err := conn.SetDeadline(time.Now().Add(dialTime)); err != nil {
		conn.Close()
		return nil, err
	}
	req := &http.Request{Method: http.MethodPost, URL: to.URL, Host: to.Host, Header: http.Header{
		httpstream.HeaderConnection:      {httpstream.HeaderUpgrade},
		httpstream.HeaderUpgrade:         {spdy.HeaderSpdy31},
		httpstream.HeaderProtocolVersion: {protocol},
	}}
	header := &io.LimitedReader{R: conn, N: maxHeader}
	from := bufio.NewReader(header)
	err = req.Write(conn)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(from, req) //nolint:bodyclose // its body is the connection, which is returned or closed
	}
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // a part of it is enough
		err = fmt.Errorf("%s answered %s: %s", to.Host, resp.Status, strings.TrimSpace(string(text)))
	}
	if err == nil {
		header.N = math.MaxInt64
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	b := &buffered{Conn: conn, from: from}
	context.AfterFunc(ctx, func() { b.Close() })
	return b, nil
}

func dialHost(ctx context.Context, to target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return to.dial(ctx)
}

// buffered is a connection of which some data has been read into a buffer. Close may be called more than once.
type buffered struct {
	net.Conn
	from  *bufio.Reader
	close sync.Once
}

// Read implements io.Reader.
func (b *buffered) Read(p []byte) (int, error) { return b.from.Read(p) }

// Close implements io.Closer.
func (b *buffered) Close() (err error) {
	b.close.Do(func() { err = b.Conn.Close() })
	return err
}

// open opens a stream of a SPDY connection; more are additional header names and values.
func open(conn httpstream.Connection, kind string, more ...string) (httpstream.Stream, error) {
	header := http.Header{}
	header.Set("streamType", kind)
	for i := 0; i < len(more); i += 2 {
		header.Set(more[i], more[i+1])
	}
	stream, err := conn.CreateStream(header)
	if err != nil {
		return nil, fmt.Errorf("failed to open the runtime's %s stream: %w", kind, err)
	}
	return stream, nil
}
