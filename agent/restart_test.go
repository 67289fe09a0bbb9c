package agent_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent"
)

func TestContainerRestartPolicy(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a", "exit", "42")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
		w.create(p)
		w.until(time.Minute, "a", restarts(2))
		if got := w.get("a").Status.Phase; got != corev1.PodRunning {
			t.Errorf("phase between restarts: %s", got)
		}

		q := pod("b", "exit", "3")
		q.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		w.create(q) // the restart policy of the pod is Always
		w.until(time.Minute, "b", func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodFailed })
		if !restarts(0)(w.get("b")) {
			t.Errorf("the container restarted: %v", w.get("b").Status)
		}
	})
}

// onExit returns a restart rule for an exit code.
func onExit(code int32, action corev1.ContainerRestartRuleAction) []corev1.ContainerRestartRule {
	return []corev1.ContainerRestartRule{{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
		Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}}}}
}

// restartingPod returns a pod with the policy Never whose container t restarts all containers: t exits with 42 one
// second after its start.
func restartingPod() *corev1.Pod {
	p := pod("a", "sleep", "1h")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.InitContainers = []corev1.Container{
		{Name: "i", Image: "web:1", Args: []string{"exit", "0"}},
		{Name: "s", Image: "web:1", Args: []string{"serve"}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 20}},
	}
	p.Spec.Containers = append(p.Spec.Containers,
		corev1.Container{Name: "done", Image: "web:1", Args: []string{"exit", "0"}},
		corev1.Container{Name: "t", Image: "web:1", Args: []string{"sleep", "1s", "exit", "42"},
			RestartPolicy:      new(corev1.ContainerRestartPolicyNever),
			RestartPolicyRules: onExit(42, corev1.ContainerRestartRuleActionRestartAllContainers)})
	return p
}

// allRestarted reports whether the restart count of every container is n.
func allRestarted(n int32) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		if p == nil || len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if s.RestartCount != n || s.State.Waiting != nil {
				return false
			}
		}
		return true
	}
}

func allRestarting(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.AllContainersRestarting && c.Status == corev1.ConditionTrue &&
			c.Reason == "RestartAllContainersStarted"
	})
}

func TestRestartAllContainers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(restartingPod())
		w.until(time.Minute, "a", allRestarted(0))
		before := w.get("a")
		w.until(5*time.Second, "a", allRestarted(1)) // the first restart is immediate
		after := w.get("a")
		if allRestarting(after) || after.Status.PodIP != before.Status.PodIP || after.Status.Phase != corev1.PodRunning {
			t.Errorf("%+v", after.Status)
		}
		for i, want := range []struct {
			code   int32
			reason string
		}{{137, "RestartingAllContainers"}, {0, "Completed"}, {42, "Error"}} {
			if last := after.Status.ContainerStatuses[i].LastTerminationState.Terminated; last == nil ||
				last.ExitCode != want.code || last.Reason != want.reason {
				t.Errorf("the last termination of %s is %+v", after.Status.ContainerStatuses[i].Name, last)
			}
		}
		w.until(5*time.Second, "a", allRestarting) // the second restart waits for its backoff
		if w.after(5 * time.Second); !allRestarting(w.get("a")) || waitsFor(w.get("a"), "t") != "CrashLoopBackOff" ||
			waitsFor(w.get("a"), "c") != "RestartingAllContainers" {
			t.Errorf("%+v", w.get("a").Status)
		}
		w.until(10*time.Second, "a", allRestarted(2))
		if n := len(w.containers()); n != 5 {
			t.Errorf("%d containers, want 5: one instance of each", n)
		}
	})
}

// TestRestartAllSurvivesAgent checks that the next agent continues if an agent stops between two removals.
func TestRestartAllSurvivesAgent(t *testing.T) {
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inWorld(t, func(w *world) {
				var removals atomic.Int64
				fail := func(op, _ string) error {
					if op == "RemoveContainer" && removals.Add(1) == int64(n) {
						return status.Error(codes.Internal, "the agent stops here")
					}
					return nil
				}
				w.failing(fail)
				w.create(restartingPod())
				w.until(time.Minute, "a", func(*corev1.Pod) bool { return removals.Load() >= int64(n) })
				w.stop()
				w.startAgent()
				w.until(time.Minute, "a", allRestarted(1))
			})
		})
	}
}

func waitsFor(p *corev1.Pod, container string) string {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == container && s.State.Waiting != nil {
			return s.State.Waiting.Reason
		}
	}
	return ""
}

func TestInitContainerRestartPolicy(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a", "serve")
		p.Spec.InitContainers = []corev1.Container{{
			Name: "i", Image: "web:1", Args: []string{"exit", "3"}, RestartPolicy: new(corev1.ContainerRestartPolicyNever),
		}}
		w.create(p)
		w.until(time.Minute, "a", func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodFailed })
	})
}

func TestHostnameTooLong(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop()
		w.adjust = func(c *agent.Config) { c.ClusterDomain = "cluster.local" }
		w.startAgent()
		p := pod("a-name-that-is-long-but-not-too-long-for-a-pod", "serve")
		p.Spec.SetHostnameAsFQDN, p.Spec.Subdomain = new(true), "sub"
		w.create(p)
		w.after(time.Second)
		if got := w.get(p.Name); ready(got) || !w.hasEvent("Failed to construct FQDN from Pod hostname and cluster domain") {
			t.Errorf("%v, %v", got.Status, w.recorded())
		}
	})
}

// TestRestartsDoNotAccumulateRecords checks that a pod that restarts for weeks does not use more and more memory.
func TestRestartsDoNotAccumulateRecords(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}},
		}
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/web", "exit", "1"}}},
			PeriodSeconds: 1, FailureThreshold: 1,
		}
		w.create(p)
		w.until(2*time.Hour, "a", restarts(12))
		w.after(2 * time.Minute) // garbage collection runs every minute
		uid := w.get("a").UID
		owned, hooked := w.a.Records(uid)
		if owned == 0 || owned > 4 || hooked > 3 {
			t.Errorf("after 12 restarts, the agent has records of %d sandboxes and containers and of %d hooks", owned, hooked)
		}
		w.delete("a", 30)
		w.until(time.Minute, "a", gone)
		w.after(time.Second)
		if owned, _ := w.a.Records(uid); owned != 0 {
			t.Errorf("the agent has %d records of a deleted pod", owned)
		}
	})
}
