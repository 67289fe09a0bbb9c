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
	// maxPlain is the maximum size of the header of a plain HTTP request, in bytes.
	maxPlain = 16 << 10
	// plainTime limits a plain HTTP request, including its response.
	plainTime = 5 * time.Second
	// maxLinger is how much is read after the response, in bytes. A connection that is closed with unread data is reset,
	// and its client may lose the response.
	maxLinger = 64 << 10
)

// plainListener accepts connections for TLS. It redirects a plain HTTP request to HTTPS and closes the connection.
type plainListener struct{ net.Listener }

// Accept implements net.Listener.
func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &plainConn{Conn: c}, nil
}

// plainConn checks the first byte of a connection in the first Read of the TLS handshake, and so needs no goroutine.
type plainConn struct {
	net.Conn
	isTLS bool // the first byte does not start an HTTP method
}

// Read implements io.Reader.
func (c *plainConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.isTLS || n == 0 {
		return n, err
	}
	if p[0] < 'A' || p[0] > 'Z' {
		c.isTLS = true
		return n, err
	}
	c.redirect(p[:n])
	return 0, io.EOF
}

// redirect answers the request that starts with begin.
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
	text := "This port serves HTTPS, and this is not a valid HTTP request.\n"
	if err == nil && strings.HasPrefix(r.URL.RequestURI(), "/") && r.Method != http.MethodConnect {
		to := "https://" + cmp.Or(r.Host, c.LocalAddr().String()) + r.URL.RequestURI()
		answer.StatusCode, text = http.StatusPermanentRedirect, "This port serves HTTPS: "+to+"\n"
		answer.Header.Set("Location", to)
	}
	answer.Body, answer.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	answer.Request = r // the response to HEAD has no body
	if err := answer.Write(c.Conn); err != nil {
		return
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, maxLinger) // wait until the client has read the response and closed
	}
}
