package codec

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

const (
	// gzipFrom is the size from which on an answer is compressed, in bytes, and
	// gzipLevel how hard (upstream: responsewriters' defaultGzipThresholdBytes and
	// defaultGzipContentEncodingLevel).
	gzipFrom  = 128 << 10
	gzipLevel = 1
)

// gzips are writers that wait for the next large answer.
var gzips = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(io.Discard, gzipLevel)
	if err != nil {
		panic(err) // of a constant
	}
	return w
}}

// begin sends the header of an answer of size bytes, and returns where they go:
// compressed, if they are many and the client wants that. Close ends the answer.
func begin(w http.ResponseWriter, r *http.Request, contentType string, code, size int) io.WriteCloser {
	AccountOf(r.Context()).close() // a client may take its time to read
	h := w.Header()
	h.Set("Content-Type", contentType)
	if size <= gzipFrom || !takesGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Length", strconv.Itoa(size))
		w.WriteHeader(code)
		return plain{w}
	}
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
	w.WriteHeader(code)
	z := gzips.Get().(*gzip.Writer)
	z.Reset(w)
	return zipped{z}
}

// takesGzip reads an Accept-Encoding header.
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

type zipped struct{ *gzip.Writer }

// Close writes the end of the stream and gives the writer back.
func (z zipped) Close() error {
	err := z.Writer.Close()
	z.Reset(io.Discard)
	gzips.Put(z.Writer)
	return err
}
