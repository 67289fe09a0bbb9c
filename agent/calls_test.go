package agent_test

import (
	"testing"
	"time"
)

// The agent makes no more runtime calls for a pod than these: each call takes milliseconds on a busy containerd, and
// most calls delay the start or the end of a pod.
func TestCallsInAPodsLife(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("first")) // calls at the start of the agent do not count
		w.until(time.Second, "first", ready)
		for _, c := range []struct {
			does string
			do   func()
			most map[string]int
		}{
			{"to Running", func() {
				w.create(pod("p"))
				w.until(time.Second, "p", ready)
			}, map[string]int{
				"RunPodSandbox": 1, "PodSandboxStatus": 1, // for the addresses of the pod
				"ImageStatus":     1, // concurrently with RunPodSandbox
				"CreateContainer": 1, "StartContainer": 1, "ContainerStatus": 1,
			}},
			{"to the end", func() {
				w.delete("p", 30)
				w.until(time.Minute, "p", gone)
			}, map[string]int{"StopContainer": 1, "ContainerStatus": 1 /* unless its exit is known */, "StopPodSandbox": 1,
				"RemovePodSandbox": 1}},
		} {
			before := w.counts()
			c.do()
			got := w.counts()
			for op, n := range got {
				if n -= before[op]; n > c.most[op] {
					t.Errorf("%s: %d calls of %s, want at most %d", c.does, n, op, c.most[op])
				}
			}
		}
	})
}
