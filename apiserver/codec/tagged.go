package codec

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// Tagged sends data with its hash as ETag, or the code 304 if the client has that version.
func Tagged(w http.ResponseWriter, r *http.Request, contentType, hash string, data []byte) {
	if unchanged(w, r, hash) {
		return
	}
	out := begin(w, r, contentType, http.StatusOK, len(data))
	defer out.Close()
	_, _ = out.Write(data) // the client may have left
}

// TaggedGzip is Tagged for compressed data that many requests share; size is the length of the data before compression.
// For a client that does not accept gzip it decompresses the data while it sends it, so that no response needs memory
// for all of it.
func TaggedGzip(w http.ResponseWriter, r *http.Request, contentType, hash string, packed []byte, size int) error {
	if unchanged(w, r, hash) {
		return nil
	}
	var from io.Reader = bytes.NewReader(packed)
	h := w.Header()
	if takesGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		size = len(packed)
	} else {
		z, err := gzip.NewReader(from)
		if err != nil {
			return err
		}
		from = z
	}
	h.Add("Vary", "Accept-Encoding")
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(size))
	AccountOf(r.Context()).close() // a slow client must not hold memory for its body
	_, _ = io.Copy(w, from)        // the client may have left
	return nil
}

// unchanged sets the ETag. If the client has that version, it sends the code 304 and returns true.
func unchanged(w http.ResponseWriter, r *http.Request, hash string) bool {
	etag := strconv.Quote(hash)
	w.Header().Set("Etag", etag)
	if !strings.Contains(r.Header.Get("If-None-Match"), etag) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}
