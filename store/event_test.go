package store_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/store"
)

// Gone returns the last state of a removed object with the revision of the removal; the shared object keeps its own
// revision.
func TestGone(t *testing.T) {
	t.Parallel()
	pod := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"b": "c"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "d",
				Args: []string{`"metadata":{"resourceVersion":"1"`}}}}}
	}
	for name, obj := range map[string]store.Object{
		"typed":    pod(),
		"embedded": &pointing{pod()},
		"untyped": &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"},
			"data": map[string]any{"b": "c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain, err := store.Encode(obj)
			if err != nil {
				t.Fatal(err)
			}
			old := store.NewEntry(store.Key{Resource: "pods", Name: "a"}, 9, obj, plain)
			ev := &store.Event{Key: old.Key, Rev: 10, Old: old}
			gone := ev.Gone()
			if gone.Rev != 10 || gone.Object.GetResourceVersion() != "10" ||
				!strings.Contains(string(gone.JSON()), `{"resourceVersion":"10"`) {
				t.Errorf("revision %d, object's %s, JSON %s; all want 10", gone.Rev, gone.Object.GetResourceVersion(), gone.JSON())
			}
			for _, e := range []*store.Entry{gone, old} {
				if err := e.Verify(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// pointing is an object that shares its metadata with shallow copies.
type pointing struct{ *corev1.Pod }

func (p pointing) DeepCopyObject() runtime.Object { return &pointing{p.DeepCopy()} }
