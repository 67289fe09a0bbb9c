package entry

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	// maxPlain bounds the header of a request in plain HTTP, in bytes.
	maxPlain = 16 << 10
	// plainTime is how long a client in plain HTTP may take, its answer included.
	plainTime = 5 * time.Second
	// maxLinger bounds what is read after the answer, in bytes: a connection closed
	// with unread data is reset, and its client may lose the answer.
	maxLinger = 64 << 10
)

// plainListener accepts connections for TLS. One on which the client begins in
// plain HTTP is answered with a redirect to HTTPS and closed.
type plainListener struct{ net.Listener }

// Accept implements net.Listener.
func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &plainConn{Conn: c}, nil
}

// plainConn looks at the first byte that comes, within the handshake's first Read:
// TLS costs it nothing and plain HTTP no goroutine.
type plainConn struct {
	net.Conn
	known bool // the first byte was no method of HTTP
}

// Read implements io.Reader.
func (c *plainConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.known || n == 0 {
		return n, err
	}
	if p[0] < 'A' || p[0] > 'Z' {
		c.known = true
		return n, err
	}
	c.redirect(p[:n])
	return 0, io.EOF
}

// redirect answers the request that begins with begin.
func (c *plainConn) redirect(begin []byte) {
	if c.SetDeadline(time.Now().Add(plainTime)) != nil {
		return
	}
	in := io.MultiReader(bytes.NewReader(bytes.Clone(begin)), c.Conn)
	r, err := http.ReadRequest(bufio.NewReader(io.LimitReader(in, maxPlain)))
	answer := http.Response{
		StatusCode: http.StatusBadRequest, ProtoMajor: 1, ProtoMinor: 1, Close: true,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}},
	}
	text := "This port speaks HTTPS, and this is no request of HTTP.\n"
	if err == nil && strings.HasPrefix(r.URL.RequestURI(), "/") && r.Method != http.MethodConnect {
		to := "https://" + cmp.Or(r.Host, c.LocalAddr().String()) + r.URL.RequestURI()
		answer.StatusCode, text = http.StatusPermanentRedirect, "This port speaks HTTPS: "+to+"\n"
		answer.Header.Set("Location", to)
	}
	answer.Body, answer.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	answer.Request = r // a HEAD has no body in its answer
	if err := answer.Write(c.Conn); err != nil {
		return
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, maxLinger) // until the client has read the answer and left
	}
}
