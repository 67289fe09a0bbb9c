package agent_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Pods whose start hangs delay other pods only briefly. The deletion of a waiting pod is immediate.
func TestHangingStartsDelayOthersBriefly(t *testing.T) {
	inWorld(t, func(w *world) {
		var sandboxes atomic.Int64
		w.failing(func(op, _ string) error {
			if op == "RunPodSandbox" && sandboxes.Add(1) <= 8 {
				time.Sleep(time.Minute)
			}
			return nil
		})
		for n := range 8 {
			w.create(pod(fmt.Sprintf("slow-%d", n)))
		}
		w.after(time.Second)
		w.create(pod("next"))
		w.create(pod("unwanted"))
		w.after(200 * time.Millisecond)
		if p := w.get("next"); p.Status.Phase != corev1.PodPending || len(p.Status.PodIPs) > 0 {
			t.Errorf("more than eight pods start concurrently: %+v", p.Status)
		}
		w.delete("unwanted", 30)
		w.until(200*time.Millisecond, "unwanted", gone)
		w.until(2*time.Second, "next", ready)
	})
}
