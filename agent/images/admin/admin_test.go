package admin_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/images/admin"
	"monopod/agent/images/pull"
	"monopod/agent/runtime"
	"monopod/agent/runtime/oci"
	"monopod/apiserver/kit/images"
)

// shelf is a runtime with two images and the sandbox image; pods use one of the images.
type shelf struct {
	removed []string
	shown   []string // images that volumes show
	failing error    // ExportImages returns it after the first bytes
}

func (s *shelf) ListImages(context.Context) ([]*cri.Image, error) {
	all := []*cri.Image{
		{Id: "sha256:2", RepoTags: []string{"docker.io/library/web:1", "docker.io/library/web:old"}, Size: 7, Pinned: true},
		{Id: "sha256:3", RepoTags: []string{oci.PauseRef}, Pinned: true},
		{Id: "sha256:1", RepoDigests: []string{"docker.io/library/db@sha256:abc"}, Size: 5},
	}
	return slices.DeleteFunc(all, func(i *cri.Image) bool { return slices.Contains(s.removed, i.Id) }), nil
}

func (s *shelf) ImageStatus(ctx context.Context, name string) (*cri.Image, error) {
	all, _ := s.ListImages(ctx)
	for _, i := range all {
		if i.Id == name || slices.Contains(i.RepoTags, name) {
			return i, nil
		}
	}
	return nil, nil
}

func (s *shelf) RemoveImage(_ context.Context, id string) error {
	s.removed = append(s.removed, id)
	return nil
}

func (s *shelf) ImportArchive(_ context.Context, archive io.Reader) ([]string, error) {
	name, err := io.ReadAll(archive)
	if string(name) == "garbage" {
		_, err = tar.NewReader(bytes.NewReader(name)).Next()
	}
	return []string{string(name)}, err
}

func (s *shelf) Downloads(context.Context) ([]runtime.Download, error) {
	return []runtime.Download{{Ref: "layer", Done: 3, Total: 9}}, nil
}

func (s *shelf) ExportImages(_ context.Context, names []string, to io.Writer) error {
	_, err := io.WriteString(to, strings.Join(names, ","))
	return errors.Join(err, s.failing)
}

func (s *shelf) ListContainers(context.Context, *cri.ContainerFilter) ([]*cri.Container, error) {
	pod := func(name string) map[string]string {
		return map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "shop"}
	}
	return []*cri.Container{
		{Id: "a", ImageRef: "sha256:2", Labels: pod("web-1")},
		{Id: "b", ImageRef: "sha256:2", Labels: pod("web-1"), State: cri.ContainerState_CONTAINER_RUNNING},
		{Id: "c", ImageRef: "sha256:2", Labels: pod("web-0")},
		{Id: "d", ImageRef: "sha256:9"},
	}, nil
}

// puller pulls images that are on the shelf.
type puller struct{ *shelf }

func (puller) Forget(string) {}

func (puller) Imported([]string, error) {}

func (puller) Pulls() []string { return []string{"a:1", "b:1"} }

func (p puller) Pull(ctx context.Context, r pull.Request) (*cri.Image, error) {
	img, _ := p.ImageStatus(ctx, "docker.io/library/"+r.Image)
	if img == nil {
		return nil, errors.New("no such image")
	}
	return img, nil
}

// served serves the images of a shelf over HTTP; changed counts the changes.
func served(t *testing.T, s *shelf) (server *httptest.Server, changed *int) {
	changed = new(int)
	of := &admin.Admin{Runtime: s, Puller: puller{s}, Changed: func() { *changed++ }, Removed: func(string) {},
		InUse: func() []string { return s.shown }}
	server = httptest.NewServer(admin.Handler(func(context.Context) *admin.Admin { return of }))
	t.Cleanup(server.Close)
	return server, changed
}

// ask sends a request. It decodes a successful response into a value, and returns the code and message of a failure.
func ask(t *testing.T, method, address, body string, into any) (code int, message string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status metav1.Status
	if resp.StatusCode != http.StatusOK {
		into = &status
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, status.Message
}

func TestList(t *testing.T) {
	t.Parallel()
	server, _ := served(t, &shelf{})
	var list images.List
	ask(t, http.MethodGet, server.URL, "", &list)
	if len(list.Images) != 3 {
		t.Fatalf("got %d images, want 3: %+v", len(list.Images), list)
	}
	db, web := list.Images[0], list.Images[1]
	if db.Names[0] != "docker.io/library/db@sha256:abc" || db.Bytes != 5 || db.Pinned || len(db.Users) > 0 || db.Running {
		t.Errorf("the unused image is %+v", db)
	}
	if len(web.Names) != 2 || !web.Pinned || !slices.Equal(web.Users, []string{"shop/web-0", "shop/web-1"}) ||
		!web.Running {
		t.Errorf("the used image is %+v", web)
	}
}

// A request removes no image if one of them is in use.
func TestRemove(t *testing.T) {
	t.Parallel()
	s := &shelf{}
	server, changed := served(t, s)
	both := server.URL + "?" + url.Values{"name": {"sha256:1", "web:1"}}.Encode()
	if code, message := ask(t, http.MethodDelete, both, "", new(any)); code != http.StatusConflict ||
		!strings.Contains(message, "used by shop/web-0, shop/web-1; delete these pods first") || len(s.removed) > 0 ||
		*changed > 0 {
		t.Errorf("remove of an image in use: %d %s, removed %v", code, message, s.removed)
	}
	if code, message := ask(t, http.MethodDelete, both+"&force=true", "", new(any)); code != http.StatusOK ||
		len(s.removed) != 2 || *changed != 1 {
		t.Errorf("forced remove: %d %s, removed %v", code, message, s.removed)
	}
	if code, _ := ask(t, http.MethodDelete, both, "", new(any)); code != http.StatusNotFound {
		t.Errorf("second remove: %d", code)
	}
	if code, message := ask(t, http.MethodDelete, server.URL+"?force=true&name="+oci.PauseRef, "",
		new(any)); code != http.StatusConflict || !strings.Contains(message, "every pod needs this image") {
		t.Errorf("remove of the sandbox image: %d %s", code, message)
	}
	shown, _ := served(t, &shelf{shown: []string{"sha256:1"}})
	if code, message := ask(t, http.MethodDelete, shown.URL+"?name=sha256:1", "", new(any)); code != http.StatusConflict ||
		!strings.Contains(message, "used by volumes") {
		t.Errorf("remove of an image that a volume shows: %d %s", code, message)
	}
	if code, _ := ask(t, http.MethodDelete, server.URL, "", new(any)); code != http.StatusBadRequest {
		t.Errorf("remove without a name: %d", code)
	}
}

func TestImportAndPull(t *testing.T) {
	t.Parallel()
	server, changed := served(t, &shelf{})
	var imported images.Imported
	ask(t, http.MethodPost, server.URL, "app:1", &imported)
	var pulled images.Image
	ask(t, http.MethodPost, server.URL+"?pull=web:1", "", &pulled)
	if !slices.Equal(imported.Names, []string{"app:1"}) || pulled.ID != "sha256:2" || *changed != 2 {
		t.Errorf("imported %v, pulled %+v, %d changes", imported, pulled, *changed)
	}
	if code, message := ask(t, http.MethodPost, server.URL, "garbage", new(any)); code != http.StatusBadRequest ||
		!strings.Contains(message, "docker save") {
		t.Errorf("import of garbage: %d %s", code, message)
	}
	for name, want := range map[string]int{"none:1": http.StatusInternalServerError, "No+Name": http.StatusBadRequest} {
		if code, message := ask(t, http.MethodPost, server.URL+"?pull="+name, "", new(any)); code != want || message == "" {
			t.Errorf("pull of %s: %d %s", name, code, message)
		}
	}
}

// A client must be able to detect an incomplete archive.
func TestSave(t *testing.T) {
	t.Parallel()
	for _, failing := range []error{nil, errors.New("a layer is missing")} {
		server, _ := served(t, &shelf{failing: failing})
		resp, err := http.Get(server.URL + "?save=web:old&save=sha256:2")
		var got []byte
		if err == nil {
			got, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if (err == nil) != (failing == nil) {
			t.Errorf("export error %v: read %q, error %v", failing, got, err)
		}
		if want := []byte("docker.io/library/web:old,docker.io/library/web:1"); failing == nil && !bytes.Equal(got, want) {
			t.Errorf("exported %s, want %s", got, want)
		}
	}
	server, _ := served(t, &shelf{})
	if code, _ := ask(t, http.MethodGet, server.URL+"?save=none:1", "", new(any)); code != http.StatusNotFound {
		t.Errorf("save of a missing image: %d", code)
	}
}

func TestWithoutANode(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(admin.Handler(func(context.Context) *admin.Admin { return nil }))
	defer server.Close()
	if code, message := ask(t, http.MethodGet, server.URL, "", new(any)); code != http.StatusServiceUnavailable ||
		!strings.Contains(message, "still starting") {
		t.Errorf("%d %s", code, message)
	}
	// A client that sends its whole archive before it reads gets the answer too.
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := httptest.NewRequest(http.MethodPost, server.URL, bytes.NewReader(make([]byte, 32<<20)))
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a large archive: %+v, %v", resp, err)
	}
}
