package agent_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// runtimeCalls are the runtime calls in the life of a pod.
var runtimeCalls = []string{
	"Version", "Status", "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus", "ListPodSandbox",
	"CreateContainer", "StartContainer", "StopContainer", "ListContainers", "ContainerStatus", "ExecSync", "ListImages",
	"ImageStatus", "PullImage",
}

// probed is a pod that uses everything that runs on goroutines other than its worker.
func probed(name string) *corev1.Pod {
	p := pod(name)
	p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1,
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/web", "exit", "0"}}}}
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}},
	}
	return p
}

// After a few panics in any call, the process keeps running, the pod runs and ends, and health recovers.
func TestPanics(t *testing.T) {
	for _, call := range runtimeCalls {
		t.Run(call, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.panics = true
				var left atomic.Int32
				left.Store(3)
				w.failing(func(op, _ string) error {
					if op == call && left.Add(-1) >= 0 {
						panic("boom")
					}
					return nil
				})
				w.create(probed("p"))
				w.until(5*time.Minute, "p", ready)
				left.Store(3)
				w.delete("p", 2)
				w.until(5*time.Minute, "p", gone)
				w.after(time.Hour)
				if err := w.a.Health(); err != nil {
					t.Errorf("health an hour later: %v", err)
				}
				w.nothingLeft()
			})
		})
	}
}

// A worker that always panics is retried with backoff, emits an event, and does not affect other pods. The deletion of
// its pod completes even then.
func TestWorkerThatAlwaysPanics(t *testing.T) {
	inWorld(t, func(w *world) {
		w.panics = true
		var tries []time.Time
		var broken atomic.Bool
		broken.Store(true)
		w.failing(func(op, id string) error {
			if op == "CreateContainer" && id == "bad" && broken.Load() {
				tries = append(tries, time.Now())
				panic("boom")
			}
			return nil
		})
		bad := pod("p")
		bad.Spec.Containers[0].Name = "bad"
		w.create(bad)
		w.create(pod("q"))
		w.until(5*time.Second, "q", ready)
		w.after(30 * time.Minute)
		if n := len(tries); n < 9 || n > 16 || tries[n-1].Sub(tries[n-2]) < 5*time.Minute {
			t.Errorf("%d attempts in half an hour: %v", n, tries)
		}
		if err := w.a.Health(); err == nil || err.Error() != "pod default/p: panic: boom" {
			t.Errorf("health: %v", err)
		}
		if !slices.ContainsFunc(w.recorded(), func(e string) bool {
			return strings.HasPrefix(e, "Warning p FailedSync: ") && strings.Contains(e, "boom")
		}) {
			t.Errorf("no FailedSync event: %v", w.recorded())
		}
		if n := w.counted("monopod_panics_total"); n != float64(len(tries)) {
			t.Errorf("%v panics counted, %d happened", n, len(tries))
		}
		w.delete("p", 1)
		w.until(5*time.Second, "p", gone)
		synctest.Wait()
		if err := w.a.Health(); err != nil {
			t.Errorf("health after the deletion of the pod: %v", err)
		}
	})
}

// counted returns the value of a counter of the last agent, summed over all labels.
func (w *world) counted(name string) (sum float64) {
	w.Helper()
	families, err := w.metrics.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// The deletion of a pod that is rejected before any other pod has run completes, and the next pod of its name starts.
func TestRejectedPodBeforeAnyOther(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("p")
		p.Spec.NodeSelector = map[string]string{"no": "where"}
		w.create(p)
		w.until(time.Minute, "p", func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodFailed })
		w.after(time.Minute)
		if err := w.a.Health(); err != nil {
			t.Error(err)
		}
		w.delete("p", 0)
		w.create(pod("p"))
		w.until(time.Minute, "p", func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning })
	})
}
