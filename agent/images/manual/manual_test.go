package manual_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/images/image"
	"monopod/agent/images/manual"
	"monopod/agent/images/preload"
	"monopod/agent/runtime/fake"
)

// runtime is the fake one with containers that the test adds.
type runtime struct {
	*fake.Runtime
	containers []*cri.Container
}

func (r *runtime) ListContainers(context.Context, *cri.ContainerFilter) ([]*cri.Container, error) {
	return r.containers, nil
}

type node struct {
	*testing.T
	dir     string
	runtime *runtime
	handler http.Handler
	arrived int // how often images came
	changed int // how often one was removed
	volumes []string
}

func newNode(t *testing.T) *node {
	t.Helper()
	f := fake.New(fake.Config{})
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	n := &node{T: t, dir: filepath.Join(t.TempDir(), "images"), runtime: &runtime{Runtime: f}}
	archives := preload.New(preload.Config{
		Dir: n.dir, Record: filepath.Join(filepath.Dir(n.dir), "imported.json"), Runtime: f, Clock: clock.RealClock{}, Log: zap.NewNop(), Arrived: func() { n.arrived++ },
	})
	n.handler = manual.Handler(manual.Config{Runtime: n.runtime, Archives: archives, InUse: func() []string { return n.volumes }, Changed: func() { n.changed++ }})
	return n
}

// archive has an image for each name.
func archive(t *testing.T, names ...string) []byte {
	t.Helper()
	var all []image.Image
	for _, name := range names {
		all = append(all, image.Image{Ref: name, Files: []image.File{{Path: "web", Data: []byte(name)}}, Entrypoint: []string{"/web"}})
	}
	var out bytes.Buffer
	if err := image.Archive(&out, all...); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (n *node) do(method, query string, body []byte) (int, string) {
	n.Helper()
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, httptest.NewRequestWithContext(n.Context(), method, "/images?"+query, bytes.NewReader(body)))
	return w.Code, w.Body.String()
}

func (n *node) wants(code int, part, method, query string, body []byte) {
	n.Helper()
	if got, text := n.do(method, query, body); got != code || !strings.Contains(text, part) {
		n.Errorf("%s %s: %d %s, want %d %s", method, query, got, text, code, part)
	}
}

func (n *node) images() []manual.Image {
	n.Helper()
	_, text := n.do(http.MethodGet, "", nil)
	var list []manual.Image
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		n.Fatalf("%s: %v", text, err)
	}
	return list
}

func (n *node) files() string {
	n.Helper()
	entries, err := os.ReadDir(n.dir)
	if err != nil && !os.IsNotExist(err) {
		n.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// An archive is imported and kept, listed, and removed together with its image.
func TestImportAndRemove(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.wants(200, `{"images":["example.com/shop:1"]}`, http.MethodPost, "name=shop.tar", archive(t, "example.com/shop:1"))
	list := n.images()
	if len(list) != 1 || !slices.Contains(list[0].Names, "example.com/shop:1") || list[0].Needed || list[0].Size <= 0 || n.arrived != 1 {
		t.Fatalf("%+v, %d arrivals", list, n.arrived)
	}
	if got := n.files(); got != "shop.tar" {
		t.Errorf("files %q", got)
	}
	n.wants(200, `{"archives":null}`, http.MethodDelete, "image=example.com/shop:1", nil)
	if list, files := n.images(), n.files(); len(list) != 0 || files != "" || n.changed != 1 {
		t.Errorf("%+v, files %q, %d changes", list, files, n.changed)
	}
}

// What a container, a volume or every pod needs stays.
func TestNeededImagesStay(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.wants(200, "", http.MethodPost, "name=a.tar", archive(t, "example.com/a:1", "example.com/b:1", image.PauseRef))
	n.runtime.containers = []*cri.Container{{ImageRef: "example.com/a:1"}}
	n.volumes = []string{"example.com/b:1"}
	n.wants(409, "1 containers use it", http.MethodDelete, "image=example.com/a:1", nil)
	n.wants(409, "a volume uses it", http.MethodDelete, "image=example.com/b:1", nil)
	n.wants(409, "every pod", http.MethodDelete, "image="+image.PauseRef, nil)
	if got := len(n.images()); got != 3 || n.changed != 0 {
		t.Errorf("%d images, %d changes", got, n.changed)
	}
	// The archive stays for its other images, and the answer says so.
	n.runtime.containers = nil
	n.wants(200, `{"archives":["a.tar"]}`, http.MethodDelete, "image=example.com/a:1", nil)
	if got := n.files(); got != "a.tar" {
		t.Errorf("files %q", got)
	}
}

// Nothing is left of what cannot be imported.
func TestRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, name := range []string{"", "x", "../x.tar", "a/x.tar", ".x.tar", "x.zip"} {
		n.wants(400, "the name must be", http.MethodPost, "name="+url.QueryEscape(name), archive(t, "example.com/a:1"))
	}
	n.wants(400, "import x.tar", http.MethodPost, "name=x.tar", []byte("not a tar"))
	n.wants(404, "not found on this node", http.MethodDelete, "image=example.com/none", nil)
	n.wants(404, "", http.MethodDelete, "", nil)
	n.wants(405, "", http.MethodPut, "", nil)
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/images?name=x.tar", io.MultiReader(bytes.NewReader(archive(t, "example.com/a:1")[:100]), broken{})))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "cut off") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := n.files(); got != "" || n.arrived != 0 {
		t.Errorf("files %q, %d arrivals", got, n.arrived)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, fmt.Errorf("cut off") }
