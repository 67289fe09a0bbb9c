package etcd_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
	"monopod/store/etcd"
	"monopod/store/etcd/etcdtest"
	"monopod/store/storetest"
)

// upstream returns the decoder that a kube-apiserver uses for values.
func upstream(t *testing.T) (*runtime.Scheme, runtime.Decoder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, schedulingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme, serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// A kube-apiserver can read the keys and values in etcd.
func TestUpstreamReads(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	s := openWith(t, url, etcd.Config{Config: store.Config{Kind: registry.Kinds(registry.Resources())}})
	r := registry.New(s, registry.Resources(), registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "x"}
	for _, obj := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": `<"metadata":{`}},
		&coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("h")}},
		&corev1.Event{ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Namespace: "default"}},
	} {
		if _, err := r.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	_, decoder := upstream(t)
	for path, kind := range map[string]string{
		"/registry/minions/n":                            "/v1, Kind=Node",
		"/registry/pods/default/x":                       "/v1, Kind=Pod",
		"/registry/configmaps/default/x":                 "/v1, Kind=ConfigMap",
		"/registry/leases/default/x":                     "coordination.k8s.io/v1, Kind=Lease",
		"/registry/events/default/x":                     "/v1, Kind=Event",
		"/registry/namespaces/default":                   "/v1, Kind=Namespace",
		"/registry/priorityclasses/system-node-critical": "scheduling.k8s.io/v1, Kind=PriorityClass",
	} {
		resp, err := etcdtest.Client(t, url).Get(t.Context(), path)
		if err != nil || len(resp.Kvs) != 1 {
			t.Errorf("%s: %v, %v", path, resp, err)
			continue
		}
		obj, gvk, err := decoder.Decode(resp.Kvs[0].Value, nil, nil)
		if err != nil || gvk.String() != kind {
			t.Errorf("%s: %v, %v, want %s", path, gvk, err, kind)
			continue
		}
		if m := obj.(metav1.Object); m.GetResourceVersion() != "" || m.GetUID() == "" ||
			m.GetCreationTimestamp().Time.IsZero() {
			t.Errorf("%s: %s", path, resp.Kvs[0].Value)
		}
	}
}

// The store reads values of a kube-apiserver, in protobuf or in JSON, like its own.
func TestReadsUpstream(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	s := open(t, url)
	want := storetest.Put(t, s, key("ours"), "1")
	etcdtest.Put(t, url, key("proto").Path(), protobufOf(t, "proto"))
	etcdtest.Put(t, url, key("json").Path(), jsonOf("json")+"\n")
	etcdtest.Put(t, url, key("byhand").Path(),
		"{\n  \"metadata\": {\"resourceVersion\": \"7\", \"name\": \"byhand\", \"namespace\": \"ns\"},\n"+
			`  "data": {"v": "1"}, "apiVersion": "v1", "kind": "ConfigMap"}`)
	for _, name := range []string{"proto", "json", "byhand"} {
		e, err := s.Get(t.Context(), key(name))
		if err != nil {
			t.Error(err)
			continue
		}
		got := strings.NewReplacer(`"`+name+`"`, `"ours"`, fmt.Sprint(e.Rev), fmt.Sprint(want.Rev)).Replace(string(e.JSON()))
		if got != string(want.JSON()) {
			t.Errorf("%s:\n got %s\nwant %s", name, e.JSON(), want.JSON())
		}
		if same := storetest.Put(t, s, key(name), "1"); same.Rev != e.Rev {
			t.Errorf("%s: the same object was written again", name)
		}
		if next := storetest.Put(t, s, key(name), "2"); next.Rev <= e.Rev {
			t.Errorf("%s: cannot be changed", name)
		}
	}
}

func jsonOf(name string) string {
	return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + name + `","namespace":"ns"},"data":{"v":"1"}}`
}

func protobufOf(t *testing.T, name string) string {
	t.Helper()
	scheme, decoder := upstream(t)
	obj, gvk, err := decoder.Decode([]byte(jsonOf(name)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: gvk.Kind})
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(obj, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The error names a value that cannot be decoded, and watches continue.
func TestGarbage(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	s := open(t, url)
	events, err := storetest.Watch(t.Context(), s, all, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, s, key("a"), "1")
	etcdtest.Put(t, url, key("a").Path(), "garbage")
	etcdtest.Put(t, url, key("b").Path(), "k8s\x00garbage")
	etcdtest.Put(t, url, "/registry/configmaps/too/many/parts", "{}")
	etcdtest.Put(t, url, key("c").Path(), jsonOf("c"))
	want(t, events, ">1") // a
	want(t, events, "1>") // a value that cannot be decoded counts as a removal of a
	want(t, events, ">1") // c
	for _, name := range []string{"a", "b"} {
		if _, err := s.Get(t.Context(), key(name)); err == nil ||
			!strings.Contains(err.Error(), "configmaps/ns/"+name+" at revision") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := s.List(t.Context(), all); err == nil {
		t.Error("a list omits a value that cannot be decoded")
	}
}
