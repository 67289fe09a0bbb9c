package agent_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func mustParse(s string) resource.Quantity { return resource.MustParse(s) }

func TestReadinessGatesReady(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}},
			InitialDelaySeconds: 5, PeriodSeconds: 2,
		}
		w.create(p)
		w.after(time.Second)
		if p := w.get("a"); p.Status.Phase != corev1.PodRunning || ready(p) {
			w.Errorf("status: %+v", p.Status)
		}
		if took := w.until(time.Minute, "a", ready); took > 4100*time.Millisecond {
			w.Errorf("ready after %v more", took)
		}
	})
}

// A pod that ends may become unready meanwhile, which interrupts neither its preStop hook nor its grace period.
func TestReadinessOfEndingPod(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		hook []string
		ends time.Duration // after the deletion
	}{
		"in the grace period": {[]string{"-ignore-term"}, []string{"write", "/tmp/ends", "soon"}, 30 * time.Second},
		"in the preStop hook": {nil, []string{"do", "write", "/tmp/ends", "soon", "then", "sleep", "12"}, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := pod("a", c.args...)
				exec := func(command ...string) *corev1.ExecAction {
					return &corev1.ExecAction{Command: append([]string{"/web"}, command...)}
				}
				p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 2,
					ProbeHandler: corev1.ProbeHandler{Exec: exec("not", "cat", "/tmp/ends")}}
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: exec(c.hook...)}}
				w.create(p)
				w.until(time.Minute, "a", ready)
				w.delete("a", 30)
				unready := w.until(time.Minute, "a", func(p *corev1.Pod) bool { return p != nil && !ready(p) })
				if unready > 4*time.Second {
					w.Errorf("not ready after %v", unready)
				}
				ended := unready + w.until(time.Minute, "a", func(p *corev1.Pod) bool { return p == nil })
				if ended < c.ends || ended > c.ends+time.Second {
					w.Errorf("ended after %v, want %v", ended, c.ends)
				}
			})
		})
	}
}

func TestLivenessRestarts(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/web", "exit", "1"}}},
			PeriodSeconds: 5, FailureThreshold: 2,
		}
		w.create(p)
		if took := w.until(time.Minute, "a", restarts(1)); took < 5*time.Second || took > 6*time.Second {
			w.Errorf("restarted after %v", took)
		}
		for _, want := range []string{"Warning a Unhealthy: Liveness probe failed",
			"Killing: Container c failed liveness probe, will be restarted"} {
			if !w.hasEvent(want) {
				w.Errorf("no event %q in %v", want, w.recorded())
			}
		}
	})
}

// A probe that is redirected to another host succeeds, with a warning.
func TestRedirectedProbeSucceeds(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/status/302", Port: intstr.FromInt32(8080)},
			},
			PeriodSeconds: 5,
		}
		w.create(p)
		w.until(time.Minute, "a", ready)
		if want := "Warning a ProbeWarning: Readiness probe warning: Probe terminated redirects, Response body: "; !w.hasEvent(
			want,
		) {
			w.Errorf("no event %q in %v", want, w.recorded())
		}
	})
}

func TestLogs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a", "tick", "5", "1s"))
		w.until(time.Second, "a", ready)
		w.after(2500 * time.Millisecond)
		var out bytes.Buffer
		if err := w.a.Logs(w.Context(), w.get("a"), &corev1.PodLogOptions{Container: "c", TailLines: new(int64(2))},
			&out); err != nil {
			w.Fatal(err)
		}
		if out.String() != "tick 2\ntick 3\n" {
			w.Errorf("log: %q", out.String())
		}
		w.until(time.Minute, "a", restarts(1))
		out.Reset()
		if err := w.a.Logs(w.Context(), w.get("a"), &corev1.PodLogOptions{Container: "c", Previous: true}, &out); err != nil {
			w.Fatal(err)
		}
		if !strings.HasSuffix(out.String(), "tick 5\n") {
			w.Errorf("previous log: %q", out.String())
		}
		if err := w.a.Logs(w.Context(), w.get("a"), &corev1.PodLogOptions{Container: "x"}, &out); err == nil {
			w.Error("a log of no container")
		}
	})
}
