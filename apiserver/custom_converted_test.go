package apiserver_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The server converts a long list while it sends it. If the webhook fails for the last objects, the client gets a
// Status, or an incomplete response if the server has already sent much of the list.
func TestConversionFailsLate(t *testing.T) {
	t.Parallel()
	a := serve(t)
	var works atomic.Bool
	a.convertedBy(`"v1"`, func() reply {
		return func(asked *apiextensionsv1.ConversionReview) any {
			r := turn(asked).(*apiextensionsv1.ConversionReview)
			for i := range r.Response.ConvertedObjects {
				u := r.Response.ConvertedObjects[i].Object.(*unstructured.Unstructured)
				if u.GetName() == "x99" && !works.Load() { // the last one
					return "down"
				}
				u.Object["spec"].(map[string]any)["color"] = strings.Repeat("x", 15_000)
			}
			return r
		}
	})
	v1, v2 := fmt.Sprintf(turnsAt, "v1"), fmt.Sprintf(turnsAt, "v2")
	const objects = 501 // two calls
	for i := range objects {
		if code, out := a.read("POST", v2, turnOf("v2", fmt.Sprint("x", i), "count", i%9)); code != http.StatusCreated {
			t.Fatalf("%d %.300v", code, out)
		}
	}
	resp := a.do("GET", v1, "")
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || resp.StatusCode != http.StatusOK || n == 0 {
		t.Errorf("%d, %d bytes, %v; want an incomplete response", resp.StatusCode, n, err)
	}
	for _, c := range []struct{ name, method, accept string }{
		{"metadata", "GET", "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
		{"Table", "GET", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"},
		{"delete all", "DELETE", "Accept: application/json"},
	} {
		code, out := a.read(c.method, v1, "", c.accept)
		if says := fmt.Sprint(out["message"]); code != http.StatusInternalServerError ||
			!strings.Contains(says, "conversion webhook for example.com/v2, Kind=Turn failed") {
			t.Errorf("%s: %d %.300v", c.name, code, out)
		}
	}
	works.Store(true)
	if _, list := a.read("GET", v1, ""); len(list["items"].([]any)) != objects-500 {
		t.Errorf("%d objects, want those that could not be converted", len(list["items"].([]any)))
	}
}

// Kinds that are stored as another kind also have lists in protobuf.
func TestViewsInProtobuf(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const hpa = `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},` +
		`"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`
	if code, out := a.read("POST", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
		hpa); code != http.StatusCreated {
		t.Fatal(code, out)
	}
	for path, want := range map[string]string{"/apis/autoscaling/v1/horizontalpodautoscalers": "autoscaling/v1",
		"/apis/events.k8s.io/v1/events": "events.k8s.io/v1"} {
		resp := a.do("GET", path, "", "Accept: application/vnd.kubernetes.protobuf")
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(data), "k8s\x00") ||
			!strings.Contains(string(data), want) {
			t.Errorf("%s: %d %.300q, %v", path, resp.StatusCode, data, err)
		}
	}
}
