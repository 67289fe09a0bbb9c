package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/virtual"
	"monopod/store"
)

// serveOf is like serve, with more resources, and answers for the virtual ones.
func serveOf(t *testing.T, answers virtual.Answers, more ...registry.Resource) API {
	t.Helper()
	resources := append(registry.Resources(), more...)
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources), History: 200}, nil, nil, 0)
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv, err := apiserver.New(t.Context(),
		apiserver.Config{Registry: reg, Authenticator: auth.Token(token, auth.Admin), Answers: answers})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv.Handler())
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return API{t, h.URL, h.Client(), reg}
}

func testGVR(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "test.monopod", Version: "v1", Resource: resource}
}

func review() registry.Resource {
	return registry.Resource{GVR: testGVR("reviews"), Kind: "Review", Virtual: true, Verbs: []string{"create"},
		New: func() registry.Object { return &authorizationv1.SelfSubjectAccessReview{} }}
}

func healths() registry.Resource {
	return registry.Resource{GVR: testGVR("healths"), Kind: "Health", Virtual: true, Verbs: []string{"get", "list"},
		Subresources: []kind.Subresource{tokens()}, New: func() registry.Object { return &corev1.ComponentStatus{} }}
}

func tokens() kind.Subresource {
	return kind.Posted("token", authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		func() registry.Object { return &authenticationv1.TokenRequest{} })
}

func TestComputedResources(t *testing.T) {
	t.Parallel()
	part := &corev1.ComponentStatus{TypeMeta: metav1.TypeMeta{Kind: "Health", APIVersion: "test.monopod/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	a := serveOf(t, virtual.Answers{
		testGVR("reviews"): {Create: func(_ context.Context, _ client.Ref, obj registry.Object) (runtime.Object, error) {
			r := obj.(*authorizationv1.SelfSubjectAccessReview)
			r.Status.Allowed = r.Spec.ResourceAttributes.Verb == "get"
			return r, nil
		}},
		testGVR("healths"): {
			Get: func(_ context.Context, ref client.Ref) (registry.Object, error) {
				if ref.Name != "a" {
					return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
				}
				return part, nil
			},
			List: func(context.Context, client.Selector) ([]registry.Object, error) { return []registry.Object{part}, nil },
		},
		testGVR("healths/token"): {
			Create: func(_ context.Context, ref client.Ref, obj registry.Object) (runtime.Object, error) {
				out := obj.(*authenticationv1.TokenRequest)
				out.Status.Token = "of " + ref.Name
				return out, nil
			},
		},
	}, review(), healths())
	const root = "/apis/test.monopod/v1"
	for name, c := range map[string]struct {
		method, path, body string
		code               int
		says               string
	}{
		"review": {"POST", root + "/reviews", `{"spec":{"resourceAttributes":{"verb":"get"}}}`, 201,
			`"allowed":true`},
		"review read":     {"GET", root + "/reviews", "", 405, "MethodNotAllowed"},
		"get":             {"GET", root + "/healths/a", "", 200, `"name":"a"`},
		"get none":        {"GET", root + "/healths/b", "", 404, "NotFound"},
		"list":            {"GET", root + "/healths", "", 200, `"items":[{`},
		"watch":           {"GET", root + "/healths?watch=1", "", 405, "MethodNotAllowed"},
		"create":          {"POST", root + "/healths", "{}", 405, "MethodNotAllowed"},
		"token":           {"POST", root + "/healths/a/token", `{}`, 201, `"token":"of a"`},
		"token of a pod":  {"POST", root + "/healths/a/token", `{"kind":"Pod","apiVersion":"v1"}`, 400, "TokenRequest"},
		"token, not read": {"GET", root + "/healths/a/token", "", 405, "MethodNotAllowed"},
	} {
		resp := a.do(c.method, c.path, c.body, asJSON)
		data := readBody(t, resp)
		if resp.StatusCode != c.code || !strings.Contains(data, c.says) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, data)
		}
	}
	const table, partial = "application/json;as=Table;v=v1;g=meta.k8s.io",
		"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	for accept, want := range map[string]string{
		table:                       "406 Status",
		table + ",application/json": "201 SelfSubjectAccessReview",
		partial:                     "201 PartialObjectMetadata",
	} {
		code, out := a.read("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}`, asJSON, "Accept: "+accept)
		if got := fmt.Sprint(code, " ", out["kind"]); got != want {
			t.Errorf("%s: %s, want %s", accept, got, want)
		}
	}
}

// Tables and PartialObjectMetadata, and the objects inside them, have the version of meta.k8s.io that the client
// requests.
func TestVersionsOfShapes(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", confs, `{"metadata":{"name":"a"}}`, asJSON)
	versions := regexp.MustCompile(`meta\.k8s\.io/\w+`)
	for _, c := range []struct{ path, media, as string }{
		{confs, "application/json", "Table"},
		{confs + "/a", "application/json", "Table"},
		{confs + "?watch=1&timeoutSeconds=1", "application/json", "Table"},
		{confs, "application/json", "PartialObjectMetadataList"},
		{confs, "application/vnd.kubernetes.protobuf", "PartialObjectMetadataList"},
		{confs + "/a", "application/json", "PartialObjectMetadata"},
		{confs + "/a", "application/vnd.kubernetes.protobuf", "PartialObjectMetadata"},
		{confs + "?watch=1&timeoutSeconds=1", "application/json", "PartialObjectMetadata"},
		{confs + "?watch=1&timeoutSeconds=1", "application/vnd.kubernetes.protobuf", "PartialObjectMetadata"},
	} {
		for _, version := range []string{"v1", "v1beta1"} {
			t.Run(strings.Join([]string{c.as, c.media, c.path, version}, " "), func(t *testing.T) {
				t.Parallel() // a watch waits for a second
				resp := a.do("GET", c.path, "", "Accept: "+c.media+";as="+c.as+";g=meta.k8s.io;v="+version)
				got := versions.FindAllString(readBody(t, resp), -1)
				slices.Sort(got)
				if fmt.Sprint(slices.Compact(got)) != "[meta.k8s.io/"+version+"]" || resp.StatusCode != http.StatusOK {
					t.Errorf("%d %s", resp.StatusCode, got)
				}
			})
		}
	}
	for accept, want := range map[string]string{"": "v1", "g=meta.k8s.io": "v1", "v=v1beta1": "v1beta1"} {
		if _, got := a.read("GET", confs, "", "Accept: application/json;as=Table;"+
			accept); got["apiVersion"] != "meta.k8s.io/"+want {
			t.Errorf("%q: %v", accept, got["apiVersion"])
		}
	}
}

func readBody(t *testing.T, resp *http.Response) string {
	t.Helper()
	var b strings.Builder
	if _, err := io.Copy(&b, resp.Body); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
