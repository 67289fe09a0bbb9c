package h2

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// bufferSize is how much of a response is kept until it is sent, in bytes: a response that is not larger is sent with its length.
const bufferSize = 4 << 10

var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, bufferSize)) }}

// response implements http.ResponseWriter, and what http.ResponseController looks for.
type response struct {
	st     *stream
	method string
	header http.Header
	frozen http.Header // a copy of header, since WriteHeader
	status int         // 0: not known yet
	length int64       // that the handler has set; -1: none
	wrote  int64
	begun  bool               // the header is sent
	ended  bool               // nothing follows
	buf    *[]byte            // is not sent yet; nil: nothing
	step   func() (over bool) // see Outlive; nil: the response ends with the handler
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if w.status != 0 {
		return
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		c := w.st.c
		c.mu.Lock()
		defer c.mu.Unlock()
		c.out.field(":status", strconv.Itoa(status))
		w.fields(w.header)
		c.out.header(w.st.id, false)
		c.out.flush()
		return
	}
	w.status, w.length, w.frozen = status, -1, w.header.Clone()
	if text := w.frozen.Get("Content-Length"); text != "" {
		if n, err := strconv.ParseUint(text, 10, 63); err == nil {
			w.length = int64(n)
		} else {
			delete(w.frozen, "Content-Length")
		}
	}
}

// Write implements io.Writer.
func (w *response) Write(p []byte) (int, error) { return write(w, p) }

// WriteString implements io.StringWriter.
func (w *response) WriteString(s string) (int, error) { return write(w, s) }

func write[T []byte | string](w *response, p T) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !allowsBody(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if w.length >= 0 && w.wrote+int64(len(p)) > w.length {
		return 0, http.ErrContentLength
	}
	w.wrote += int64(len(p))
	if w.buf == nil {
		w.buf = buffers.Get().(*[]byte)
	}
	if len(*w.buf)+len(p) <= bufferSize {
		*w.buf = append(*w.buf, p...)
		return len(p), nil
	}
	c := w.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := w.send([]byte(p)); err != nil {
		return 0, err
	}
	c.out.flush()
	return len(p), nil
}

// FlushError implements http.ResponseController's interface.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	c := w.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	err := w.send(nil)
	w.st.reserve(0)
	c.out.flush()
	return err
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// SetReadDeadline implements http.ResponseController's interface.
func (w *response) SetReadDeadline(at time.Time) error {
	st := w.st
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	st.bodyDeadline.set(st, at, (*stream).expireBody)
	return nil
}

// SetWriteDeadline implements http.ResponseController's interface.
func (w *response) SetWriteDeadline(at time.Time) error {
	st := w.st
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	st.deadline.set(st, at, (*stream).expire)
	return nil
}

// EnableFullDuplex implements http.ResponseController's interface.
func (w *response) EnableFullDuplex() error { return nil }

// Outlive implements outlive.Writer.
func (w *response) Outlive(step func() (over bool), gone func()) (resume func()) {
	st := w.st
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if w.step = step; st.err != nil {
		st.c.s.guard.Spawn("request", gone)
	} else {
		st.later.gone = gone
	}
	if w.begun { // and trailers do not follow a watch
		w.header, w.frozen = nil, nil
	}
	return func() { st.run(w) }
}

// Reserve implements outlive.Writer.
func (w *response) Reserve(n int) bool {
	st := w.st
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	return st.err != nil || st.reserve(int64(n)+bufferSize)
}

// send sends the header, if it is not sent, what is kept, and p. c.mu is held.
func (w *response) send(p []byte) error {
	st := w.st
	if st.err != nil {
		return st.err
	}
	w.begin(p, w.method == http.MethodHead)
	for _, part := range [][]byte{w.kept(), p} {
		if len(part) > 0 && w.method != http.MethodHead {
			if err := st.write(part, false); err != nil {
				return err
			}
		}
	}
	w.release()
	return nil
}

// end sends the rest of the response. c.mu is held.
func (w *response) end() {
	st := w.st
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	rest, trailers := w.kept(), w.trailers()
	if w.method == http.MethodHead {
		rest = nil
	}
	if !w.begun {
		if w.length < 0 && allowsBody(w.status) && (w.method != http.MethodHead || w.wrote > 0) {
			w.frozen = with(w.frozen, "Content-Length", strconv.FormatInt(w.wrote, 10))
		}
		w.begin(nil, len(rest) == 0 && trailers == nil)
	}
	if !w.ended && (len(rest) > 0 || trailers == nil) {
		_ = st.write(rest, trailers == nil) // fails if the client has left
	}
	if trailers != nil && !w.ended && st.err == nil {
		w.fields(trailers)
		st.c.out.header(st.id, true)
	}
}

// begin appends the header if it is not sent; end is set if nothing follows. c.mu is held.
func (w *response) begin(next []byte, end bool) {
	if w.begun {
		return
	}
	w.begun, w.ended, w.st.replying = true, end, true
	c := w.st.c
	c.out.field(":status", strconv.Itoa(w.status))
	header := w.frozen
	if _, ok := header["Content-Type"]; !ok && header.Get("Content-Encoding") == "" && allowsBody(w.status) {
		if text := w.kept(); len(text) > 0 || len(next) > 0 {
			if len(text) == 0 {
				text = next
			}
			c.out.field("content-type", http.DetectContentType(text))
		}
	}
	if _, ok := header["Date"]; !ok {
		c.out.field("date", date())
	}
	if strings.EqualFold(header.Get("Connection"), "close") {
		defer c.goAway(0)
	}
	w.fields(header)
	c.out.header(w.st.id, end)
}

// fields adds the headers that HTTP/2 allows to the block. c.mu is held.
func (w *response) fields(header http.Header) {
	for name, values := range header {
		lower, ok := lowerName(name)
		if !ok {
			continue
		}
		for _, value := range values {
			if httpguts.ValidHeaderFieldValue(value) {
				w.st.c.out.field(lower, value)
			}
		}
	}
}

// trailers returns what follows the body: the headers that "Trailer" has announced, and those with http.TrailerPrefix.
func (w *response) trailers() http.Header {
	var all http.Header
	add := func(name string, values []string) {
		if len(values) > 0 {
			if all == nil {
				all = http.Header{}
			}
			all[http.CanonicalHeaderKey(name)] = values
		}
	}
	for _, value := range w.frozen["Trailer"] {
		for name := range strings.SplitSeq(value, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			add(name, w.header[name])
		}
	}
	for name, values := range w.header {
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			add(rest, values)
		}
	}
	return all
}

// kept is what was written and not sent.
func (w *response) kept() []byte {
	if w.buf == nil {
		return nil
	}
	return *w.buf
}

// release gives the buffer back: a quiet response keeps none.
func (w *response) release() {
	if w.buf != nil {
		*w.buf = (*w.buf)[:0]
		buffers.Put(w.buf)
		w.buf = nil
	}
}

func with(header http.Header, name, value string) http.Header {
	if header == nil {
		header = http.Header{}
	}
	header[name] = []string{value}
	return header
}

// allowsBody reports whether a response of that status has a body (RFC 9110).
func allowsBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// lower are the names of headers that were sent, in lower case.
var lower sync.Map

// lowers counts them.
var lowers atomic.Int32

// maxLower is how many of them are kept.
const maxLower = 256

// lowerName returns a header's name as HTTP/2 has it, false if it has no such header.
func lowerName(name string) (string, bool) {
	if known, ok := lower.Load(name); ok {
		return known.(string), true
	}
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade":
		return "", false
	}
	if strings.HasPrefix(name, http.TrailerPrefix) || !httpguts.ValidHeaderFieldName(name) {
		return "", false
	}
	known := strings.ToLower(name)
	if lowers.Load() < maxLower {
		if _, had := lower.LoadOrStore(name, known); !had {
			lowers.Add(1)
		}
	}
	return known, true
}

// second is a Date header and its second.
type second struct {
	unix int64
	text string
}

var now atomic.Pointer[second]

// date returns the current Date header.
func date() string {
	t := time.Now()
	if had := now.Load(); had != nil && had.unix == t.Unix() {
		return had.text
	}
	made := &second{t.Unix(), t.UTC().Format(http.TimeFormat)}
	now.Store(made)
	return made.text
}
