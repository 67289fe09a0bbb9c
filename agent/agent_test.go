package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

func names(w *world, dir string) []string {
	list, err := os.ReadDir(filepath.Join(w.dir, dir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Error(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func TestNodeIsReady(t *testing.T) {
	inWorld(t, func(w *world) {
		w.after(100 * time.Millisecond)
		node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
		if err != nil {
			w.Fatal(err)
		}
		if !nodeReady(node) || node.Status.Capacity.Pods().Value() != 110 || node.Labels[corev1.LabelHostname] != "n1" {
			w.Errorf("node: %+v", node)
		}
		rev := w.api.Revision()
		w.after(4 * time.Minute)
		again, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
		if err != nil || again.ResourceVersion != node.ResourceVersion {
			w.Errorf("the status was written although nothing changed: %v", err)
		}
		if w.api.Revision() == rev {
			w.Error("the lease was not renewed")
		}
		w.after(2 * time.Minute)
		if again, _ = client.Get[*corev1.Node](w.Context(), w.api, "", "n1"); again.ResourceVersion == node.ResourceVersion {
			w.Error("no heartbeat after 5 min")
		}
	})
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func TestPodRuns(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("first")) // pulls the image
		w.until(time.Second, "first", ready)
		before := w.callCount()
		w.create(pod("a"))
		took := w.until(time.Second, "a", ready)
		// Calls for: sandbox, its status, container, start, its status; the image concurrently.
		if took > 5*latency {
			w.Errorf("Running after %v", took)
		}
		if n := w.callCount() - before; n > 6 {
			w.Errorf("%d calls to start a pod", n)
		}
		p := w.get("a")
		s := p.Status.ContainerStatuses[0]
		if p.Status.PodIP == "" || p.Status.HostIP != "192.0.2.1" || p.Status.StartTime == nil ||
			p.Status.QOSClass != corev1.PodQOSBestEffort {
			w.Errorf("status: %+v", p.Status)
		}
		if !s.Ready || s.RestartCount != 0 || !strings.HasPrefix(s.ContainerID, "containerd://") || s.ImageID == "" {
			w.Errorf("container: %+v", s)
		}
		for _, c := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized,
			corev1.ContainersReady, corev1.PodScheduled} {
			if !conditionTrue(p, c) {
				w.Errorf("condition %s is not true", c)
			}
		}
		for _, want := range []string{"Pulled", "Created", "Started"} {
			if !w.hasEvent("Normal a " + want) {
				w.Errorf("no event %s: %v", want, w.recorded())
			}
		}
		rev, calls := p.ResourceVersion, w.callCount()
		w.after(4 * time.Minute)
		if w.get("a").ResourceVersion != rev {
			w.Error("the status was written although nothing changed")
		}
		if n := w.callCount() - calls; n > 4*60/10+1 {
			w.Errorf("%d calls in four idle minutes", n)
		}
	})
}

func TestGracefulDelete(t *testing.T) {
	for _, c := range []struct {
		name     string
		args     []string
		grace    int64
		min, max time.Duration
		last     string
	}{
		{"stops at once", nil, 10, 0, 50 * time.Millisecond, "c:exit=0"},
		{"needs 3 s", []string{"-stop-after", "3s"}, 10, 3 * time.Second, 3100 * time.Millisecond, "c:exit=0"},
		{"ignores SIGTERM", []string{"-ignore-term"}, 10, 10 * time.Second, 10100 * time.Millisecond, "c:exit=137"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.create(pod("a", c.args...))
				w.until(time.Second, "a", ready)
				w.after(1500 * time.Millisecond)
				w.delete("a", c.grace)
				took := w.until(time.Minute, "a", gone)
				if took < c.min || took > c.max {
					w.Errorf("the pod was deleted after %v", took)
				}
				w.after(0)
				seen := w.watched()
				if n := len(seen); !strings.HasPrefix(seen[n-1], "DELETED") || !strings.Contains(seen[n-2], c.last) ||
					!strings.Contains(seen[n-2], "MODIFIED a") {
					w.Errorf("watched:\n%s", strings.Join(seen, "\n"))
				}
				if !w.hasEvent("Killing: Stopping container c") {
					w.Error("no event Killing")
				}
				w.nothingLeft()
			})
		})
	}
}

func TestGracePeriodIsShortened(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a", "-ignore-term"))
		w.until(time.Second, "a", ready)
		w.delete("a", 60)
		w.after(2 * time.Second)
		w.delete("a", 5)
		if took := w.until(time.Minute, "a", gone); took < 2*time.Second || took > 4*time.Second {
			w.Errorf("the pod was deleted after %v", took)
		}
		w.nothingLeft()
	})
}

func TestForcedDelete(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a", "-ignore-term"))
		w.until(time.Second, "a", ready)
		w.delete("a", 0)
		w.until(0, "a", gone)
		w.after(500 * time.Millisecond)
		if list, _ := w.rt.ListContainers(w.Context(), nil); len(list) != 1 {
			w.Error("the container did not get its grace period")
		}
		w.after(time.Second)
		w.nothingLeft()
	})
}

func TestPreStopUsesUpGracePeriod(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a", "-ignore-term")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 7}},
		}
		w.create(p)
		w.until(time.Second, "a", ready)
		w.delete("a", 10)
		if took := w.until(time.Minute, "a", gone); took < 9900*time.Millisecond || took > 10200*time.Millisecond {
			w.Errorf("the pod was deleted after %v", took)
		}
	})
}

func TestPodOfSameNameWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a", "-stop-after", "3s"))
		w.until(time.Second, "a", ready)
		first := w.get("a").UID
		w.delete("a", 0)
		second := pod("a")
		w.create(second)
		w.after(500 * time.Millisecond)
		if p := w.get("a"); p.UID == first || p.Status.Phase != corev1.PodPending {
			w.Errorf("the new pod did not wait: %+v", p.Status)
		}
		w.until(5*time.Second, "a", ready)
	})
}

func TestCrashLoopBackOff(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a", "exit", "3"))
		// The first restart is at once, then 10 s, 20 s, 40 s … 300 s.
		w.until(time.Second, "a", restarts(1))
		for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			w.until(time.Second, "a", waitingFor("CrashLoopBackOff"))
			took := w.until(10*time.Minute, "a", restarts(int32(i+2)))
			if want *= time.Second; took < want-time.Second || took > want+time.Second {
				w.Errorf("restart %d after %v, want %v", i+2, took, want)
			}
		}
		s := w.get("a").Status.ContainerStatuses[0]
		if last := s.LastTerminationState.Terminated; last == nil || last.ExitCode != 3 || last.Reason != "Error" {
			w.Errorf("last state: %+v", s)
		}
		if !w.hasEvent("BackOff: Back-off restarting failed container c in pod a_default(") {
			w.Error("no event BackOff")
		}
		w.after(time.Second)
		if list, _ := w.rt.ListContainers(w.Context(), nil); len(list) > 2 {
			w.Errorf("%d containers exist, want at most 2", len(list))
		}
	})
}

func TestRestartPolicies(t *testing.T) {
	for _, c := range []struct {
		policy corev1.RestartPolicy
		code   string
		phase  corev1.PodPhase
	}{
		{corev1.RestartPolicyNever, "0", corev1.PodSucceeded},
		{corev1.RestartPolicyNever, "7", corev1.PodFailed},
		{corev1.RestartPolicyOnFailure, "0", corev1.PodSucceeded},
	} {
		t.Run(string(c.policy)+c.code, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := pod("a", "exit", c.code)
				p.Spec.RestartPolicy = c.policy
				w.create(p)
				w.until(time.Second, "a", func(p *corev1.Pod) bool { return p.Status.Phase == c.phase })
				w.after(time.Minute)
				s := w.get("a").Status
				if s.ContainerStatuses[0].RestartCount != 0 || s.ContainerStatuses[0].State.Terminated == nil ||
					s.Phase != c.phase {
					w.Errorf("status: %+v", s)
				}
				if list, _ := w.rt.ListPodSandbox(w.Context(), nil); len(list) != 1 ||
					list[0].State.String() != "SANDBOX_NOTREADY" {
					w.Errorf("the sandbox of a finished pod runs: %v", list)
				}
				w.delete("a", 30)
				w.until(time.Second, "a", gone)
				w.nothingLeft()
			})
		})
	}
}

func TestInitContainers(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.InitContainers = []corev1.Container{
			{Name: "one", Image: "web:1", Args: []string{"sleep", "2"}},
			{Name: "side", Image: "web:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
				Args: []string{"-listen", ":9000"}},
			{Name: "two", Image: "web:1", Args: []string{"sleep", "3"}},
		}
		w.create(p)
		w.after(time.Second)
		if s := w.get("a").Status; s.Phase != corev1.PodPending || s.InitContainerStatuses[0].State.Running == nil ||
			s.ContainerStatuses[0].State.Waiting.Reason != "PodInitializing" {
			w.Errorf("status: %+v", s)
		}
		took := time.Second + w.until(time.Minute, "a", ready)
		if took < 5*time.Second || took > 5100*time.Millisecond {
			w.Errorf("ready after %v", took)
		}
		s := w.get("a").Status
		if s.InitContainerStatuses[0].State.Terminated.Reason != "Completed" ||
			s.InitContainerStatuses[1].State.Running == nil {
			w.Errorf("status: %+v", s.InitContainerStatuses)
		}
		w.delete("a", 5)
		w.until(time.Second, "a", gone)
		w.nothingLeft()
	})
}

func TestInitContainerFails(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.InitContainers = []corev1.Container{{Name: "one", Image: "web:1", Args: []string{"exit", "1"}}}
		w.create(p)
		w.until(time.Second, "a", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	})
}

func TestAgentRestartAdopts(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/web", "env"}}},
			PeriodSeconds: 10,
		}
		w.create(p)
		w.create(pod("b"))
		w.until(time.Minute, "a", ready)
		w.until(time.Minute, "b", ready)
		before := w.get("a")
		w.stop()
		w.delete("b", 0) // while no agent runs
		w.after(time.Minute)
		w.startAgent()
		w.after(time.Second)
		after := w.get("a")
		if after.ResourceVersion != before.ResourceVersion {
			w.Errorf("status changed:\n%+v\n%+v", before.Status, after.Status)
		}
		w.after(2 * time.Second)
		list, _ := w.rt.ListContainers(w.Context(), nil)
		if len(list) != 1 || "containerd://"+list[0].Id != before.Status.ContainerStatuses[0].ContainerID {
			w.Errorf("containers: %v", list)
		}
		w.after(time.Minute)
		if !ready(w.get("a")) || w.get("a").Status.ContainerStatuses[0].RestartCount != 0 {
			w.Errorf("adopted pod: %+v", w.get("a").Status)
		}
		w.delete("a", 10)
		w.until(time.Second, "a", gone)
		w.nothingLeft()
	})
}

func TestDeletedWhileNoAgentRan(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a"))
		w.until(time.Second, "a", ready)
		w.stop()
		w.delete("a", 10)
		w.startAgent()
		w.until(time.Second, "a", gone)
		w.nothingLeft()
	})
}

func TestRuntimeLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a"))
		w.until(time.Second, "a", ready)
		before := w.get("a").ResourceVersion
		w.failing(func(op, _ string) error { return grpcstatus.Error(codes.Unavailable, "no containerd") })
		w.after(11 * time.Second)
		node, _ := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
		if nodeReady(node) {
			w.Error("the node is ready without a runtime")
		}
		w.create(pod("b"))
		w.after(5 * time.Second)
		w.failing(func(string, string) error { return nil })
		w.until(time.Minute, "b", ready)
		w.after(time.Second)
		if node, _ = client.Get[*corev1.Node](w.Context(), w.api, "", "n1"); !nodeReady(node) {
			w.Error("the node did not come back")
		}
		if w.get("a").ResourceVersion != before {
			w.Error("a pod was touched")
		}
	})
}

func TestImagePullFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.failing(func(op, id string) error {
			if op == "PullImage" && strings.Contains(id, "bad") {
				return errors.New("no such image")
			}
			return nil
		})
		p := pod("a")
		p.Spec.Containers[0].Image = "bad:1"
		w.create(p)
		w.until(time.Second, "a", waitingFor("ErrImagePull"))
		w.until(2*time.Second, "a", waitingFor("ImagePullBackOff"))
		for _, want := range []string{"Pulling: Pulling image \"bad:1\"", "Failed: Error: ErrImagePull",
			"BackOff: Back-off pulling image \"bad:1\""} {
			if !w.hasEvent(want) {
				w.Errorf("no event %q in %v", want, w.recorded())
			}
		}
		w.failing(func(string, string) error { return nil })
		if took := w.until(time.Minute, "a", ready); took > 12*time.Second {
			w.Errorf("the pod was ready %v after the pulls stopped failing", took)
		}
		never := pod("n")
		never.Spec.Containers[0].Image, never.Spec.Containers[0].ImagePullPolicy = "other:1", corev1.PullNever
		w.create(never)
		w.until(time.Second, "n", waitingFor("ErrImageNeverPull"))
	})
}

// The agent retries a container that the runtime refuses to create every 10 s, even if it pulls the image each time.
func TestRefusedContainerIsRetriedEvery10s(t *testing.T) {
	inWorld(t, func(w *world) {
		w.failing(func(op, _ string) error {
			if op == "CreateContainer" {
				return errors.New("no such device")
			}
			return nil
		})
		p := pod("a")
		p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		w.create(p)
		w.until(time.Second, "a", waitingFor("CreateContainerError"))
		w.after(25 * time.Second)
		if pulls, tries := w.called("PullImage"), w.called("CreateContainer"); pulls != 3 || tries != 3 {
			t.Errorf("in 25 s: %d pulls, %d attempts, want 3", pulls, tries)
		}
		w.failing(func(string, string) error { return nil })
		w.until(10*time.Second, "a", ready)
	})
}

func TestConfigMapUpdateAppears(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.Volumes = []corev1.Volume{{Name: "v",
			VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}},
			}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		w.create(p)
		w.after(time.Second)
		if !w.hasEvent("FailedMount") || !waitingFor("ContainerCreating")(w.get("a")) {
			w.Errorf("a missing ConfigMap: %v", w.recorded())
		}
		cm := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: "cm", Namespace: "default"},
			Data:       map[string]string{"k": "1"},
		}
		w.create(cm)
		w.until(100*time.Millisecond, "a", ready)
		if got := w.cat("a", "/v/k"); got != "1" {
			w.Errorf("file holds %q", got)
		}
		_, err := client.Update(
			w.Context(),
			w.api,
			cm,
			"",
			func(cm *corev1.ConfigMap) error { cm.Data = map[string]string{"k": "2"}; return nil },
		)
		if err != nil {
			w.Fatal(err)
		}
		w.after(10 * time.Millisecond)
		if got := w.cat("a", "/v/k"); got != "2" {
			w.Errorf("file holds %q", got)
		}
		if w.get("a").Status.ContainerStatuses[0].RestartCount != 0 {
			w.Error("the pod restarted")
		}
		w.delete("a", 5)
		w.until(time.Second, "a", gone)
		w.nothingLeft()
	})
}

// cat reads a file in a pod's container.
func (w *world) cat(name, file string) string {
	w.Helper()
	id := strings.TrimPrefix(w.get(name).Status.ContainerStatuses[0].ContainerID, "containerd://")
	out, stderr, code, err := w.rt.ExecSync(w.Context(), id, []string{"cat", file}, time.Second)
	if err != nil || code != 0 {
		w.Errorf("cat: %v %d %s", err, code, stderr)
	}
	return string(out)
}

func TestOutOfMemory(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a", "alloc", "64")
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: mustParse("16Mi")}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		w.create(p)
		w.until(time.Second, "a", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		end := w.get("a").Status.ContainerStatuses[0].State.Terminated
		if end == nil || end.Reason != "OOMKilled" || end.ExitCode != 137 {
			w.Errorf("end: %+v", end)
		}
	})
}

func TestRefusedPodFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.after(time.Second)
		p := pod("a")
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: mustParse("4000")}
		w.create(p)
		w.until(time.Second, "a", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if s := w.get("a").Status; s.Reason != "OutOfcpu" || !strings.Contains(s.Message, "requested: 4000000") {
			w.Errorf("status: %+v", s)
		}
	})
}
