package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
)

func patchedPod() (*corev1.Pod, target) {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "u", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"x": "y"}},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}, {Name: "d", Image: "j"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
	}
	res := &registry.Resource{GVR: client.Pods, Kind: "Pod", Namespaced: true,
		New: func() registry.Object { return &corev1.Pod{} }}
	return pod, target{res: res, ref: client.Ref{Resource: client.Pods, Namespace: "default", Name: "a"}}
}

func TestPatchesOfAPartAreRecognized(t *testing.T) {
	t.Parallel()
	pod, at := patchedPod()
	current, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for patch, want := range map[string]bool{
		`{"status":{"phase":"Failed"}}`:        true,
		`{"metadata":{"labels":{"app":null}}}`: true,
		`{"metadata":{"labels":{}},"spec":{}}`: true,
		`{"status":null}`:                      true,
		`{}`:                                   true,
		`{"kind":"Pod"}`:                       false,
		`{"Status":{}}`:                        false,
		`{"":{}}`:                              false,
		`{"$patch":"replace","status":{}}`:     false,
		`{"status":{"colour":"red"}}`:          false,
		`{"status":3}`:                         false,
		`{"status":{"conditions":[{"status":"True"}]}}`: false,
	} {
		if _, ok := patchPart(t.Context(), at, types.StrategicMergePatchType, current, []byte(patch), pod); ok != want {
			t.Errorf("%s: %v", patch, ok)
		}
	}
	if _, ok := patchPart(t.Context(), at, types.JSONPatchType, current, []byte(`[]`), pod); ok {
		t.Error("a JSON patch was handled as a merge patch")
	}
}

// patchPart has the same result as a patch of the whole object.
func FuzzPatchPart(f *testing.F) {
	for _, patch := range []string{
		`{"status":{"phase":"Failed","conditions":[{"type":"Ready","status":"False"}]}}`,
		`{"metadata":{"labels":{"app":null,"b":"c"}}}`,
		`{"metadata":null}`, `{"spec":{"containers":[{"name":"d","image":"k"}]},"status":null}`, `{}`,
		`{"status":{"$patch":"delete"}}`,
		`{"metadata":{"annotations":{"x":null},"$retainKeys":["name"]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}]}}`,
	} {
		f.Add(true, []byte(patch))
		f.Add(false, []byte(patch))
	}
	pod, at := patchedPod()
	current, err := json.Marshal(pod)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, strategic bool, data []byte) {
		typ := types.MergePatchType
		if strategic {
			typ = types.StrategicMergePatchType
		}
		part, ok := patchPart(t.Context(), at, typ, current, data, pod)
		if !ok {
			return
		}
		text, err := applyPatch(typ, current, data, pod)
		if err != nil {
			t.Fatalf("%s: patchPart succeeds, a patch of the whole object fails: %v", data, err)
		}
		whole, found, err := codec.DecodePatched(httptest.NewRequest(http.MethodPatch, "/", nil), text, at.body())
		if err != nil || len(found) > 0 {
			t.Fatalf("%s: patchPart succeeds, a patch of the whole object fails: %v, %v", data, found, err)
		}
		got, _ := json.Marshal(part)
		want, _ := json.Marshal(whole)
		if string(got) != string(want) {
			t.Errorf("%s makes\n%s of the part and\n%s of the whole", data, got, want)
		}
	})
}
