package codec_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"monopod/apiserver/codec"
)

// A client that accepts gzip gets the shared compressed bytes, another client the text, which is decompressed while it
// is sent.
func TestTaggedGzip(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 8<<20/16)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, text)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	send := func(w http.ResponseWriter, header, value string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(header, value)
		if err := codec.TaggedGzip(w, r, "text/plain", "A", packed.Bytes(), len(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		header, value string
		code          int
		want          string
	}{
		{"Accept-Encoding", "gzip", http.StatusOK, packed.String()},
		{"Accept-Encoding", "gzip;q=0", http.StatusOK, text},
		{"Accept-Encoding", "", http.StatusOK, text},
		{"If-None-Match", `"A"`, http.StatusNotModified, ""},
	} {
		w := httptest.NewRecorder()
		send(w, c.header, c.value)
		if w.Code != c.code || w.Body.String() != c.want || w.Header().Get("Etag") != `"A"` {
			t.Errorf("%s %q: got %d with %d bytes, %v", c.header, c.value, w.Code, w.Body.Len(), w.Header())
		}
	}
	var before, after runtime.MemStats
	const requests = 20
	runtime.ReadMemStats(&before)
	for range requests {
		send(discard{http.Header{}}, "Accept-Encoding", "")
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / requests; each > 256<<10 {
		t.Errorf("a response of %d bytes allocates %d", len(text), each)
	}
}

// discard is a ResponseWriter that discards the response.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
