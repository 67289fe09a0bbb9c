package admission_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
)

func TestRuntimeClass(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	class := object(t, new(nodev1.RuntimeClass), `{metadata: {name: vm}, handler: kata, overhead: {podFixed: {memory: 100Mi}},
		scheduling: {nodeSelector: {vm: "yes"}, tolerations: [{key: vm, operator: Exists}]}}`)
	class.Namespace = ""
	mustCreate(t, r, class)
	pod := func(spec string) *corev1.Pod {
		return object(t, new(corev1.Pod), `{metadata: {name: p}, spec: {`+spec+`, containers: [{name: c, image: "a:1"}]}}`)
	}
	for spec, want := range map[string]string{
		`runtimeClassName: gone`: `pods "p" is forbidden: pod rejected: RuntimeClass "gone" not found`,
		`overhead: {memory: 1Mi}`: `pods "p" is forbidden: pod rejected: Overhead set without ` +
			`corresponding RuntimeClass defined Overhead`,
		`runtimeClassName: vm, overhead: {memory: 1Mi}`: `pods "p" is forbidden: pod rejected: Pod's Overhead doesn't ` +
			`match RuntimeClass's defined Overhead`,
		`runtimeClassName: vm, nodeSelector: {vm: "no"}`: `pods "p" is forbidden: conflict: ` +
			`runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no`,
	} {
		_, err := r.Create(t.Context(), pod(spec))
		wantRefusal(t, err, http.StatusForbidden, want)
	}
	stored, err := r.Create(t.Context(), pod(`runtimeClassName: vm, overhead: {memory: 102400Ki}, `+
		`nodeSelector: {disk: fast}`))
	if err != nil {
		t.Fatal(err)
	}
	got := stored.(*corev1.Pod).Spec
	if diff := cmp.Diff(map[string]string{"disk": "fast", "vm": "yes"}, got.NodeSelector); diff != "" {
		t.Error(diff)
	}
	if got.Overhead.Memory().String() != "100Mi" || len(got.Tolerations) == 0 || !containsToleration(got.Tolerations,
		"vm") {
		t.Errorf("got %+v and %+v", got.Overhead, got.Tolerations)
	}
}

func containsToleration(all []corev1.Toleration, key string) bool {
	for _, t := range all {
		if t.Key == key {
			return true
		}
	}
	return false
}
