package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzApply: no patch panics or causes an internal error.
func FuzzApply(f *testing.F) {
	with := func(container string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[` + container + `]}}`
	}
	for _, s := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","data":{"x":"1"}}`, `{"apiVersion":"v1","kind":"ConfigMap","data":null}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":null}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"finalizers":[null,1,"x/a","x/a"]}}`, `{}`, `null`, `[]`,
		"a: &a [*a]",
		with(`{"name":"c","image":"i","ports":[{"containerPort":80},{"containerPort":80}]}`), with(`null`),
		with(`{"name":null}`),
		with(`{"name":"c","resources":{"limits":{"cpu":1e3,"memory":"x"}}}`), with(`{"env":[{"name":"a"},{"name":"a"}]}`),
		`{"apiVersion":"v1","kind":"Pod","metadata":{"managedFields":[{}]},"spec":{"$patch":"delete"}}`,
		"apiVersion: v1\nkind: Pod\nspec: !!binary x",
	} {
		f.Add(false, s)
		f.Add(true, s)
	}
	h := fuzzed(f)
	f.Fuzz(func(t *testing.T, ofPod bool, body string) {
		path := "/api/v1/namespaces/default/configmaps/a"
		if ofPod {
			path = "/api/v1/namespaces/default/pods/a"
		}
		r := httptest.NewRequest(http.MethodPatch, path+"?dryRun=All&force=true&fieldManager=fuzz", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
		sane(t, h, r)
	})
}
