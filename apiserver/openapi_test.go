package apiserver_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
)

// Clients cache a document by its hash, which they get from the index; an outdated hash is redirected to the
// current one.
func TestOpenAPIByHash(t *testing.T) {
	t.Parallel()
	a := serve(t)
	at := indexed(a, "apis/apps/v1")
	resp := a.do("GET", at, "")
	expires, err := http.ParseTime(resp.Header.Get("Expires"))
	if resp.StatusCode != http.StatusOK || err != nil || time.Until(expires) < 300*24*time.Hour ||
		resp.Header.Get("Cache-Control") != "public, immutable" || resp.Header.Get("Vary") != "Accept" {
		t.Errorf("got %s %v", resp.Status, resp.Header)
	}
	if hash := strings.Trim(resp.Header.Get("Etag"), `"`); !strings.HasSuffix(at, "?hash="+hash) {
		t.Errorf("%s has the tag %s", at, hash)
	}
	if again := a.do("GET", at, "", "If-None-Match: "+
		resp.Header.Get("Etag")); again.StatusCode != http.StatusNotModified {
		t.Errorf("with If-None-Match: %s", again.Status)
	}
	if plain := a.do("GET", "/openapi/v3/apis/apps/v1", ""); plain.StatusCode != http.StatusOK ||
		plain.Header.Get("Expires") != "" {
		t.Errorf("without a hash: %s, expires %q", plain.Status, plain.Header.Get("Expires"))
	}
	a.hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if old := a.do("GET", "/openapi/v3/apis/apps/v1?hash=OLD", ""); old.StatusCode != http.StatusMovedPermanently ||
		old.Header.Get("Location") != at {
		t.Errorf("with an outdated hash: %s %s", old.Status, old.Header.Get("Location"))
	}
	if code, _ := a.read("GET", "/openapi/v3/apis/nobody.example/v1", ""); code != http.StatusNotFound {
		t.Errorf("a group that is not served: %d", code)
	}
}

func indexed(a API, name string) string {
	a.t.Helper()
	_, index := a.read("GET", "/openapi/v3", "")
	at, _ := index["paths"].(map[string]any)[name].(map[string]any)["serverRelativeURL"].(string)
	if at == "" {
		a.t.Fatalf("%s is not in %v", name, index)
	}
	return at
}

// client-go requests protobuf, in older versions with an @; unknown types get 406.
func TestOpenAPIFormats(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const v2, v3 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
		"application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	for _, c := range []struct {
		path, accept, want string
		into               proto.Message
	}{
		{"/openapi/v2", "", "application/json", nil},
		{"/openapi/v2", "*/*", "application/json", nil},
		{"/openapi/v2", strings.Replace(v2, ".v1.0", "@v1.0", 1), v2, &openapi_v2.Document{}},
		{"/openapi/v2", v2 + ", application/json;q=0.5", v2, &openapi_v2.Document{}},
		{"/openapi/v3/api/v1", strings.Replace(v3, ".v1.0", "@v1.0", 1), v3, &openapi_v3.Document{}},
		{"/openapi/v3/api/v1", "application/json", "application/json", nil},
	} {
		resp := a.do("GET", c.path, "", "Accept: "+c.accept)
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.Header.Get("Content-Type") != c.want {
			t.Errorf("%s %s: got %s, %v", c.path, c.accept, resp.Header.Get("Content-Type"), err)
		}
		switch {
		case c.into == nil && !json.Valid(data):
			t.Errorf("%s %s: not JSON", c.path, c.accept)
		case c.into != nil &&
			(proto.Unmarshal(data, c.into) != nil || !strings.Contains(string(data), "io.k8s.api.core.v1.Pod")):
			t.Errorf("%s %s: the response does not contain the document", c.path, c.accept)
		}
	}
	if resp := a.do("GET", "/openapi/v2", "", "Accept: text/html"); resp.StatusCode != http.StatusNotAcceptable {
		t.Errorf("HTML: %s", resp.Status)
	}
}
