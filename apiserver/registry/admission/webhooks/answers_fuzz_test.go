package webhooks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

// FuzzAnswers answers an AdmissionReview with a status code and a text, in which UID is replaced by the right UID, or
// with a patch. For any response, the object is stored as a valid object of its kind, or rejected: without a panic and
// within seconds. A validating webhook changes nothing.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []struct {
		code  int
		patch bool
		text  string
	}{
		{200, false, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true}}`},
		{200, false, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"other","allowed":true}}`},
		{200, false, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID",` +
			`"allowed":false,"status":{"code":1000000,"reason":"x","message":"y"}}}`},
		{200, false, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true,` +
			`"warnings":["a\u0000b"],"auditAnnotations":{"":""}}}`},
		{200, false, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":null}`},
		{307, false, "x"}, {500, false, "{}"}, {204, false, ""}, {99, false, ""},
		{200, true, `[{"op":"add","path":"/data/x","value":"y"}]`}, {200, true, `[{"op":"replace","path":"","value":{}}]`},
		{200, true, `[{"op":"copy","from":"","path":"/data/x"}]`},
		{200, true, `[{"op":"move","from":"/metadata","path":"/data"}]`},
		{200, true, `[{"op":"remove","path":"/metadata/name"},{"op":"add","path":"/metadata/finalizers/-","value":"a"}]`},
		{200, true, `[{"op":"test","path":"/data/~2","value":1e999}]`}, {200, true, `{"op":"add"}`},
		{200, true, `[{"op":"move","from":"/data","path":"/"}]`}, // cannot be applied twice
	} {
		f.Add(seed.code, seed.patch, []byte(seed.text))
	}
	type reply struct {
		code  int
		patch bool
		text  []byte
	}
	var now atomic.Pointer[reply]
	c := open(f, nil)
	to := serve(f, func(w http.ResponseWriter, r *http.Request) {
		var review reviewv1.AdmissionReview
		if data, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(data, &review) != nil {
			return
		}
		say := now.Load()
		if say.patch {
			review.Response = patch(string(say.text))
			review.Response.UID, review.Request = review.Request.UID, nil
			_ = json.NewEncoder(w).Encode(review)
			return
		}
		w.Header().Set("Location", "https://127.0.0.1:1/")
		w.WriteHeader(min(max(say.code, 200), 999))
		_, _ = w.Write(bytes.ReplaceAll(say.text, []byte("UID"), []byte(review.Request.UID)))
	})
	h := hook("h.example.com", to, on("", "v1", "configmaps"))
	h.TimeoutSeconds, h.FailurePolicy = new(int32(10)), new(admissionv1.Fail)
	h.ObjectSelector = selector("kind", "mutating")
	c.mutating("m", h)
	h.ObjectSelector = selector("kind", "validating")
	c.validating("v", h)
	allows := &reply{200, false,
		[]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true}}`)}
	f.Fuzz(func(t *testing.T, code int, patches bool, text []byte) {
		for _, kind := range []string{"mutating", "validating"} {
			now.Store(&reply{code, patches, text})
			obj := config("", map[string]string{"a": "b"})
			obj.GenerateName, obj.Labels = "x-", map[string]string{"kind": kind}
			began := time.Now()
			made, err := c.Create(c.ctx, obj)
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("%s took %v", kind, took)
			}
			if err != nil {
				if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
					t.Errorf("%s: %v", kind, err)
				}
				continue
			}
			stored := made.(*corev1.ConfigMap)
			if stored.Namespace != "default" || stored.Name == "" || stored.UID == "" || kind == "validating" &&
				(len(stored.Data) != 1 || stored.Data["a"] != "b") {
				t.Errorf("%s: stored %+v", kind, stored)
			}
			now.Store(allows) // the stored object is valid
			if _, err := client.Update(context.Background(), c.Registry, stored, "",
				func(cm *corev1.ConfigMap) error { cm.Finalizers = nil; return nil }); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: the object cannot be updated: %v", kind, err)
			}
			_, _ = c.Delete(context.Background(), client.RefOf(stored), metav1.DeleteOptions{})
		}
	})
}
