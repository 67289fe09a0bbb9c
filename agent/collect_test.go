package agent_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent"
	"monopod/agent/images/gc"
	"monopod/apiserver/kit/client"
)

// restart starts another agent with other settings.
func (w *world) restart(adjust func(*agent.Config)) {
	w.Helper()
	w.stop()
	w.adjust = adjust
	w.startAgent()
}

func (w *world) containers() []*cri.Container {
	w.Helper()
	list, err := w.rt.ListContainers(w.Context(), nil)
	if err != nil {
		w.Fatal(err)
	}
	return list
}

func (w *world) logsOf(name string, previous bool) string {
	w.Helper()
	var out bytes.Buffer
	if err := w.a.Logs(w.Context(), w.get(name), &corev1.PodLogOptions{Container: "c", Previous: previous},
		&out); err != nil {
		w.Fatal(err)
	}
	return out.String()
}

func TestDeadContainersAreCollected(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("crash", "exit", "3"))
		w.until(time.Hour, "crash", restarts(5))
		w.until(time.Minute, "crash", waitingFor("CrashLoopBackOff"))
		w.after(61 * time.Second)
		if list := w.containers(); len(list) != 1 || list[0].Metadata.Attempt != 5 {
			t.Errorf("dead containers left: %v", list)
		}
		p := w.get("crash")
		dir := filepath.Join(w.dir, "logs/pods", "default_crash_"+string(p.UID), "c")
		if list, _ := os.ReadDir(dir); len(list) != 1 || list[0].Name() != "5.log" {
			t.Errorf("logs: %v", list)
		}
		if s := p.Status.ContainerStatuses[0]; s.RestartCount != 5 || s.LastTerminationState.Terminated == nil ||
			s.LastTerminationState.Terminated.ExitCode != 3 {
			t.Errorf("status: %+v", s)
		}
		w.until(10*time.Minute, "crash", restarts(6))
		if p := w.get("crash"); p.Status.ContainerStatuses[0].LastTerminationState.Terminated == nil {
			t.Errorf("status: %+v", p.Status.ContainerStatuses[0])
		}
		w.logsOf("crash", true)
		w.delete("crash", 0)
		w.until(time.Second, "crash", gone)
		w.nothingLeft()
	})
}

func TestDeadContainersAreCollectedAsConfigured(t *testing.T) {
	inWorld(t, func(w *world) {
		w.restart(func(c *agent.Config) {
			c.Garbage = gc.Default()
			c.Garbage.PerContainer, c.Garbage.MinContainerAge = 2, 10*time.Minute
		})
		w.create(pod("crash", "exit", "3"))
		w.until(time.Hour, "crash", restarts(4))
		w.after(time.Minute)
		if list := w.containers(); len(list) < 5 {
			t.Errorf("containers collected too early: %v", list)
		}
		w.until(time.Hour, "crash", restarts(8))
		w.after(time.Minute)
		list := w.containers()
		if list[0].Metadata.Attempt == 0 || len(list) < 3 {
			t.Errorf("dead containers left: %v", list)
		}
	})
}

func TestDeadSandboxesAreCollected(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a"))
		w.until(time.Second, "a", ready)
		for n := range int32(3) {
			list, _ := w.rt.ListPodSandbox(w.Context(), nil)
			if err := w.rt.StopPodSandbox(w.Context(), list[len(list)-1].Id); err != nil {
				t.Fatal(err)
			}
			w.until(400*time.Second, "a", restarts(n+1))
			w.until(time.Minute, "a", ready)
		}
		w.after(2 * time.Minute)
		// These are the running sandbox, and the sandbox of the last dead container.
		if list, _ := w.rt.ListPodSandbox(w.Context(), nil); len(list) != 2 {
			t.Errorf("sandboxes: %v", list)
		}
	})
}

func TestDiskPressureRemovesContainersOfTerminatedPods(t *testing.T) {
	inWorld(t, func(w *world) {
		done := pod("done", "exit", "0")
		done.Spec.RestartPolicy = corev1.RestartPolicyNever
		w.create(done)
		w.create(pod("up"))
		w.until(time.Second, "done", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		w.until(time.Second, "up", ready)
		w.after(2 * time.Minute)
		if n := len(w.containers()); n != 2 {
			t.Errorf("%d containers, want 2: the terminated pod keeps its container", n)
		}
		before := w.get("done")
		if err := w.a.DeleteAllUnusedContainers(w.Context()); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		if list := w.containers(); len(list) != 1 || list[0].Labels["io.kubernetes.pod.name"] != "up" {
			t.Errorf("containers left: %v", list)
		}
		if list, _ := w.rt.ListPodSandbox(w.Context(), nil); len(list) != 1 {
			t.Errorf("sandboxes left: %v", list)
		}
		w.restart(nil)
		w.after(2 * time.Minute)
		if after := w.get("done"); after.ResourceVersion != before.ResourceVersion {
			t.Errorf("the status of the terminated pod changed:\n%+v\n%+v", before.Status, after.Status)
		}
		w.delete("done", 0)
		w.until(time.Second, "done", gone)
		w.delete("up", 0)
		w.until(time.Second, "up", gone)
		w.nothingLeft()
	})
}

func TestLogsOfDeletedPodsAreCollected(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a"))
		w.until(time.Second, "a", ready)
		links := names(w, "logs/containers")
		if len(links) != 1 || !strings.HasPrefix(links[0], "a_default_c-") {
			t.Fatalf("links: %v", links)
		}
		if _, err := os.ReadFile(filepath.Join(w.dir, "logs/containers", links[0])); err != nil {
			t.Errorf("the link to the log: %v", err)
		}
		if err := os.MkdirAll(filepath.Join(w.dir, "logs/pods/default_old_gone-uid/c"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/nowhere", filepath.Join(w.dir, "logs/containers/old.log")); err != nil {
			t.Fatal(err)
		}
		w.after(61 * time.Second)
		if left := names(w, "logs/pods"); len(left) != 1 || !strings.HasPrefix(left[0], "default_a_") {
			t.Errorf("folders: %v", left)
		}
		if left := names(w, "logs/containers"); !slices.Equal(left, links) {
			t.Errorf("links: %v", left)
		}
		w.delete("a", 0)
		w.until(time.Second, "a", gone)
		w.after(time.Second)
		if left := names(w, "logs/containers"); len(left) > 0 {
			t.Errorf("links: %v", left)
		}
	})
}

// listed returns the names of the node's images.
func (w *world) listed() (out []string) {
	w.Helper()
	node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1")
	if err != nil {
		w.Fatal(err)
	}
	for _, i := range node.Status.Images {
		for _, name := range i.Names {
			if !strings.Contains(name, "@") {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) usesImage(name, image string) {
	p := pod(name)
	p.Spec.Containers[0].Image = image
	w.create(p)
	w.until(time.Minute, name, ready)
}

func TestUnusedImagesAreCollectedByAge(t *testing.T) {
	inWorld(t, func(w *world) {
		w.restart(func(c *agent.Config) {
			c.Garbage = gc.Default()
			c.Garbage.ImageHigh, c.Garbage.ImageMaxAge = 100, time.Hour
		})
		w.usesImage("a", "old:1")
		w.usesImage("b", "used:1")
		w.delete("a", 0)
		w.until(time.Second, "a", gone)
		w.after(50 * time.Minute)
		if got := w.listed(); len(got) != 2 {
			t.Errorf("too early: %v", got)
		}
		w.after(20 * time.Minute)
		if got := w.listed(); !slices.Equal(got, []string{"docker.io/library/used:1"}) {
			t.Errorf("images: %v", got)
		}
		w.usesImage("c", "old:1") // pulled again
	})
}

// Some of this machine's disk is always in use, so the agent removes all unused images, and still fails to free enough.
func TestUnusedImagesAreCollectedForSpace(t *testing.T) {
	inWorld(t, func(w *world) {
		w.restart(func(c *agent.Config) {
			c.Garbage = gc.Default()
			c.Garbage.ImageHigh, c.Garbage.ImageLow = 1, 0
		})
		w.usesImage("a", "old:1")
		w.usesImage("b", "used:1")
		w.delete("a", 0)
		w.until(time.Second, "a", gone)
		w.after(5*time.Minute + time.Second) // the first observation: no image is old enough
		if got := w.listed(); len(got) != 2 {
			t.Errorf("too early: %v", got)
		}
		w.after(5 * time.Minute)
		if got := w.listed(); !slices.Equal(got, []string{"docker.io/library/used:1"}) {
			t.Errorf("images: %v", got)
		}
		for _, want := range []string{
			"Warning n1 FreeDiskSpaceFailed: Failed to garbage collect required amount of images. Attempted to free ",
			"Warning n1 ImageGCFailed: Failed to garbage collect required amount of images. Attempted to free ",
		} {
			if !w.hasEvent(want) {
				t.Errorf("no event: %s\n%s", want, strings.Join(w.recorded(), "\n"))
			}
		}
		before := w.callCount()
		w.after(61 * time.Second)
		if n := w.callCount() - before; n > 8 { // the heartbeat's
			t.Errorf("%d runtime calls in an idle minute", n)
		}
	})
}

func TestUnusedImagesAreRemovedAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.usesImage("a", "old:1")
		w.usesImage("b", "used:1")
		w.delete("a", 0)
		w.until(time.Second, "a", gone)
		if err := w.a.DeleteUnusedImages(w.Context()); err != nil {
			t.Fatal(err)
		}
		w.after(2*time.Minute + time.Second)
		if err := w.a.DeleteUnusedImages(w.Context()); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		if got := w.listed(); !slices.Equal(got, []string{"docker.io/library/used:1"}) {
			t.Errorf("images: %v", got)
		}
	})
}
