package client_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
)

// server answers requests by their query, and records the queries.
type server struct {
	asked  []string
	answer func(query string) (code int, body string)
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, r.URL.RawQuery)
	code, body := s.answer(r.URL.RawQuery)
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (s *server) client(page int, most int64) *client.Remote {
	return &client.Remote{URL: "https://other", HTTP: &http.Client{Transport: s}, Page: page, MaxList: most,
		MaxObject: most,
		New:       func(schema.GroupVersionResource, string) client.Object { return &corev1.ConfigMap{} }}
}

// listOf returns a list of config maps with the names.
func listOf(revision, next string, names ...string) string {
	var items []string
	for _, name := range names {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	}
	return fmt.Sprintf(`{"kind":"List","metadata":{"resourceVersion":%q,"continue":%q},"more":{"a":[1]},"items":[%s]}`,
		revision, next, strings.Join(items, ","))
}

const expired = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too ` +
	`old","code":410}`

func TestRemoteList(t *testing.T) {
	t.Parallel()
	always := func(body string) func(string) (int, string) { return func(string) (int, string) { return 200, body } }
	for name, c := range map[string]struct {
		page                        int
		most                        int64
		answer                      func(query string) (int, string)
		names, revision, err, asked string
	}{
		"unlimited": {answer: always(listOf("7", "", "a", "b")), names: "a b", revision: "7", asked: "[]"},
		"empty": {page: 2, answer: always(`{"items":null,"metadata":{"resourceVersion":"7"}}`), revision: "7",
			asked: "[limit=2]"},
		"pages": {page: 2, most: 1 << 20, names: "a b c", revision: "7", asked: "[limit=2 continue=x&limit=2]",
			answer: func(query string) (int, string) {
				if strings.Contains(query, "continue") {
					return 200, listOf("9", "", "c")
				}
				return 200, listOf("7", "x", "a", "b")
			}},
		"a server without pages": {page: 1, most: 1 << 20, answer: always(listOf("7", "", "a", "b", "c")), names: "a b c",
			revision: "7", asked: "[limit=1]"},
		"expired": {page: 1, names: "a b", revision: "9", asked: "[limit=1 continue=x&limit=1 ]",
			answer: func(query string) (int, string) {
				switch query {
				case "limit=1":
					return 200, listOf("7", "x", "a")
				case "":
					return 200, listOf("9", "", "a", "b")
				}
				return 410, expired
			}},
		"expired without pages": {answer: func(string) (int, string) { return 410, expired }, err: "too old", asked: "[]"},
		"within the limit": {most: int64(len(listOf("7", "", "a"))), answer: always(listOf("7", "", "a")), names: "a",
			revision: "7", asked: "[]"},
		"too large": {most: 30, answer: always(listOf("7", "", "a")),
			err: "the response of https://other/api/v1/configmaps is larger than 30 bytes", asked: "[]"},
		"endless": {page: 1, most: 150 << 10, answer: always(listOf("7", "x")),
			err:   "the response of https://other/api/v1/configmaps is larger than 153600 bytes",
			asked: "[limit=1 continue=x&limit=1 continue=x&limit=1]"},
		"not a list":     {answer: always(`[]`), err: "client: [ in a list where { is expected", asked: "[]"},
		"items of a map": {answer: always(`{"items":{"a":{}}}`), err: "client: { in a list where [ is expected", asked: "[]"},
		"truncated": {answer: always(`{"items":[{"metadata":{}}`), err: "client: a list of configmaps: unexpected EOF",
			asked: "[]"},
		"another kind": {answer: always(`{"items":[7]}`), err: "cannot unmarshal number", asked: "[]"},
		"an error that is not a Status": {answer: func(string) (int, string) { return 500, "oops" },
			err:   "GET /api/v1/configmaps",
			asked: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{answer: c.answer}
			objs, revision, err := s.client(c.page, c.most).List(t.Context(), client.Selector{Resource: client.ConfigMaps})
			var names []string
			for _, obj := range objs {
				names = append(names, obj.GetName())
			}
			if strings.Join(names, " ") != c.names || revision != c.revision || fmt.Sprint(s.asked) != c.asked {
				t.Errorf("%v %q, asked %v", names, revision, s.asked)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

// The client does not read an object or an event that is larger than MaxObject to its end.
func TestRemoteBoundsObjects(t *testing.T) {
	t.Parallel()
	small, large := `{"metadata":{"name":"a"}}`, `{"metadata":{"name":"`+strings.Repeat("a", 100)+`"}}`
	event := func(obj string) string { return `{"type":"ADDED","object":` + obj + "}\n" }
	s := &server{answer: func(string) (int, string) { return 200, large }}
	c, ref := s.client(0, 90), client.Ref{Resource: client.ConfigMaps, Namespace: "x", Name: "a"}
	want := "the response of https://other/api/v1/namespaces/x/configmaps/a is larger than 90 bytes"
	if _, err := c.Get(t.Context(), ref); err == nil || err.Error() != want {
		t.Errorf("get: %v", err)
	}
	s.answer = func(string) (int, string) { return 200, small }
	if _, err := c.Get(t.Context(), ref); err != nil {
		t.Errorf("get within the limit: %v", err)
	}
	deleted := 0
	s.answer = func(string) (int, string) {
		if deleted++; deleted == 1 { // Delete gets the object first
			return 200, small
		}
		return 200, large
	}
	if _, err := c.Delete(t.Context(), ref, metav1.DeleteOptions{}); err == nil || err.Error() != want {
		t.Errorf("delete: %v", err)
	}
	s.answer = func(string) (int, string) { return 200, strings.Repeat(event(small), 5) + event(large) + event(small) }
	events, err := c.Watch(t.Context(), client.Selector{Resource: client.ConfigMaps}, "7")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for range events {
		seen++
	}
	if seen != 5 {
		t.Errorf("%d events before the large one", seen)
	}
}
