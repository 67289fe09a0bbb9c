package web

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func get(t *testing.T, method, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	Handler(fstest.MapFS{"README.md": {Data: []byte("# Read me\n")}, "docs/a.md": {Data: []byte("# A\n")},
		"docs/page.png": {}}).ServeHTTP(w, r)
	return w.Result()
}

func TestHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, path string
		code         int
		contentType  string
	}{
		"index":       {"GET", "/", 200, "text/html; charset=utf-8"},
		"index named": {"GET", "/index.html", 200, "text/html; charset=utf-8"},
		"style":       {"GET", "/app.css", 200, "text/css; charset=utf-8"},
		"module":      {"GET", "/app.js", 200, "text/javascript; charset=utf-8"},
		"no icon":     {"GET", "/favicon.svg", 404, "text/plain; charset=utf-8"},
		"head":        {"HEAD", "/app.css", 200, "text/css; charset=utf-8"},
		"unknown":     {"GET", "/none.js", 404, "text/plain; charset=utf-8"},
		"folder":      {"GET", "/page/", 404, "text/plain; charset=utf-8"},
		"dot":         {"GET", "/.", 404, "text/plain; charset=utf-8"},
		"outside":     {"GET", "/../web.go", 404, "text/plain; charset=utf-8"},
		"post":        {"POST", "/", 405, "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := get(t, c.method, c.path)
			if got := resp.Header.Get("Content-Type"); resp.StatusCode != c.code || got != c.contentType {
				t.Errorf("got %d %s, want %d %s", resp.StatusCode, got, c.code, c.contentType)
			}
		})
	}
}

// The handler serves the documents as one text, with the name of each.
func TestHandlerServesDocuments(t *testing.T) {
	t.Parallel()
	resp := get(t, "GET", "/documents.txt")
	got, err := io.ReadAll(resp.Body)
	if want := "\fREADME.md\n# Read me\n\fdocs/a.md\n# A\n"; err != nil || string(got) != want ||
		resp.Header.Get("ETag") == "" {
		t.Errorf("got %q %q, %v", got, resp.Header, err)
	}
}

// The handler does not send an unchanged file again, but a changed one.
func TestHandlerRevalidates(t *testing.T) {
	t.Parallel()
	first := get(t, "GET", "/app.js")
	tag := first.Header.Get("ETag")
	if tag == "" || first.Header.Get("Cache-Control") != "no-cache" {
		t.Fatalf("got ETag %q, Cache-Control %q", tag, first.Header.Get("Cache-Control"))
	}
	if again := get(t, "GET", "/app.js", "If-None-Match: "+tag); again.StatusCode != http.StatusNotModified {
		t.Errorf("same content: got %d, want 304", again.StatusCode)
	}
	if changed := get(t, "GET", "/app.js", `If-None-Match: "old"`); changed.StatusCode != http.StatusOK {
		t.Errorf("other content: got %d, want 200", changed.StatusCode)
	}
	if other := get(t, "GET", "/app.css"); other.Header.Get("ETag") == tag {
		t.Error("two files have the same ETag")
	}
}

// Clients that accept gzip get files compressed, with an ETag of their own.
func TestHandlerCompresses(t *testing.T) {
	t.Parallel()
	plain, packed := get(t, "GET", "/app.js"), get(t, "GET", "/app.js", "Accept-Encoding: br, gzip")
	if plain.Header.Get("Content-Encoding") != "" || packed.Header.Get("Content-Encoding") != "gzip" ||
		packed.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("got %v and %v", plain.Header, packed.Header)
	}
	if plain.Header.Get("ETag") == packed.Header.Get("ETag") {
		t.Error("the compressed and the plain file have the same ETag")
	}
	r, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	want, errPlain := io.ReadAll(plain.Body)
	if err != nil || errPlain != nil || string(got) != string(want) {
		t.Errorf("the compressed file has %d bytes, want %d (%v, %v)", len(got), len(want), err, errPlain)
	}
	if refused := get(t, "GET", "/app.js", "Accept-Encoding: gzip;q=0"); refused.Header.Get("Content-Encoding") != "" {
		t.Error("compressed for a client that refuses it")
	}
}

// The page loads only existing files of its own. Only one script is inline, the one that the Content-Security-Policy
// permits.
func TestPageNeedsNoOtherSite(t *testing.T) {
	t.Parallel()
	files, err := fs.Sub(embedded, "page")
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHandler(files)
	if err != nil {
		t.Fatal(err)
	}
	reference := regexp.MustCompile(`(?:src|href)="/ui/([^"]+)"|from "\./([^"]+)"|import\("\./([^"]+)"\)`)
	forbidden := regexp.MustCompile(
		`(?i)https?://(?:[^w]|w[^w])|\sstyle="|\son[a-z]+="|<script>|innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new ` +
			`Function\(`)
	for name, a := range h.assets {
		content, err := a.plain()
		if err != nil {
			t.Fatal(err)
		}
		data := string(content)
		for _, m := range reference.FindAllStringSubmatch(data, -1) {
			if _, ok := h.assets[m[1]+m[2]+m[3]]; !ok {
				t.Errorf("%s refers to %s, which does not exist", name, m[1]+m[2]+m[3])
			}
		}
		if name == index {
			data = inline.ReplaceAllLiteralString(data, "")
		}
		if bad := forbidden.FindString(strings.ReplaceAll(data, "http://www.w3.org/", "")); bad != "" && !libraries[name] {
			t.Errorf("%s has %q", name, bad)
		}
	}
}

// libraries are third-party files; the browser enforces the page's policy for them.
var libraries = map[string]bool{"xterm.js": true, "xterm-fit.js": true, "xterm.css": true, "codemirror.js": true}
