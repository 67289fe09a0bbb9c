// Package registrytest is an image registry on loopback for tests of pulls. It can require a password, delay responses,
// and interrupt transfers.
package registrytest

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	packed "monopod/agent/runtime/oci"
	"monopod/testdata/web/image"
)

// Registry is a server with images in memory. New starts it; Close stops it.
type Registry struct {
	Host   string // 127.0.0.1:PORT
	server *httptest.Server
	inner  http.Handler

	mu       sync.Mutex // guards the fields below
	user     string
	password string
	after    int           // interrupt the next blob after this many bytes; 0: never
	on       chan struct{} // closed: the interrupted blob continues; nil: its connection closes
	delay    time.Duration
	asked    []string
}

// New starts an empty registry without a password.
func New() *Registry {
	r := &Registry{inner: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	r.server = httptest.NewUnstartedServer(r)
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.server.Start()
	r.Host = strings.TrimPrefix(r.server.URL, "http://")
	return r
}

// Close stops the server, and closes every connection to it.
func (r *Registry) Close() {
	r.server.CloseClientConnections()
	r.server.Close()
}

// Require makes the registry require the user and password.
func (r *Registry) Require(user, password string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user, r.password = user, password
}

// Break closes the connection after this many bytes of the next blob that is longer.
func (r *Registry) Break(after int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.after, r.on = after, nil
}

// Pause pauses the transfer after this many bytes of the next blob that is longer, until a call of resume.
func (r *Registry) Pause(after int) (resume func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	on := make(chan struct{})
	r.after, r.on = after, on
	return sync.OnceFunc(func() { close(on) })
}

func (r *Registry) mend() { r.Break(0) }

// Slow delays every response.
func (r *Registry) Slow(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = delay
}

// Asked returns the requests for blobs so far: "GET <path> <range>".
func (r *Registry) Asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.asked...)
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	user, password, delay := r.user, r.password, r.delay
	limit, on := 0, (<-chan struct{})(nil)
	if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/") {
		r.asked = append(r.asked, strings.TrimSpace(req.Method+" "+req.URL.Path+" "+req.Header.Get("Range")))
		limit, on = r.after, (<-chan struct{})(r.on)
	}
	r.mu.Unlock()
	time.Sleep(delay)
	if u, p, _ := req.BasicAuth(); u != user || p != password {
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	}
	if limit > 0 {
		w = &cut{ResponseWriter: w, left: limit, mend: r.mend, on: on}
	}
	r.answer(w, req)
}

// answer supports open-ended ranges, which the wrapped registry does not.
func (r *Registry) answer(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Range") == "" {
		r.inner.ServeHTTP(w, req)
		return
	}
	whole, full := httptest.NewRecorder(), req.Clone(req.Context())
	full.Header.Del("Range")
	r.inner.ServeHTTP(whole, full)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(whole.Body.Bytes()))
}

// cut is a response that is interrupted.
type cut struct {
	http.ResponseWriter
	left int
	mend func()
	on   <-chan struct{} // closed: the response continues; nil: the connection closes
}

func (c *cut) Write(p []byte) (int, error) {
	if len(p) <= c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	c.mend()
	_, _ = c.ResponseWriter.Write(p[:c.left]) // the client may have disconnected
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	if c.on != nil {
		<-c.on
		rest := p[c.left:]
		c.left = math.MaxInt
		n, err := c.ResponseWriter.Write(rest)
		return len(p) - len(rest) + n, err
	}
	panic(http.ErrAbortHandler)
}

// Push stores the sample image with the program under a name such as app:1. It returns the references for pods, with
// the tag and with the digest.
func (r *Registry) Push(name string, program []byte) (ref, digest string, err error) {
	var archive bytes.Buffer
	if err := image.Write(&archive, r.Host+"/"+name, program); err != nil {
		return "", "", err
	}
	return r.push(name, &archive)
}

// PushFiles is Push for an image that contains only files.
func (r *Registry) PushFiles(name string, files []packed.File) (ref, digest string, err error) {
	var archive bytes.Buffer
	if err := packed.Archive(&archive, packed.Image{Ref: r.Host + "/" + name, Files: files}); err != nil {
		return "", "", err
	}
	return r.push(name, &archive)
}

func (r *Registry) push(name string, archive io.Reader) (ref, digest string, err error) {
	files, err := read(archive)
	if err != nil {
		return "", "", err
	}
	var index v1.Index
	if err := json.Unmarshal(files[v1.ImageIndexFile], &index); err != nil {
		return "", "", err
	}
	if len(index.Manifests) != 1 {
		return "", "", errors.New("want an archive of one image")
	}
	repository, tag, _ := strings.Cut(name, ":")
	manifest := index.Manifests[0]
	for file, data := range files {
		dir, hash := path.Split(file)
		if dir != "blobs/sha256/" || hash == manifest.Digest.Encoded() {
			continue
		}
		if err := r.put(http.MethodPost, "/v2/"+repository+"/blobs/uploads/?digest=sha256:"+hash, "", data); err != nil {
			return "", "", err
		}
	}
	err = r.put(http.MethodPut, "/v2/"+repository+"/manifests/"+tag, manifest.MediaType,
		files["blobs/sha256/"+manifest.Digest.Encoded()])
	return r.Host + "/" + name, r.Host + "/" + repository + "@" + manifest.Digest.String(), err
}

func (r *Registry) put(method, url, kind string, data []byte) error {
	req := httptest.NewRequest(method, url, bytes.NewReader(data))
	req.Header.Set("Content-Type", kind)
	answer := httptest.NewRecorder()
	r.inner.ServeHTTP(answer, req)
	if answer.Code >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, url, answer.Code, answer.Body)
	}
	return nil
}

// read returns the files of an archive by name.
func read(archive io.Reader) (map[string][]byte, error) {
	files := map[string][]byte{}
	for in := tar.NewReader(archive); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if files[path.Clean(header.Name)], err = io.ReadAll(in); err != nil {
			return nil, err
		}
	}
}
