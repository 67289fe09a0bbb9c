package agent

import (
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/status"
)

// A pod that was not let in is not evicted, too, before its worker has looked: its
// status would tell of the wrong of the two.
func TestRefusedIsNotEvicted(t *testing.T) {
	t.Parallel()
	a := &Agent{log: zap.NewNop(), Deps: Deps{Recorder: silent{}}}
	w := newWorker(a, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}})
	rejected, low := &status.Failure{Reason: "Evicted", Message: "rejected"}, &status.Failure{Reason: "Evicted", Message: "low"}
	if !w.Evict(rejected, time.Second) {
		t.Error("a pod that runs is not evicted")
	}
	if w.Evict(low, 0) || w.in.refused != rejected || *w.in.hurry != time.Second {
		t.Errorf("told %v within %v", w.in.refused, *w.in.hurry)
	}
}
