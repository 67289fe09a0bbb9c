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
	// stallStep is how late a deadline may be moved.
	stallStep = 5 * time.Second
)

var errSlowBody = errors.New("the client sends its body too slowly")

// clientBody is the body of a request: limited in size and in how long the client may pause.
type clientBody struct {
	io.ReadCloser
	conn   *http.ResponseController
	stalls bool      // the client may pause as long as it likes: gRPC's streams do
	moved  time.Time // when the deadline was set
	slow   atomic.Bool
	ended  atomic.Bool // or it has failed
	duplex bool

	mu    sync.Mutex // guards what follows
	begun bool       // a part has been read, or is being read
}

func newClientBody(w http.ResponseWriter, r *http.Request, limit int64) *clientBody {
	b := &clientBody{ReadCloser: r.Body, conn: http.NewResponseController(w), stalls: isGRPC(r)}
	if r.ProtoMajor == 1 {
		// Otherwise the beginning of an early response ends the body, and with it the request.
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
	if now := time.Now(); !b.stalls && now.Sub(b.moved) > stallStep {
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
	case !b.stalls:
		_ = b.conn.SetReadDeadline(time.Time{}) // the response may take longer
	}
	return n, err
}

// maxDrained is how much of a body that no endpoint has read is drained, in bytes, so that the connection can serve the
// next request; net/http's number.
const maxDrained = 256 << 10

// drain reads what is left of the body after the response. With full duplex net/http does that too late: reading the
// end of the body then starts a second reader of the connection, and the client's next request fails now and then.
func (b *clientBody) drain() {
	if !b.duplex || b.stalls || b.ended.Load() || b.conn.Flush() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, b, maxDrained) // on failure net/http closes the connection
}

// attempt is the body during one attempt to send it.
type attempt struct {
	*clientBody
	pause    func() // is called before a part is read
	progress func() // is called after that
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

// unread ends the attempt and reports whether nothing was read of the body.
func (a *attempt) unread() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed.Store(true)
	return !a.begun
}
