package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// bodyStall is how long a client may send nothing of a body that it has begun (nginx: client_body_timeout).
	bodyStall = 60 * time.Second
	// deadlineStep is the minimum interval at which the deadline is moved.
	deadlineStep = 5 * time.Second
)

var errSlowBody = errors.New("the client sends its body too slowly")

// clientBody is the body of a request: limited in size and in how long the client may pause.
type clientBody struct {
	io.ReadCloser
	conn       *http.ResponseController
	noDeadline bool      // the client may pause for any time, as gRPC's streams do
	moved      time.Time // when the deadline was set
	slow       atomic.Bool
	ended      atomic.Bool // a read returned io.EOF or another error
	duplex     bool

	mu    sync.Mutex // guards what follows
	begun bool       // a read has begun
}

func newClientBody(w http.ResponseWriter, r *http.Request, limit int64) *clientBody {
	b := &clientBody{ReadCloser: r.Body, conn: http.NewResponseController(w), noDeadline: isGRPC(r)}
	if r.ProtoMajor == 1 {
		// Without it, an early response would end the body, and with it the request.
		b.duplex = b.conn.EnableFullDuplex() == nil
	}
	if limit > 0 {
		b.ReadCloser = http.MaxBytesReader(w, r.Body, limit)
	}
	return b
}

func isGRPC(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	if now := time.Now(); !b.noDeadline && now.Sub(b.moved) > deadlineStep {
		b.moved = now
		_ = b.conn.SetReadDeadline(now.Add(bodyStall)) // if the connection is closed, the read fails
	}
	n, err := b.ReadCloser.Read(p)
	b.ended.Store(err != nil)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.slow.Store(true)
		err = errSlowBody
	case !b.noDeadline:
		_ = b.conn.SetReadDeadline(time.Time{}) // the response may take longer
	}
	return n, err
}

// maxDrained is the maximum number of bytes of an unread body that are drained, so that the connection can serve the
// next request; net/http's number.
const maxDrained = 256 << 10

// drain reads the rest of the body after the response. With full duplex, net/http does that too late: reading the end
// of the body then starts a second reader of the connection, and the client's next request sometimes fails.
func (b *clientBody) drain() {
	if !b.duplex || b.noDeadline || b.ended.Load() || b.conn.Flush() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, b, maxDrained) // on failure net/http closes the connection
}

// attempt is the body during one attempt to send it.
type attempt struct {
	*clientBody
	pause    func() // called before a read
	progress func() // called after a read
	closed   atomic.Bool
}

// Read implements io.Reader. An abandoned attempt reads nothing, because another one may need the whole body.
func (a *attempt) Read(p []byte) (int, error) {
	a.mu.Lock()
	if a.closed.Load() {
		a.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	a.begun = true
	a.mu.Unlock()
	a.pause()
	n, err := a.clientBody.Read(p)
	a.progress()
	return n, err
}

// Close implements io.Closer; the body itself stays open for another attempt.
func (a *attempt) Close() error {
	a.closed.Store(true)
	return nil
}

// unread ends the attempt and reports whether nothing of the body was read.
func (a *attempt) unread() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed.Store(true)
	return !a.begun
}
