package apiserver_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

const (
	typedClient = "Accept: application/vnd.kubernetes.protobuf,application/json"
	onlyProto   = "Accept: application/vnd.kubernetes.protobuf"
)

// asTyped decodes protobuf as client-go does.
func asTyped() *protobuf.Serializer {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, autoscalingv1.AddToScheme,
		metav1.AddMetaToScheme} {
		utilruntime.Must(add(scheme))
	}
	return protobuf.NewSerializer(scheme, scheme)
}

func (a API) readTyped(method, path, body string, header ...string) (int, runtime.Object) {
	a.t.Helper()
	resp := a.do(method, path, body, header...)
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	if typ := resp.Header.Get("Content-Type"); typ != "application/vnd.kubernetes.protobuf" {
		a.t.Fatalf("%s %s: %s: %s", method, path, typ, data)
	}
	obj, _, err := asTyped().Decode(data, nil, nil)
	if err != nil {
		a.t.Fatalf("%s %s: %v: %q", method, path, err, data)
	}
	return resp.StatusCode, obj
}

func TestProtobufAnswers(t *testing.T) {
	t.Parallel()
	a := serve(t)
	code, created := a.readTyped("POST", pods, podA, typedClient, asJSON)
	pod, ok := created.(*corev1.Pod)
	if code != http.StatusCreated || !ok || pod.Name != "a" || pod.Spec.RestartPolicy != "Always" {
		t.Fatalf("%d %v", code, created)
	}
	a.read("POST", pods, strings.Replace(podA, `"a"`, `"b"`, 1))
	if _, got := a.readTyped("GET", pods+"/a", "", typedClient); got.(*corev1.Pod).UID != pod.UID {
		t.Errorf("got %v", got)
	}
	_, got := a.readTyped("GET", pods+"?limit=1", "", typedClient)
	list := got.(*corev1.PodList)
	if len(list.Items) != 1 || list.Items[0].UID != pod.UID || list.ResourceVersion == "" || list.Continue == "" ||
		*list.RemainingItemCount != 1 {
		t.Errorf("list %v", list)
	}
	if _, got := a.readTyped("GET", confs, "", typedClient); len(got.(*corev1.ConfigMapList).Items) != 0 {
		t.Errorf("empty list %v", got)
	}
	if code, got := a.readTyped("GET", pods+"/none", "", typedClient); code != 404 ||
		got.(*metav1.Status).Reason != metav1.StatusReasonNotFound {
		t.Errorf("%d %v", code, got)
	}
	if code, got := a.readTyped("DELETE", pods, "", typedClient); code != 200 || len(got.(*corev1.PodList).Items) != 2 {
		t.Errorf("%d %v", code, got)
	}
}

func TestProtobufShapes(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", pods, podA)
	set := `{"metadata":{"name":"s"},"spec":{"replicas":3,"selector":{"matchLabels":{"a":"b"}},` +
		`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	a.read("POST", "/apis/apps/v1/namespaces/default/replicasets", set)
	_, scale := a.readTyped("GET", "/apis/apps/v1/namespaces/default/replicasets/s/scale", "", typedClient)
	if scale.(*autoscalingv1.Scale).Spec.Replicas != 3 {
		t.Errorf("scale %v", scale)
	}
	_, meta := a.readTyped("GET", pods+"/a", "",
		"Accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	if meta.(*metav1.PartialObjectMetadata).Name != "a" {
		t.Errorf("metadata %v", meta)
	}
	_, metas := a.readTyped("GET", pods, "",
		"Accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if l := metas.(*metav1.PartialObjectMetadataList); len(l.Items) != 1 || l.Items[0].Name != "a" {
		t.Errorf("metadata list %v", metas)
	}
}

// typedEvents reads n events of a protobuf watch, as "TYPE name".
func typedEvents(t *testing.T, resp *http.Response, n int) (out []string) {
	t.Helper()
	if typ := resp.Header.Get("Content-Type"); typ != "application/vnd.kubernetes.protobuf;stream=watch" {
		t.Fatalf("%d %s", resp.StatusCode, typ)
	}
	scheme := runtime.NewScheme()
	frames := streaming.NewDecoder(protobuf.LengthDelimitedFramer.NewFrameReader(resp.Body),
		protobuf.NewRawSerializer(scheme, scheme))
	for range n {
		var ev metav1.WatchEvent
		if _, _, err := frames.Decode(nil, &ev); err != nil {
			t.Fatal(err)
		}
		obj, _, err := asTyped().Decode(ev.Object.Raw, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch o := obj.(type) {
		case *metav1.Status:
			out = append(out, ev.Type+" "+string(o.Reason))
		case metav1.Object:
			out = append(out, strings.TrimSpace(ev.Type+" "+o.GetName()+o.GetAnnotations()[metav1.InitialEventsAnnotationKey]))
		}
	}
	return out
}

func TestProtobufWatch(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", confs, `{"metadata":{"name":"a"}}`)
	query := "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	whole := a.do("GET", confs+query, "", typedClient)
	again := a.do("GET", confs+query, "", typedClient)
	metas := a.do("GET", confs+query, "",
		"Accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	a.read("POST", confs, `{"metadata":{"name":"b"}}`)
	a.read("DELETE", confs+"/b", "")
	for _, resp := range []*http.Response{whole, again, metas} {
		if got := strings.Join(typedEvents(t, resp, 4), ", "); got != "ADDED a, BOOKMARK true, ADDED b, DELETED b" {
			t.Errorf("got %s", got)
		}
	}
}

func TestNegotiation(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", confs, `{"metadata":{"name":"a"}}`)
	for accept, want := range map[string]string{
		"":                     "application/json",
		"*/*":                  "application/json",
		"application/*":        "application/json",
		"text/html, */*;q=0.8": "application/json",
		"text/html, application/yaml;q=0.1, application/json;q=0.9":                        "application/json",
		"application/json;q=0.1, application/yaml;q=0.9":                                   "application/yaml",
		"application/json;q=0, application/vnd.kubernetes.protobuf":                        "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/yaml": "application/yaml",
		"application/json;as=Table;g=meta.k8s.io;v=v2,application/vnd.kubernetes.protobuf": "application/vnd.kubernetes.protobuf",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json":                    "application/json",
		"application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1": "406 application/json, " +
			"application/yaml, application/vnd.kubernetes.protobuf, application/cbor",
		"image/png": "406 application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor",
		"application/json;as=Chair": "406 application/json, application/yaml, " +
			"application/vnd.kubernetes.protobuf, application/cbor",
		"application/json;q=x": "406 application/json, application/yaml, " +
			"application/vnd.kubernetes.protobuf, application/cbor",
		"watch application/yaml": "406 application/json;stream=watch, " +
			"application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq",
		"watch application/json;stream=watch": "application/json",
		"watch application/cbor":              "application/cbor-seq",
		"watch application/cbor-seq":          "application/cbor-seq",
		"application/cbor":                    "application/cbor",
		"application/cbor-seq": "406 application/json, application/yaml, " +
			"application/vnd.kubernetes.protobuf, application/cbor",
		"application/cbor;q=0.9, application/json;q=0.1": "application/cbor",
		"application/cbor;as=Table;v=v1;g=meta.k8s.io":   "application/cbor",
	} {
		query := ""
		if rest, ok := strings.CutPrefix(accept, "watch "); ok {
			accept, query = rest, "?watch=1&timeoutSeconds=1"
		}
		resp := a.do("GET", confs+query, "", "Accept: "+accept)
		if code, types, refused := strings.Cut(want, " "); refused {
			if data := strings.Join(strings.Fields(readBody(t, resp)), " "); resp.Status[:3] != code || !strings.Contains(data,
				"only the following media types are accepted: "+types) {
				t.Errorf("%q: %s %s", accept, resp.Status, data)
			}
		} else if got := resp.Header.Get("Content-Type"); got != want {
			t.Errorf("%q: %s, want %s", accept, got, want)
		}
	}
}
