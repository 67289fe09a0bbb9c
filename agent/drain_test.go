package agent_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent"
	"monopod/agent/node/shutdown"
	"monopod/apiserver/kit/client"
)

func goesDown(w *world) bool {
	node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
	if err != nil {
		w.Fatal(err)
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && c.Reason == "KubeletNotReady" &&
			c.Message == "node is shutting down"
	})
}

// TestShutdownStopsCriticalPodsLast checks that other pods get their own grace period or the remaining time, and that
// critical pods terminate after them.
func TestShutdownStopsCriticalPodsLast(t *testing.T) {
	inWorld(t, func(w *world) {
		terminated := func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Terminated" &&
				conditionTrue(p, corev1.DisruptionTarget) &&
				p.Status.Message == "Pod was terminated in response to imminent node shutdown."
		}
		w.create(pod("quick"))
		w.create(pod("stubborn", "-ignore-term", "serve"))
		w.create(critical("vital"))
		for _, name := range []string{"quick", "stubborn", "vital"} {
			w.until(time.Second, name, ready)
		}
		if w.a.Progress() != nil {
			t.Error("the node shuts down without a request")
		}
		w.a.Shutdown(shutdown.Periods{Total: 8 * time.Second, Critical: 3 * time.Second})
		w.a.Shutdown(shutdown.Periods{Total: time.Hour})
		w.until(time.Second, "quick", terminated)
		w.create(pod("new"))
		w.until(time.Second, "new", func(p *corev1.Pod) bool {
			return p.Status.Reason == "NodeShutdown" &&
				p.Status.Message == "Pod was rejected: Pod was rejected as the node is shutting down."
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
			t.Error("the node does not report the shutdown")
		}
		w.restart(nil)
		w.create(pod("later"))
		w.until(5*time.Second, "later", ready)
	})
}

// TestShutdownRightAfterAStart checks that the shutdown waits for pods that ran before the start of the agent, although
// the agent has not listed them yet.
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
		if p := w.a.Progress(); p.Done || p.Unknown || len(p.Running) != 2 || !ready(w.get("a-n1")) ||
			idOf(w.get("a-n1")) != static {
			t.Errorf("progress %+v, %+v", p, w.get("a-n1").Status)
		}
		<-ended
		if p := w.get("stubborn"); p.Status.Reason != "Terminated" || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%+v", p.Status)
		}
	})
}

// TestShutdownCancelled checks that static pods start again and that the node admits new pods.
func TestShutdownCancelled(t *testing.T) {
	inStaticWorld(t, map[string]string{"a.yaml": staticPod("a", "serve")}, func(w *world) {
		w.a.CancelShutdown() // has no effect without a shutdown
		w.create(pod("web"))
		w.until(time.Second, "web", ready)
		w.until(time.Second, "a-n1", ready)
		static := idOf(w.get("a-n1"))
		w.a.StopPods(w.Context(), shutdown.Periods{Total: 4 * time.Second, Critical: 2 * time.Second})
		w.until(time.Second, "web",
			func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Terminated" })
		w.create(pod("early"))
		w.until(time.Second, "early", func(p *corev1.Pod) bool { return p.Status.Reason == "NodeShutdown" })
		w.write("b.yaml", staticPod("b", "serve"))
		w.after(time.Second)
		if p := w.a.Progress(); !p.Done || len(p.Running) != 0 || !goesDown(w) {
			t.Errorf("progress %+v", p)
		}
		w.a.CancelShutdown()
		w.create(pod("late"))
		w.until(time.Second, "late", ready)
		w.until(5*time.Second, "a-n1", func(p *corev1.Pod) bool { return ready(p) && idOf(p) != static })
		w.until(5*time.Second, "b-n1", ready)
		if w.a.Progress() != nil || goesDown(w) {
			t.Error("the node still reports a shutdown")
		}
	})
}

// TestShutdownCancelledHalfway checks that pods that the shutdown has not stopped yet keep running, and that the next
// shutdown starts from the beginning.
func TestShutdownCancelledHalfway(t *testing.T) {
	inWorld(t, func(w *world) {
		shutdownTimes := w.timed()
		w.restart(nil)
		w.create(pod("stubborn", "-ignore-term", "serve"))
		w.create(critical("vital"))
		w.until(time.Second, "stubborn", ready)
		w.until(time.Second, "vital", ready)
		periods := shutdown.Periods{Total: 8 * time.Second, Critical: 3 * time.Second}
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
		defer cancel()
		w.a.StopPods(ctx, periods)
		w.a.CancelShutdown()
		if start, end := shutdownTimes(); start == 0 || end != 0 {
			t.Errorf("recorded times of the cancelled shutdown: start %v, end %v", start, end)
		}
		w.until(5*time.Second, "stubborn", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		w.after(10 * time.Second)
		if !ready(w.get("vital")) {
			t.Error("the critical pod terminated after the cancellation")
		}
		w.a.StopPods(w.Context(), periods)
		if start, end := shutdownTimes(); start == 0 || end < start {
			t.Errorf("recorded times of the shutdown: start %v, end %v", start, end)
		}
		w.until(time.Second, "vital", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	})
}

// timed sets the file in which the next agents record their last shutdown.
func (w *world) timed() (times func() (start, end float64)) {
	var metrics *prometheus.Registry
	before := w.alter
	w.alter = func(d *agent.Deps) {
		metrics = prometheus.NewRegistry()
		d.Metrics = metrics
		if before != nil {
			before(d)
		}
	}
	return func() (start, end float64) {
		w.Helper()
		families, err := metrics.Gather()
		if err != nil {
			w.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		return got["kubelet_graceful_shutdown_start_time_seconds"], got["kubelet_graceful_shutdown_end_time_seconds"]
	}
}

// slowClient delays its first list of pods.
type slowClient struct {
	client.Client
	tell <-chan struct{}
}

func (c slowClient) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	if sel.Resource == client.Pods {
		select {
		case <-ctx.Done():
			return nil, "", ctx.Err()
		case <-c.tell:
		}
	}
	return c.Client.List(ctx, sel)
}

// restartSlow restarts the agent. It lists its static pods at once, and the pods of the API after a call of list.
func (w *world) restartSlow() (list func()) {
	w.Helper()
	started, before := make(chan struct{}), w.alter
	w.alter = func(d *agent.Deps) {
		if before != nil {
			before(d)
		}
		d.Client = slowClient{d.Client, started}
	}
	w.restart(w.adjust)
	w.alter = before
	w.after(time.Second)
	return func() { close(started) }
}

// TestShutdownCancelledBeforePodsAreKnown checks that no pod terminates, even if monopod stops meanwhile.
func TestShutdownCancelledBeforePodsAreKnown(t *testing.T) {
	inStaticWorld(t, map[string]string{"a.yaml": staticPod("a", "serve")}, func(w *world) {
		shutdownTimes := w.timed()
		w.create(pod("web"))
		w.until(time.Second, "web", ready)
		w.until(time.Second, "a-n1", ready)
		before := w.containerIDs()
		for name, end := range map[string]func(){"cancelled": func() { w.a.CancelShutdown() },
			"agent stopped": func() { w.stop() }} {
			tell := w.restartSlow()
			w.a.Shutdown(shutdown.Periods{Total: 8 * time.Second, Critical: 3 * time.Second})
			w.after(2 * time.Second)
			if p := w.a.Progress(); p.Done || !p.Unknown {
				t.Errorf("%s: progress %+v", name, p)
			}
			end()
			if start, end := shutdownTimes(); start == 0 || end != 0 {
				t.Errorf("%s: recorded times of the shutdown: start %v, end %v", name, start, end)
			}
			tell()
			w.after(20 * time.Second)
		}
		w.restart(w.adjust)
		w.after(time.Minute)
		if after := w.containerIDs(); !slices.Equal(before, after) || !ready(w.get("web")) || !ready(w.get("a-n1")) {
			t.Errorf("containers before %v, after %v", before, after)
		}
	})
}

// TestShutdownOfUnknownPods checks that the node rejects pods that it lists too late, although they ran before, and
// that it does not report the shutdown as complete.
func TestShutdownOfUnknownPods(t *testing.T) {
	inStaticWorld(t, map[string]string{"a.yaml": staticPod("a", "serve")}, func(w *world) {
		shutdownTimes := w.timed()
		w.create(pod("web"))
		w.until(time.Second, "web", ready)
		tell := w.restartSlow()
		w.a.StopPods(w.Context(), shutdown.Periods{Total: 8 * time.Second, Critical: 3 * time.Second})
		w.after(time.Second)
		if p := w.a.Progress(); !p.Done || !p.Unknown || len(p.Running) != 0 || len(w.containers()) != 2 {
			t.Errorf("progress %+v", p)
		}
		tell()
		w.until(time.Second, "web", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "NodeShutdown"
		})
		w.after(time.Second)
		for _, c := range w.containers() {
			if c.State == cri.ContainerState_CONTAINER_RUNNING {
				t.Errorf("container %s still runs", c.Metadata.Name)
			}
		}
		if p := w.a.Progress(); !p.Unknown {
			t.Errorf("progress %+v", p)
		}
		if start, end := shutdownTimes(); start == 0 || end != 0 {
			t.Errorf("recorded times of the shutdown: start %v, end %v", start, end)
		}
	})
}

// TestShutdownWaitsForPodsUntilItsDeadline checks that the time for listing pods is part of the grace period.
func TestShutdownWaitsForPodsUntilItsDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		vital := critical("vital")
		vital.Spec.Containers[0].Args = []string{"-ignore-term", "serve"}
		w.create(vital)
		w.create(pod("stubborn", "-ignore-term", "serve"))
		w.until(time.Second, "vital", ready)
		w.until(time.Second, "stubborn", ready)
		time.AfterFunc(5*time.Second, w.restartSlow())
		start, periods := time.Now(), shutdown.Periods{Total: 8 * time.Second, Critical: 3 * time.Second}
		w.a.StopPods(w.Context(), periods)
		if took := time.Since(start); took > periods.Needs() || took < 5*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		for _, name := range []string{"vital", "stubborn"} {
			if p := w.get(name); p.Status.Reason != "Terminated" {
				t.Errorf("%s: %+v", name, p.Status)
			}
		}
	})
}
