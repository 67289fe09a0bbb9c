package agent_test

import (
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
