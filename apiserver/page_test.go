package apiserver_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// listPage reads one page of ConfigMaps named c-…, as "names|remaining", and the continue token.
func (a API) listPage(query string) (string, string) {
	a.t.Helper()
	code, list := a.read("GET", "/api/v1/namespaces/default/configmaps?"+query, "")
	if code != 200 {
		a.t.Fatalf("%s: %d %v", query, code, list)
	}
	var names []string
	for _, item := range list["items"].([]any) {
		names = append(names, item.(map[string]any)["metadata"].(map[string]any)["name"].(string))
	}
	meta := list["metadata"].(map[string]any)
	next, _ := meta["continue"].(string)
	return fmt.Sprint(strings.Join(names, " "), "|", meta["remainingItemCount"]), next
}

func (a API) createConfigMap(name string) {
	a.t.Helper()
	if code, out := a.read("POST", "/api/v1/namespaces/default/configmaps",
		fmt.Sprintf(`{"metadata":{"name":%q}}`, name)); code != 201 {
		a.t.Fatalf("%d %v", code, out)
	}
}

// All pages show one revision, despite writes between them.
func TestPagesAreConsistent(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		a.createConfigMap(name)
	}
	first, next := a.listPage("limit=2")
	a.createConfigMap("bb")
	a.read("DELETE", "/api/v1/namespaces/default/configmaps/c", "")
	second, next := a.listPage("limit=2&continue=" + next)
	third, last := a.listPage("limit=2&continue=" + next)
	got := fmt.Sprint([]string{first, second, third, last})
	if want := "[a b|3 c d|1 e|<nil> ]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The response to an expired continue token contains a fresh one.
func TestExpiredContinueTokenContinues(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, name := range []string{"a", "b", "c"} {
		a.createConfigMap(name)
	}
	_, next := a.listPage("limit=1")
	for i := range 300 {
		a.read("PATCH", "/api/v1/namespaces/default/configmaps/c", fmt.Sprintf(`{"data":{"n":"%d"}}`, i),
			"Content-Type: application/merge-patch+json")
	}
	code, status := a.read("GET", "/api/v1/namespaces/default/configmaps?limit=1&continue="+next, "")
	if code != 410 || status["reason"] != "Expired" {
		t.Fatalf("%d %v", code, status)
	}
	fresh := status["metadata"].(map[string]any)["continue"].(string)
	if got, _ := a.listPage("continue=" + url.QueryEscape(fresh)); got != "b c|<nil>" {
		t.Errorf("continued with %s", got)
	}
	if code, status := a.read("GET", "/api/v1/namespaces/default/configmaps?continue=nonsense", ""); code != 400 {
		t.Errorf("an invalid token: %d %v", code, status)
	}
}

// A forged continue token does not select objects of other namespaces or kinds.
func TestHostileContinueTokens(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, name := range []string{"a", "b"} {
		a.createConfigMap(name)
	}
	if code, out := a.read("POST", "/api/v1/namespaces", `{"metadata":{"name":"other"}}`); code != 201 {
		t.Fatal(code, out)
	}
	for _, ns := range []string{"default", "other"} {
		if code, out := a.read("POST", "/api/v1/namespaces/"+ns+"/secrets", `{"metadata":{"name":"secret"}}`); code != 201 {
			t.Fatal(code, out)
		}
	}
	const version = `{"v":"meta.k8s.io/v1",`
	for text, want := range map[string]string{ // the code, and the names if it is 200
		`null`: "400", `[]`: "400", `{}`: "400", `{"v":"v2","rv":1,"start":"a"}`: "400", version +
			`"rv":0,"start":"a"}`: "400", version + `"rv":-2,"start":"a"}`: "400",
		version + `"rv":1e400,"start":"a"}`: "400", version + `"rv":99999999999999999999,"start":"a"}`: "400", version +
			`"rv":-1,"start":""}`: "400", version + `"rv":-1,"start":7}`: "400",
		strings.Repeat(`{"a":`, 20_000): "400",
		// Keys of other namespaces and kinds, and keys that no object can have.
		version + `"rv":-1,"start":"default/a"}`: "200 b", version + `"rv":-1,"start":"a"}`: "200 a b", version +
			`"rv":-1,"start":"other/"}`: "200 ", version + `"rv":-1,"start":"/"}`: "200 a b",
		version + `"rv":-1,"start":"../secrets/default/"}`: "200 a b", version +
			`"rv":-1,"start":"default/../../secrets/other/"}`: "200 a b", version + `"rv":-1,"start":"\u0000"}`: "200 a b",
		version + `"rv":-1,"start":"\uffff"}`: "200 ", version + `"rv":-1,"start":"default/b\u0000"}`: "200 ", version +
			`"rv":-1,"start":"` + strings.Repeat("z", 50_000) + `"}`: "200 ",
		version + `"rv":9223372036854775807,"start":"default/a"}`: "504",
	} {
		code, out := a.read("GET", "/api/v1/namespaces/default/configmaps?limit=5&continue="+
			base64.RawURLEncoding.EncodeToString([]byte(text)), "")
		got := fmt.Sprint(code)
		if code == 200 {
			var names []string
			for _, item := range out["items"].([]any) {
				names = append(names, item.(map[string]any)["metadata"].(map[string]any)["name"].(string))
			}
			got += " " + strings.Join(names, " ")
		}
		if got != want {
			t.Errorf("%.100s: %s %.200v, want %s", text, got, out["message"], want)
		}
	}
}
