package webhooks_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
)

// text returns a handler that sends a text.
func text(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// A misbehaving webhook fails the request unless its failurePolicy is Ignore. The server keeps running.
func TestHostile(t *testing.T) {
	t.Parallel()
	const called, answered = "failed to call webhook: ", "received invalid webhook response: "
	for _, c := range []struct {
		name   string
		handle http.HandlerFunc
		want   string // part of the error; empty: the request succeeds
		closed bool   // the request fails even with failurePolicy Ignore
	}{
		{"not JSON", text(200, "hello"), called + "couldn't get version/kind; json parse error: ", false},
		{"nothing", text(200, ""), called + "couldn't get version/kind; json parse error: ", false},
		{"a list", text(200, "[]"), called, false},
		{"null", text(200, "null"), answered + "webhook response was absent", false},
		{"no response", text(200, "{}"), answered + "webhook response was absent", false},
		{"wrong UID",
			text(200, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":true}}`),
			answered + `expected response.uid="`, false},
		{"deep", text(200, strings.Repeat(`{"a":`, 100000)), called, false},
		{"huge", text(200, strings.Repeat(" ", 9<<20)), called + "the response is larger than 8388608 bytes", false},
		{"huge by its header", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "9000000000")
			_ = http.NewResponseController(w).Flush() // send nothing else
			<-r.Context().Done()
		}, called + "the response is larger than 8388608 bytes", false},
		{"404", text(404, "x"), called + "the server could not find the requested resource", false},
		{"500", text(500, strings.Repeat("x", 1<<20)), called + `an error on the server ("xxx`, false},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusTemporaryRedirect)
		},
			called + "the server responded with the status code 307", false},
		{"hang up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, called + "Post ", false},
		{"slow", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of the connection only then
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // send no response
		}, "context deadline exceeded", false},
		{"not a patch", reply(t, "{}"), "received undecodable patch in webhook response: ", false},
		{"an empty patch", reply(t, "[]"), "", false},
		{"a patch of null", reply(t, "null"), "", false},
		{"a patch that does not fit", reply(t, `[{"op":"remove","path":"/data/none"}]`), "Unable to remove nonexistent key",
			true},
		{"a patch with an unknown operation", reply(t, `[{"op":"boom","path":"/data"}]`), "boom", true},
		{"a patch with null", reply(t, `[null]`), "Internal error occurred", true},
		{"a patch without an object", reply(t, `[{"op":"replace","path":"","value":7}]`), "Internal error occurred", true},
		{"a patch without a value", reply(t, `[{"op":"remove","path":""}]`), "Internal error occurred", true},
		{"a patch with a wrong type", reply(t, `[{"op":"add","path":"/data","value":"text"}]`), "cannot unmarshal string",
			true},
		{"a patch of the kind", reply(t, `[{"op":"replace","path":"/kind","value":"Secret"}]`), "admission changed the kind",
			true},
		{"a patch of the namespace", reply(t, `[{"op":"replace","path":"/metadata/namespace","value":"other"}]`),
			"does not match the namespace sent on the request", true},
		{"a patch of the name to an invalid one", reply(t, `[{"op":"replace","path":"/metadata/name","value":"A B"}]`),
			"metadata.name: Invalid value", true},
		{"a patch that copies without end",
			reply(t, "["+strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"/data","path":"/data/x"},`, 5000), ",")+"]"),
			"Internal error occurred", true},
		{"a patch with too many operations",
			reply(t, "["+strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"/kind","value":"ConfigMap"},`, 10001), ",")+
				"]"), "allowed maximum operations", true},
		{"a patch that is too large", reply(t, `[{"op":"add","path":"/data/x","value":"`+strings.Repeat("x", 3<<20)+`"}]`),
			"bytes, limit is 3145728", true},
		{"a deep patch",
			reply(t, `[{"op":"add","path":"/x","value":`+strings.Repeat(`{"a":`, 5000)+"1"+strings.Repeat("}", 5000)+`}]`),
			"nested more than 256 levels", true},
		{"a patch without a type", reviewing(t, func(*reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
			return &reviewv1.AdmissionResponse{Allowed: true, Patch: []byte("[]")}
		}), answered + "webhook returned response.patch but not response.patchType", false},
		{"a type without a patch", reviewing(t, func(*reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
			return &reviewv1.AdmissionResponse{Allowed: true, PatchType: new(reviewv1.PatchTypeJSONPatch)}
		}), answered + "webhook returned response.patchType but not response.patch", false},
		{"an unknown type", reviewing(t, func(*reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
			return &reviewv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"test","path":"","value":1}]`),
				PatchType: new(reviewv1.PatchType("Other"))}
		}), `unsupported patch type "Other"`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := open(t, nil)
			strict := hook("h.example.com", serve(t, c.handle), on("", "v1", "configmaps"))
			strict.TimeoutSeconds = new(int32(1))
			if c.name != "slow" {
				strict.TimeoutSeconds = new(int32(30))
			}
			strict.ObjectSelector = selector("strict", "yes")
			lax := strict
			lax.ObjectSelector, lax.FailurePolicy = selector("strict", "no"), new(admissionv1.Ignore)
			k.mutating("strict", strict)
			k.mutating("lax", lax)
			for _, word := range []string{"yes", "no"} {
				obj := config("x-"+word, map[string]string{"a": "b"})
				obj.Labels = map[string]string{"strict": word}
				made, err := k.Create(k.ctx, obj)
				switch {
				case c.want == "" || word == "no" && !c.closed:
					if err != nil {
						t.Errorf("strict=%s: %v", word, err)
					} else if made.(*corev1.ConfigMap).Data["a"] != "b" {
						t.Errorf("stored %v", made)
					}
				case err == nil:
					t.Errorf("strict=%s: it passed, want %q", word, c.want)
				case !strings.Contains(err.Error(), c.want):
					t.Errorf("strict=%s: %.600v, want %q", word, err, c.want)
				}
			}
		})
	}
}

// reply returns a handler that responds with a patch.
func reply(t *testing.T, text string) http.HandlerFunc {
	return reviewing(t, func(*reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse { return patch(text) })
}
