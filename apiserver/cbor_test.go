package apiserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// inCBOR encodes JSON as self-described CBOR.
func inCBOR(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	data, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return "\xd9\xd9\xf7" + string(data)
}

// exchange sends a CBOR body and decodes the CBOR response into into.
func (a API) exchange(method, path, body, contentType string, into any) int {
	a.t.Helper()
	resp := a.do(method, path, body, "Content-Type: "+contentType, "Accept: application/cbor")
	data := readBody(a.t, resp)
	if got := resp.Header.Get("Content-Type"); got != "application/cbor" || !strings.HasPrefix(data, "\xd9\xd9\xf7") {
		a.t.Errorf("%s %s: %s, %q", method, path, got, data)
	}
	if err := direct.Unmarshal([]byte(data), into); err != nil {
		a.t.Errorf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode
}

func TestCBOR(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.define(widgets)
	const plain, apply = "application/cbor", "application/apply-patch+cbor"
	secrets := strings.Replace(confs, "configmaps", "secrets", 1)

	var secret corev1.Secret
	if code := a.exchange("POST", secrets, inCBOR(t, `{"metadata":{"name":"s"},"data":{"k":"aGk="}}`), plain,
		&secret); code != 201 || string(secret.Data["k"]) != "hi" || secret.UID == "" {
		t.Errorf("%d, %+v", code, secret)
	}
	// Encodes bytes with a tag.
	typed, err := direct.Marshal(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "typed"}, Data: map[string][]byte{"k": {0, 255, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if code := a.exchange("POST", secrets, string(typed), plain, &secret); code != 201 ||
		!bytes.Equal(secret.Data["k"], []byte{0, 255, 1}) {
		t.Errorf("%d, %+v", code, secret)
	}
	var list corev1.SecretList
	if code := a.exchange("GET", secrets, "", plain, &list); code != 200 || len(list.Items) != 2 ||
		list.ResourceVersion == "" || list.Kind != "SecretList" {
		t.Errorf("%d, %+v", code, list)
	}
	var widget map[string]any
	for _, step := range []struct {
		method, path, body, typ string
		code                    int
	}{
		{"POST", widgetsAt, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":3}}`,
			plain, 201},
		{"PATCH", widgetsAt + "/w?fieldManager=m&force=true",
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":4}}`, apply, 200},
		{"GET", widgetsAt + "/w", `null`, plain, 200},
	} {
		if code := a.exchange(step.method, step.path, inCBOR(t, step.body), step.typ, &widget); code != step.code ||
			widget["kind"] != "Widget" {
			t.Errorf("%s: %d, %v", step.method, code, widget)
		}
	}
	if size := widget["spec"].(map[string]any)["size"]; size != int64(4) {
		t.Errorf("size %v (%T)", size, size)
	}
	var status metav1.Status
	if code := a.exchange("DELETE", secrets+"/none", inCBOR(t, `{"gracePeriodSeconds":0}`), plain, &status); code != 404 ||
		status.Reason != metav1.StatusReasonNotFound {
		t.Errorf("%d, %+v", code, status)
	}
	for body, want := range map[string]string{
		"\xff": "the body is not valid CBOR:",
		inCBOR(t, `{"metadata":{"name":"x"},"data":{"k":7}}`):   "cannot unmarshal number",
		strings.Repeat("\x81", 1000) + "\x00":                   "must not be nested more than 256 levels deep",
		"\x9a\x00\x20\x00\x00" + strings.Repeat("\xa0", 2<<20):  "decoding the body would take",
		"\xa1\x41a\x99\x40\x00" + strings.Repeat("\x00", 1<<14): "too many",
	} {
		if code := a.exchange("POST", secrets, body, plain, &status); code < 400 || code >= 500 ||
			!strings.Contains(strings.ToLower(status.Message), strings.ToLower(want)) {
			t.Errorf("%.20q: %d %.300s, want %q", body, code, status.Message, want)
		}
	}
	if resp := a.do("PATCH", widgetsAt+"/w", inCBOR(t, `{}`),
		"Content-Type: application/cbor"); resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("a patch without a type: %s", resp.Status)
	}
}

// Lists of any length are documents that Kubernetes' clients read, also those that are sent item by item, and as
// tables.
func TestCBORLists(t *testing.T) {
	t.Parallel()
	a := serve(t)
	var table metav1.Table
	for _, count := range []int{0, 1, 30} {
		for i := len(table.Rows); i < count; i++ {
			body := fmt.Sprintf(`{"metadata":{"name":"c%02d"},"data":{"k":%q}}`, i, strings.Repeat("x", 20_000))
			if resp := a.do("POST", confs, body); resp.StatusCode != http.StatusCreated {
				t.Fatal(resp.Status)
			}
		}
		var list corev1.ConfigMapList
		if code := a.exchange("GET", confs, "", "application/cbor", &list); code != 200 || len(list.Items) != count ||
			list.Kind != "ConfigMapList" || list.ResourceVersion == "" {
			t.Errorf("%d: %d, %d items", count, code, len(list.Items))
		}
		if count > 0 &&
			(list.Items[count-1].Name != fmt.Sprintf("c%02d", count-1) || len(list.Items[count-1].Data["k"]) != 20_000) {
			t.Errorf("%d: the last one is %.300v", count, list.Items[count-1])
		}
		resp := a.do("GET", confs, "", "Accept: application/cbor;as=Table;v=v1;g=meta.k8s.io")
		if err := direct.Unmarshal([]byte(readBody(t, resp)), &table); err != nil || len(table.Rows) != count ||
			len(table.ColumnDefinitions) == 0 {
			t.Errorf("%d: %v, %d rows", count, err, len(table.Rows))
		}
	}
}

// A watch is a sequence of documents.
func TestCBORWatch(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", confs, `{"metadata":{"name":"a"}}`)
	a.read("POST", confs, `{"metadata":{"name":"b"}}`)
	resp := a.do("GET", confs+"?watch=1&timeoutSeconds=1&resourceVersion=0&allowWatchBookmarks=true", "",
		"Accept: application/cbor")
	if got := resp.Header.Get("Content-Type"); got != "application/cbor-seq" {
		t.Errorf("content type %s", got)
	}
	data, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, document := range bytes.Split(data, []byte("\xd9\xd9\xf7"))[1:] {
		var event metav1.WatchEvent
		var meta metav1.PartialObjectMetadata
		err := direct.Unmarshal(document, &event)
		if err == nil {
			err = direct.Unmarshal(event.Object.Raw, &meta)
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, event.Type+" "+meta.Name)
	}
	if got := fmt.Sprint(names); !strings.HasPrefix(got, "[ADDED a ADDED b") {
		t.Error(got)
	}
}
