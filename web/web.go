// Package web is the dashboard: one page of plain files, embedded unchanged.
//
// The page uses only the API of the server that it was loaded from. app.js starts it; watch.js follows a
// resource by list and watch into a Collection; a Table shows a Collection. The package imports nothing of
// Monopod.
package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed page
var embedded embed.FS

// index is the file at /.
const index = "index.html"

// asset is one embedded file with its HTTP headers.
type asset struct{ contentType, etag string }

// handler serves assets by name.
type handler struct {
	files  fs.FS
	assets map[string]asset
}

// Handler serves the page: "/" is index.html, every other file has its name as path, anything else is 404.
// Browsers revalidate files by ETag on each load, so a new binary shows its own page at once. It answers GET and
// HEAD.
func Handler() http.Handler {
	files, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // "page" is a valid path
	}
	h, err := newHandler(files)
	if err != nil {
		panic(err) // reading memory does not fail
	}
	return h
}

func newHandler(files fs.FS) (*handler, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	h := &handler{files: files, assets: make(map[string]asset, len(entries))}
	for _, e := range entries {
		tag, err := etag(files, e.Name())
		if err != nil {
			return nil, err
		}
		h.assets[e.Name()] = asset{contentType(e.Name()), tag}
	}
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = index
	}
	a, ok := h.assets[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h.serve(w, r, name, a)
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request, name string, a asset) {
	f, err := h.files.Open(name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("ETag", a.etag)
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, name, time.Time{}, f.(io.ReadSeeker)) // as embed.FS promises
}

// etag identifies a file's content.
func etag(files fs.FS, name string) (string, error) {
	f, err := files.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return `"` + hex.EncodeToString(sum.Sum(nil)[:12]) + `"`, nil
}

// contentType depends on the extension and not on the host's tables, which may contain a type that a browser
// refuses to run.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}
