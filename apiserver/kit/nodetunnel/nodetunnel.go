// Package nodetunnel carries connections from an API server to a node over one connection that the node opens, so that the
// server reaches a node behind NAT. The node sends an HTTP/1.1 request that upgrades to yamux; then the server opens
// streams, each of which is a connection to the kubelet's API.
package nodetunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// Path is the API path of the request.
	Path = "/monopod/node"
	// Protocol is the value of the Upgrade header.
	Protocol = "yamux"

	// openTime limits a connection to the server, with its handshakes.
	openTime = 10 * time.Second
	// keepAlive is the interval of pings; a tunnel whose peer does not answer within pingTime ends.
	keepAlive = 10 * time.Second
	pingTime  = 10 * time.Second
	// maxPings is the maximum number of pings from a node within keepAlive. yamux starts a goroutine for each of them, so
	// that a node that sends pings and does not read the answers would fill the memory of the server.
	maxPings = 60
)

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout = keepAlive, pingTime
	c.LogOutput = io.Discard
	return c
}

// Open opens a tunnel to a server, given as a URL without a path. The listener accepts the server's connections.
func Open(ctx context.Context, server string, config *tls.Config) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	session, err := upgrade(conn, u)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return session, conn.SetDeadline(time.Time{})
}

func upgrade(conn net.Conn, u *url.URL) (*yamux.Session, error) {
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: Path}, Host: u.Host,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {Protocol}}}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // a part of it is enough
		return nil, fmt.Errorf("%s answered %s: %s", u.Host, resp.Status, strings.TrimSpace(string(text)))
	}
	return yamux.Server(buffered{conn, from}, config())
}

// Accept upgrades a node's request. The session opens connections to the node until either side closes it, or the node
// sends more than maxPings. For each connection the server keeps at most 256 KiB that nobody has read (yamux's window).
func Accept(w http.ResponseWriter, r *http.Request) (*yamux.Session, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Protocol)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return yamux.Client(&ofNode{buffered: buffered{conn, rw.Reader}}, config())
}

// State is what a server knows about the tunnel of a node since it started.
type State struct {
	Own   bool      // the node runs in the process of the server, and needs no tunnel
	Open  bool      // it is open
	Since time.Time // when it was opened, or ended; zero: the node has opened none
	From  string    // address from which the node opened it
	End   string    // why it ended, as a phrase
	Left  bool      // the machine has closed it
}

// End returns why a session that has ended did, as a phrase. left reports whether the machine has closed it.
func End(s *yamux.Session) (why string, left bool) {
	_, err := s.AcceptStream() // the session keeps its first error
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "the machine closed it", true
	case errors.Is(err, yamux.ErrKeepAliveTimeout), errors.Is(err, yamux.ErrConnectionWriteTimeout):
		return "the machine did not answer", false
	case errors.Is(err, yamux.ErrSessionShutdown):
		return "this server closed it", false
	case err == nil:
		return "the machine broke the protocol", false
	}
	return err.Error(), false
}

// buffered is a connection of which some data has been read into a buffer.
type buffered struct {
	net.Conn
	from *bufio.Reader
}

// Read implements io.Reader.
func (b buffered) Read(p []byte) (int, error) { return b.from.Read(p) }

// ofNode is a connection from a node. It fails after too many pings.
type ofNode struct {
	buffered
	header [12]byte  // of a frame: version, type, two bytes of flags, four of the stream's ID, four of a length
	have   int       // bytes of header that have been read
	body   uint32    // bytes of the frame's body that have not been read
	pings  int       // since the time
	since  time.Time // zero: before the first ping
}

// The types of frames (spec.md of yamux).
const (
	typeData = 0
	typePing = 2
)

var errPings = errors.New("the machine sent too many pings")

// Read implements io.Reader.
func (c *ofNode) Read(p []byte) (int, error) {
	n, err := c.buffered.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if c.body > 0 {
			skip := min(c.body, uint32(len(rest)))
			c.body, rest = c.body-skip, rest[skip:]
			continue
		}
		more := copy(c.header[c.have:], rest)
		c.have, rest = c.have+more, rest[more:]
		if c.have < len(c.header) {
			break
		}
		c.have = 0
		switch c.header[1] {
		case typeData:
			c.body = binary.BigEndian.Uint32(c.header[8:])
		case typePing:
			if now := time.Now(); now.Sub(c.since) > keepAlive {
				c.pings, c.since = 0, now
			}
			if c.pings++; c.pings > maxPings {
				return 0, errPings
			}
		}
	}
	return n, err
}
