package agent_test

import (
	"testing"
	"time"
)

// A pod's life takes no more calls of the runtime than these: each takes milliseconds on a busy containerd, and most of
// them delay the start or the end of a pod.
func TestCallsInAPodsLife(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("first")) // calls of the agent's start are not counted
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
				"RunPodSandbox": 1, "PodSandboxStatus": 1, // its addresses
				"ImageStatus":     1, // beside RunPodSandbox
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
					t.Errorf("%s: %s is called %d times, want at most %d", c.does, op, n, c.most[op])
				}
			}
		}
	})
}
