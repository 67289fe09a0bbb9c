// Package web is the dashboard: one page of plain files, embedded unchanged.
//
// The page uses only the API of the server that it was loaded from. app.js starts it and shows what the address
// names; core.js has what all modules use; live.js follows a resource by list and watch into a Feed, which
// list.js shows as a table. The other modules are loaded when they are opened: object.js with pod.js, node.js and
// kinds.js, map.js with links.js, logs.js, terminal.js, yaml.js with editor.js, revisions.js, actions.js, help.js with
// documents.js, and search.js, helm.js, access.js. text.js translates, by the table of the browser's language. Files
// whose name ends in .gz are libraries, served without that ending. The package imports nothing of Monopod.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
)

//go:embed page
var embedded embed.FS

// index is the file at /.
const index = "index.html"

// asset is one embedded file with its HTTP headers.
type asset struct {
	contentType string
	etag        func() (string, error)
	plain, gzip func() ([]byte, error) // its content
}

// handler serves assets by name.
type handler struct {
	assets map[string]asset
	policy string // the Content-Security-Policy
}

// Handler serves the page: "/" is index.html, every other file has its name as path, anything else is 404.
// documents are Markdown files that the page's help searches.
// Browsers revalidate files by ETag on each load, so a new binary shows its own page at once. It answers GET and
// HEAD.
func Handler(documents fs.FS) http.Handler {
	files, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // "page" is a valid path
	}
	h, err := newHandler(files)
	if err != nil {
		panic(err) // reading memory does not fail
	}
	h.assets["documents.txt"] = textOf(documents)
	return h
}

// textOf returns all documents as one file, each after a form feed and its name. The file is read and compressed at its
// first request.
func textOf(documents fs.FS) asset {
	read := func() ([]byte, error) {
		var out bytes.Buffer
		err := fs.WalkDir(documents, ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || path.Ext(name) != ".md" {
				return err
			}
			data, err := fs.ReadFile(documents, name)
			out.WriteString("\f" + name + "\n")
			out.Write(data)
			return err
		})
		return out.Bytes(), err
	}
	return asset{contentType: "text/plain; charset=utf-8", etag: sync.OnceValues(func() (string, error) {
		data, err := read()
		return tagOf(data), err
	}), plain: read, gzip: sync.OnceValues(func() ([]byte, error) { return pack(read) })}
}

func newHandler(files fs.FS) (*handler, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	h := &handler{assets: make(map[string]asset, len(entries))}
	for _, e := range entries {
		read := func() ([]byte, error) { return fs.ReadFile(files, e.Name()) }
		name, packed := strings.CutSuffix(e.Name(), ".gz")
		a := asset{contentType: contentType(name), plain: read, gzip: read, etag: sync.OnceValues(func() (string, error) {
			data, err := read()
			return tagOf(data), err
		})}
		if packed {
			a.plain = func() ([]byte, error) { return unpack(read) }
		} else {
			a.gzip = sync.OnceValues(func() ([]byte, error) { return pack(read) })
		}
		h.assets[name] = a
	}
	h.policy, err = policy(files)
	return h, err
}

// inline is the only script in the page's HTML. It loads the page again if one of the files that everything needs does
// not arrive, as happens when the network of the machine changes while the page is loaded.
var inline = regexp.MustCompile(`<script>(.*?)</script>`)

// policy is the page's Content-Security-Policy: it loads its own files and asks its own server, nothing else, and runs
// the inline script that has this hash.
func policy(files fs.FS) (string, error) {
	page, err := fs.ReadFile(files, index)
	if err != nil {
		return "", err
	}
	scripts := "'self'"
	if m := inline.FindSubmatch(page); m != nil {
		sum := sha256.Sum256(m[1])
		scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + scripts +
		"; style-src 'self'; img-src 'self' data:; connect-src 'self'" +
		"; form-action 'none'; base-uri 'none'; frame-ancestors 'none'", nil
}

// pack compresses what read returns.
func pack(read func() ([]byte, error)) ([]byte, error) {
	data, err := read()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// unpack decompresses what read returns: one of our own files.
func unpack(read func() ([]byte, error)) ([]byte, error) {
	data, err := read()
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", h.policy)
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
	read := a.plain
	tag, failed := a.etag()
	w.Header().Set("Vary", "Accept-Encoding")
	if acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		read, tag = a.gzip, strings.TrimSuffix(tag, `"`)+`-gzip"`
	}
	data, err := read()
	if err != nil || failed != nil {
		w.Header().Del("Content-Encoding")
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}

// acceptsGzip reports whether the client accepts gzip. A range is one of the plain file.
func acceptsGzip(r *http.Request) bool {
	if r.Header.Get("Range") != "" {
		return false
	}
	for _, coding := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if name == "gzip" {
			return strings.Trim(strings.TrimPrefix(strings.TrimSpace(weight), "q="), "0.") != "" || weight == ""
		}
	}
	return false
}

// tagOf is the ETag of a content.
func tagOf(data []byte) string {
	sum := sha256.Sum256(data)
	return `"` + hex.EncodeToString(sum[:12]) + `"`
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
