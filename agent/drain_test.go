package agent_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/shutdown"
	"monopod/apiserver/client"
)

func goesDown(w *world) bool {
	node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
	if err != nil {
		w.Fatal(err)
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && c.Reason == "KubeletNotReady" && c.Message == "node is shutting down"
	})
}

// TestShutdownStopsCriticalPodsLast: who is not critical gets its own grace or what
// there is, and the others wait for them.
func TestShutdownStopsCriticalPodsLast(t *testing.T) {
	inWorld(t, func(w *world) {
		terminated := func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Terminated" && conditionTrue(p, corev1.DisruptionTarget) &&
				p.Status.Message == "Pod was terminated in response to imminent node shutdown."
		}
		w.create(pod("quick"))
		w.create(pod("stubborn", "-ignore-term", "serve"))
		w.create(critical("vital"))
		for _, name := range []string{"quick", "stubborn", "vital"} {
			w.until(time.Second, name, ready)
		}
		if w.a.Progress() != nil {
			t.Error("it goes down though nobody said so")
		}
		w.a.Shutdown(shutdown.Periods{Total: 8 * time.Second, Critical: 3 * time.Second})
		w.a.Shutdown(shutdown.Periods{Total: time.Hour})
		w.until(time.Second, "quick", terminated)
		w.create(pod("new"))
		w.until(time.Second, "new", func(p *corev1.Pod) bool {
			return p.Status.Reason == "NodeShutdown" && p.Status.Message == "Pod was rejected: Pod was rejected as the node is shutting down."
		})
		w.after(2 * time.Second)
		if p := w.a.Progress(); p.Done || len(p.Running) != 2 || !ready(w.get("vital")) {
			t.Errorf("progress %+v, vital %+v", p, w.get("vital").Status)
		}
		w.until(3500*time.Millisecond, "stubborn", terminated)
		w.until(time.Second, "vital", terminated)
		w.after(time.Second)
		if p := w.a.Progress(); !p.Done || len(p.Running) != 0 {
			t.Errorf("progress %+v", p)
		}
		if !goesDown(w) {
			t.Error("the node does not say that it goes down")
		}
		w.restart(nil)
		w.create(pod("later"))
		w.until(5*time.Second, "later", ready)
	})
}

// TestShutdownRightAfterAStart: pods that ran before are waited for, though the agent
// has yet to learn of them.
func TestShutdownRightAfterAStart(t *testing.T) {
	inStaticWorld(t, map[string]string{"a.yaml": staticPod("a", "serve")}, func(w *world) {
		w.create(pod("stubborn", "-ignore-term", "serve"))
		w.until(time.Second, "stubborn", ready)
		w.until(time.Second, "a-n1", ready)
		static := idOf(w.get("a-n1"))
		w.restart(w.adjust)
		ended := make(chan struct{})
		go func() {
			w.a.StopPods(w.Context(), shutdown.Periods{Total: 8 * time.Second, Critical: 3 * time.Second})
			close(ended)
		}()
		w.after(2 * time.Second)
		if p := w.a.Progress(); p.Done || p.Unknown || len(p.Running) != 2 || !ready(w.get("a-n1")) || idOf(w.get("a-n1")) != static {
			t.Errorf("progress %+v, %+v", p, w.get("a-n1").Status)
		}
		<-ended
		if p := w.get("stubborn"); p.Status.Reason != "Terminated" || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%+v", p.Status)
		}
	})
}

// TestShutdownCalledOff: pods of files start again, and new ones come in.
func TestShutdownCalledOff(t *testing.T) {
	inStaticWorld(t, map[string]string{"a.yaml": staticPod("a", "serve")}, func(w *world) {
		w.a.StayUp() // it does already
		w.create(pod("web"))
		w.until(time.Second, "web", ready)
		w.until(time.Second, "a-n1", ready)
		static := idOf(w.get("a-n1"))
		w.a.StopPods(w.Context(), shutdown.Periods{Total: 4 * time.Second, Critical: 2 * time.Second})
		w.until(time.Second, "web", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Terminated" })
		w.create(pod("early"))
		w.until(time.Second, "early", func(p *corev1.Pod) bool { return p.Status.Reason == "NodeShutdown" })
		w.write("b.yaml", staticPod("b", "serve"))
		w.after(time.Second)
		if p := w.a.Progress(); !p.Done || len(p.Running) != 0 || !goesDown(w) {
			t.Errorf("progress %+v", p)
		}
		w.a.StayUp()
		w.create(pod("late"))
		w.until(time.Second, "late", ready)
		w.until(5*time.Second, "a-n1", func(p *corev1.Pod) bool { return ready(p) && idOf(p) != static })
		w.until(5*time.Second, "b-n1", ready)
		if w.a.Progress() != nil || goesDown(w) {
			t.Error("the node says that it goes down")
		}
	})
}

// TestShutdownCalledOffHalfway: who was not told to end yet runs on, and the next
// shutdown begins anew.
func TestShutdownCalledOffHalfway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("stubborn", "-ignore-term", "serve"))
		w.create(critical("vital"))
		w.until(time.Second, "stubborn", ready)
		w.until(time.Second, "vital", ready)
		periods := shutdown.Periods{Total: 8 * time.Second, Critical: 3 * time.Second}
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
		defer cancel()
		w.a.StopPods(ctx, periods)
		w.a.StayUp()
		w.until(5*time.Second, "stubborn", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		w.after(10 * time.Second)
		if !ready(w.get("vital")) {
			t.Error("a pod ended that was not told to")
		}
		w.a.StopPods(w.Context(), periods)
		w.until(time.Second, "vital", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	})
}
