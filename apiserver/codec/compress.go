package codec

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

const (
	// gzipFrom is the size in bytes from which responses are compressed, and gzipLevel the compression level
	// (upstream: responsewriters' defaultGzipThresholdBytes and defaultGzipContentEncodingLevel).
	gzipFrom  = 128 << 10
	gzipLevel = 1
)

// unknownSize is the size of a long response whose length is not known when it begins.
const unknownSize = -1

// begin sends the header of a response of size bytes, and returns a writer for the body. The writer compresses a large
// body if the client accepts gzip. Close ends the response.
func begin(w http.ResponseWriter, r *http.Request, contentType string, code, size int) io.WriteCloser {
	AccountOf(r.Context()).close() // a slow client must not hold memory for its body
	h := w.Header()
	h.Set("Content-Type", contentType)
	if size != unknownSize && size <= gzipFrom || !takesGzip(r.Header.Get("Accept-Encoding")) {
		if size != unknownSize {
			h.Set("Content-Length", strconv.Itoa(size))
		}
		w.WriteHeader(code)
		return plain{w}
	}
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
	w.WriteHeader(code)
	z, err := gzip.NewWriterLevel(w, gzipLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}

// takesGzip reports whether an Accept-Encoding header accepts gzip.
func takesGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		_, q, weighed := strings.Cut(params, "q=")
		quality, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		return !weighed || (err == nil && quality > 0)
	}
	return false
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }
