package h2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// limits are those of most tests.
func limits() *http.HTTP2Config {
	return &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 1 << 20}
}

// serveTLS serves h over TLS with this package, or with net/http's own HTTP/2.
func serveTLS(t *testing.T, own bool, h http.Handler) *httptest.Server {
	t.Helper()
	ts := httptest.NewUnstartedServer(h)
	ts.EnableHTTP2 = true
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	ts.Config.HTTP2, ts.Config.MaxHeaderBytes = limits(), 64<<10
	if own {
		Configure(ts.Config, nil)
	}
	ts.StartTLS()
	t.Cleanup(ts.Close)
	return ts
}

// outcome is what a client sees of a response.
type outcome struct {
	Status  int
	Length  int64
	Header  http.Header
	Body    string
	Trailer http.Header
	Err     bool // before or within the body
	Early   []string
}

func do(t *testing.T, client *http.Client, r *http.Request) (got outcome) {
	t.Helper()
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		got.Early = append(got.Early, strconv.Itoa(code)+header.Get("Link"))
		return nil
	}}
	res, err := client.Do(r.WithContext(httptrace.WithClientTrace(t.Context(), trace)))
	if err != nil {
		return outcome{Err: true}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	got.Status, got.Length, got.Header, got.Body, got.Trailer, got.Err = res.StatusCode, res.ContentLength, res.Header, string(text), res.Trailer, err != nil
	if date, err := time.Parse(http.TimeFormat, res.Header.Get("Date")); err == nil && time.Since(date) < time.Minute {
		res.Header.Set("Date", "now")
	}
	if res.Proto != "HTTP/2.0" {
		t.Errorf("answered with %s", res.Proto)
	}
	return got
}

// A client sees the same as of net/http's own HTTP/2.
func TestLikeNetHTTP(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789", 30_000)
	cases := map[string]struct {
		h      http.HandlerFunc
		method string
		body   func(*testing.T) io.Reader
		header http.Header
	}{
		"nothing":         {h: func(http.ResponseWriter, *http.Request) {}},
		"text":            {h: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }},
		"html":            {h: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }},
		"head":            {method: "HEAD", h: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }},
		"head of nothing": {method: "HEAD", h: func(http.ResponseWriter, *http.Request) {}},
		"large":           {h: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }},
		"small and large": {h: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x"); io.WriteString(w, body) }},
		"flushed": {h: func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			w.Header().Set("Late", "1")
			io.WriteString(w, "b")
		}},
		"only flushed": {h: func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }},
		"status": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			w.WriteHeader(http.StatusOK)
		}},
		"no content": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			io.WriteString(w, "x")
		}},
		"not modified": {h: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }},
		"length": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			io.WriteString(w, "abc")
		}},
		"bad length": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "x")
			io.WriteString(w, "abcd")
		}},
		"encoded": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "x")
			io.WriteString(w, "abcd")
		}},
		"no type": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "abcd")
		}},
		"no date": {h: func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil; io.WriteString(w, "abcd") }},
		"other headers": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-A"] = []string{"1", "2"}
		}},
		"bad header": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-A"] = []string{"1\n2"}
			w.Header()["A b"] = []string{"1"}
		}},
		"close": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			io.WriteString(w, "bye")
		}},
		"early hints": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "x")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		}},
		"trailer": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-T")
			io.WriteString(w, "x")
			w.Header().Set("X-T", "t")
		}},
		"prefixed": {h: func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, body)
			w.Header().Set(http.TrailerPrefix+"X-T", "t")
		}},
		"trailer alone": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-T")
			w.Header().Set("X-T", "t")
		}},
		"panic":          {h: func(http.ResponseWriter, *http.Request) { panic("boom") }},
		"abort":          {h: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"echo":           {method: "POST", body: text(body), h: func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body); fmt.Fprint(w, r.ContentLength) }},
		"unknown length": {method: "POST", body: chunks(body), h: func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body); fmt.Fprint(w, r.ContentLength) }},
		"unread":         {method: "POST", body: text(body), h: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "enough") }},
		"closed body": {method: "POST", body: text(body), h: func(w http.ResponseWriter, r *http.Request) {
			r.Body.Close()
			_, err := r.Body.Read(make([]byte, 1))
			fmt.Fprint(w, err != nil)
		}},
		"limited body": {method: "POST", body: text(body), h: func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 10))
			fmt.Fprint(w, err)
		}},
		"read deadline": {method: "POST", body: silent, h: func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, late(w, r)) }},
		"expect":        {method: "POST", body: text("x"), header: http.Header{"Expect": {"100-continue"}}, h: func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }},
		"request":       {header: http.Header{"Cookie": {"a=1", "b=2"}, "X-A": {"1", "2"}, "Te": {"trailers"}}, h: describe},
		"post":          {method: "POST", body: text("x"), h: describe},
		"options":       {method: "OPTIONS", h: describe},
		"huge header":   {header: http.Header{"X-A": {strings.Repeat("x", 65<<10)}}, h: describe},
		"write past end": {h: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)))
			io.WriteString(w, body)
		}},
		"response server": {h: func(w http.ResponseWriter, r *http.Request) {
			_, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
			fmt.Fprint(w, ok, r.Context().Value(http.LocalAddrContextKey) != nil, r.TLS.ServerName)
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []outcome
			for _, own := range []bool{true, false} {
				ts := serveTLS(t, own, c.h)
				r := httptest.NewRequest(c.method, ts.URL+"/a%20b?c=d", nil)
				r.RequestURI, r.Header = "", c.header.Clone()
				if r.Header == nil {
					r.Header = http.Header{}
				}
				if c.body != nil {
					in := c.body(t)
					r.Body, r.ContentLength = io.NopCloser(in), -1
					if pipe, ok := in.(*io.PipeReader); ok {
						r.Body = pipe
					}
					if known, ok := in.(*strings.Reader); ok {
						r.ContentLength = known.Size()
					}
				}
				seen = append(seen, do(t, ts.Client(), r))
			}
			if got, want := fmt.Sprintf("%+v", seen[0]), fmt.Sprintf("%+v", seen[1]); got != want {
				t.Errorf("got  %.600s\nwant %.600s", got, want)
			}
		})
	}
}

// describe answers with the request.
func describe(w http.ResponseWriter, r *http.Request) {
	names := slices.Sorted(maps.Keys(r.Header))
	fmt.Fprintf(w, "%s %s %s %v %d %d", r.Method, r.URL, r.RequestURI, r.Proto, r.ContentLength, len(r.TransferEncoding))
	for _, name := range names {
		fmt.Fprintf(w, "\n%s: %d %q", name, len(r.Header[name]), r.Header[name])
	}
}

// text is a body of a known length, and chunks one of an unknown length.
func text(s string) func(*testing.T) io.Reader {
	return func(*testing.T) io.Reader { return strings.NewReader(s) }
}

func chunks(s string) func(*testing.T) io.Reader {
	return func(*testing.T) io.Reader { return io.MultiReader(strings.NewReader(s)) }
}

// silent is a body that nothing follows.
func silent(t *testing.T) io.Reader {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	return r
}

func late(w http.ResponseWriter, r *http.Request) error {
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		return err
	}
	_, err := r.Body.Read(make([]byte, 1))
	return err
}

// Trailers of a request are there once its body is read.
func TestTrailersOfRequest(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		ts := serveTLS(t, own, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%v ", r.Trailer)
			io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%v", r.Trailer)
		}))
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, ts.URL, io.MultiReader(strings.NewReader("x")))
		r.Trailer = http.Header{"A": {"1"}}
		if got := do(t, ts.Client(), r); got.Body != "map[A:[]] map[A:[1]]" {
			t.Errorf("own %v: %+v", own, got)
		}
	}
}

// A handler learns that its client has left.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	over := make(chan error)
	ts := serveTLS(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		_, err := r.Body.Read(make([]byte, 1))
		w.(http.Flusher).Flush()
		_, err2 := w.Write(make([]byte, 1<<20))
		over <- errors.Join(err, err2)
	}))
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, ts.URL, silent(t))
	res, err := ts.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if err := <-over; err == nil {
		t.Error("reads and writes succeed after the client has left")
	}
}

// Many requests at once on one connection, with bodies in both directions.
func TestManyRequests(t *testing.T) {
	t.Parallel()
	ts := serveTLS(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		w.Write(text)
	}))
	errs := make(chan error)
	for i := range 100 {
		go func() {
			want := bytes.Repeat([]byte{byte(i)}, i*977)
			res, err := ts.Client().Post(ts.URL, "x/y", bytes.NewReader(want))
			if err == nil {
				var got []byte
				if got, err = io.ReadAll(res.Body); err == nil && !bytes.Equal(got, want) {
					err = fmt.Errorf("%d bytes of %d came back", len(got), len(want))
				}
				res.Body.Close()
			}
			errs <- err
		}()
	}
	for range 100 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// What HTTP/2 has no place for is not sent, and a handler cannot write more than it has announced.
func TestWrongResponses(t *testing.T) {
	t.Parallel()
	ts := serveTLS(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Keep-Alive", "1")
		w.Header().Set("Upgrade", "x")
		w.Header().Set("Content-Length", "3")
		if _, err := io.WriteString(w, "abcd"); !errors.Is(err, http.ErrContentLength) {
			t.Error(err)
		}
		io.WriteString(w, "abc")
	}))
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, ts.URL, nil)
	if got := do(t, ts.Client(), r); len(got.Header) != 3 || got.Body != "abc" || got.Err {
		t.Errorf("%+v", got)
	}
}

// Shutdown lets running requests end, and no new ones begin.
func TestShutdown(t *testing.T) {
	t.Parallel()
	began, ends := make(chan struct{}), make(chan struct{})
	ts := serveTLS(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-ends
		io.WriteString(w, "whole")
	}))
	got := make(chan outcome)
	go func() {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, ts.URL, nil)
		got <- do(t, ts.Client(), r)
	}()
	<-began
	down := make(chan error)
	go func() { down <- ts.Config.Shutdown(t.Context()) }()
	time.AfterFunc(10*time.Millisecond, func() { close(ends) }) // Shutdown has no event; too early only makes the test easier
	if o := <-got; o.Body != "whole" {
		t.Errorf("%+v", o)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// Ciphers that HTTP/2 forbids are not served with it.
func TestForbiddenCipher(t *testing.T) {
	t.Parallel()
	ts := serveTLS(t, true, http.NotFoundHandler())
	ts.TLS.CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}
	ts.TLS.MaxVersion = tls.VersionTLS12
	client := ts.Client()
	config := client.Transport.(*http.Transport).TLSClientConfig
	config.CipherSuites, config.MaxVersion = ts.TLS.CipherSuites, tls.VersionTLS12
	if res, err := client.Get(ts.URL); err == nil {
		res.Body.Close()
		t.Error("served")
	}
}
