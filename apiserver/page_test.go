package apiserver_test

import (
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
	if code, out := a.read("POST", "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata":{"name":%q}}`, name)); code != 201 {
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

// An expired continue token is answered with a fresh one.
func TestExpiredContinueTokenContinues(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, name := range []string{"a", "b", "c"} {
		a.createConfigMap(name)
	}
	_, next := a.listPage("limit=1")
	for i := range 300 {
		a.read("PATCH", "/api/v1/namespaces/default/configmaps/c", fmt.Sprintf(`{"data":{"n":"%d"}}`, i), "Content-Type: application/merge-patch+json")
	}
	code, status := a.read("GET", "/api/v1/namespaces/default/configmaps?limit=1&continue="+next, "")
	if code != 410 || status["reason"] != "Expired" {
		t.Fatalf("%d %v", code, status)
	}
	fresh := status["metadata"].(map[string]any)["continue"].(string)
	if got, _ := a.listPage("continue=" + url.QueryEscape(fresh)); got != "b c|<nil>" {
		t.Errorf("went on with %s", got)
	}
	if code, status := a.read("GET", "/api/v1/namespaces/default/configmaps?continue=nonsense", ""); code != 400 {
		t.Errorf("a made-up token: %d %v", code, status)
	}
}
