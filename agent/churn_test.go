package agent_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent"
	"monopod/agent/runtime/fake"
	"monopod/apiserver/kit/client"
	"monopod/testdata/harness"
)

// The test creates and deletes pods while the runtime fails at random and the agent restarts at random times. In the
// end, each desired pod runs once, and no other pod has a sandbox.
func TestChurn(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				churn(w, rand.New(rand.NewPCG(seed, 7)))
			})
		})
	}
}

func churn(w *world, r *rand.Rand) {
	var dice = func(n int) bool { return r.IntN(n) == 0 }
	failures := rand.New(rand.NewPCG(r.Uint64(), 1))
	w.failing(func(op, _ string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if failures.IntN(12) == 0 {
			return errors.New("random failure")
		}
		return nil
	})
	alive := map[string]bool{}
	for i := range 60 {
		name := fmt.Sprintf("p%d", r.IntN(8))
		switch {
		case w.get(name) == nil:
			w.create(pod(name, [][]string{nil, {"-ignore-term"}, {"-stop-after", "1s"}, {"exit", "1"}}[r.IntN(4)]...))
		case w.get(name).DeletionTimestamp == nil:
			w.delete(name, int64(r.IntN(4)))
		}
		if dice(6) {
			w.stop()
			w.startAgent()
		}
		w.after(time.Duration(r.IntN(20)) * time.Millisecond * time.Duration(1+i%7*20))
	}
	w.failing(func(string, string) error { return nil })
	w.after(10 * time.Minute)
	for i := range 8 {
		name := fmt.Sprintf("p%d", i)
		p := w.get(name)
		if p == nil {
			continue
		}
		if p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning {
			w.Errorf("%s: %+v", name, p.Status)
		}
		alive[string(p.UID)] = true
	}
	checkOnly(w, alive)
	for i := range 8 {
		if name := fmt.Sprintf("p%d", i); w.get(name) != nil {
			w.delete(name, 1)
		}
	}
	w.after(time.Minute)
	w.nothingLeft()
}

// checkOnly checks that exactly these pods have a ready sandbox, one each, and no container runs twice.
func checkOnly(w *world, uids map[string]bool) {
	w.Helper()
	sandboxes, _ := w.rt.ListPodSandbox(w.Context(), nil)
	ready := map[string]int{}
	for _, s := range sandboxes {
		if !uids[s.Metadata.Uid] {
			w.Errorf("sandbox without a pod: %v", s)
		}
		if s.State.String() == "SANDBOX_READY" {
			ready[s.Metadata.Uid]++
		}
	}
	containers, _ := w.rt.ListContainers(w.Context(), nil)
	running := map[string]int{}
	for _, c := range containers {
		if c.State.String() == "CONTAINER_RUNNING" {
			running[c.Labels["io.kubernetes.pod.uid"]]++
		}
	}
	for uid := range uids {
		if ready[uid] != 1 || running[uid] > 1 {
			w.Errorf("pod %s has %d sandboxes and %d running containers", uid, ready[uid], running[uid])
		}
	}
}

func TestMissedEventIsFound(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(pod("a"))
		w.until(time.Second, "a", ready)
		list, _ := w.rt.ListPodSandbox(w.Context(), nil)
		if err := w.rt.StopPodSandbox(w.Context(), list[0].Id); err != nil { // not through the agent
			w.Fatal(err)
		}
		w.until(400*time.Second, "a", restarts(1))
		w.until(time.Minute, "a", ready)
		sandboxes, _ := w.rt.ListPodSandbox(w.Context(), nil)
		if len(sandboxes) > 2 {
			w.Errorf("sandboxes: %v", sandboxes)
		}
	})
}

func TestForeignContainersAreKept(t *testing.T) {
	inWorld(t, func(w *world) {
		other, err := agent.New(agent.Deps{Client: w.api, Runtime: w.rt, Dial: w.rt.Dial, Mounter: noMounts{}},
			agent.Config{NodeName: "n2", DataDir: w.TempDir(), NodeIP: "192.0.2.2"})
		if err != nil {
			w.Fatal(err)
		}
		run := runAgent(w, other)
		p := pod("b")
		p.Spec.NodeName = "n2"
		w.create(p)
		w.until(time.Second, "b", ready)
		w.stop()
		w.startAgent() // n1 lists what exists
		w.after(time.Minute)
		if !ready(w.get("b")) || w.get("b").Status.ContainerStatuses[0].RestartCount != 0 {
			w.Errorf("%+v", w.get("b").Status)
		}
		w.delete("b", 1)
		w.until(time.Second, "b", gone)
		run()
	})
}

func TestNodeIsRegisteredAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.after(time.Second)
		ref := client.Ref{Resource: client.Nodes, Name: "n1"}
		if _, err := w.api.Delete(w.Context(), ref, metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
		w.after(11 * time.Second)
		if node, err := client.Get[*corev1.Node](w.Context(), w.api, "", "n1"); err != nil || !nodeReady(node) {
			w.Errorf("%v %v", node, err)
		}
	})
}

func TestConfigErrorsAndHooks(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
		}
		w.create(p)
		w.until(time.Second, "a", waitingFor("CreateContainerConfigError"))
		w.create(&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}, Data: map[string][]byte{"K": []byte("v")}})
		w.until(100*time.Millisecond, "a", ready)

		hook := pod("h")
		hook.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/web", "exit", "1"}}},
		}
		w.create(hook)
		w.until(time.Minute, "h", waitingFor("CrashLoopBackOff"))
		if !w.hasEvent("FailedPostStartHook") {
			w.Errorf("events: %v", w.recorded())
		}
	})
}

func TestTerminationMessage(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a", "write", "/dev/termination-log", "bye")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		w.create(p)
		p = pod("b", "get", "http://127.0.0.1:1/")
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		w.create(p)
		w.until(time.Second, "a", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		w.until(time.Second, "b", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if m := w.get("a").Status.ContainerStatuses[0].State.Terminated.Message; m != "bye\n" {
			w.Errorf("message %q", m)
		}
		if m := w.get("b").Status.ContainerStatuses[0].State.Terminated.Message; m == "" {
			w.Errorf("no message from the log")
		}
	})
}

func TestDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		p := pod("a")
		p.Spec.ActiveDeadlineSeconds = new(int64(20))
		w.create(p)
		w.until(time.Second, "a", ready)
		took := w.until(time.Minute, "a", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		if took < 18*time.Second || took > 21*time.Second || w.get("a").Status.Reason != "DeadlineExceeded" {
			w.Errorf("after %v: %+v", took, w.get("a").Status)
		}
	})
}

func TestIdleWritesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 10 {
			w.create(pod(fmt.Sprint("p", i)))
		}
		w.until(time.Second, "p9", ready)
		w.after(time.Minute)
		before := tree(w)
		w.after(10 * time.Minute)
		if after := tree(w); !slices.Equal(before, after) {
			w.Errorf("files changed:\n%s\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
		}
	})
}

// tree lists every file below the data folder with its time.
func tree(w *world) []string {
	var out []string
	err := filepath.Walk(w.dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			out = append(out, path+" "+info.ModTime().String())
		}
		return err
	})
	if err != nil {
		w.Error(err)
	}
	return out
}

// The agent imports archives at its start and when they appear; a pod that waits for its image then starts. The test
// uses real time, because inotify does not work with virtual time.
func TestImageArchiveIsImported(t *testing.T) {
	t.Parallel()
	w := &world{T: t, dir: t.TempDir(), calls: map[string]int{}}
	w.openAPI()
	w.rt = fake.New(fake.Config{Fail: w.call})
	t.Cleanup(func() { w.rt.Close() })
	w.failing(func(op, _ string) error {
		if op == "PullImage" {
			return errors.New("no network")
		}
		return nil
	})
	images := filepath.Join(w.dir, "images")
	a, err := agent.New(agent.Deps{Client: w.api, Runtime: w.rt, Recorder: w, Mounter: noMounts{}},
		agent.Config{NodeName: "n1", DataDir: w.dir, ImageDir: images})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runAgent(w, a))
	w.create(realPod("a"))
	awaitReal(w, "a", waitingFor("ErrImagePull"), waitingFor("ImagePullBackOff"))
	archive := sampleArchive(t, []byte("not used"))
	if err := os.WriteFile(filepath.Join(images, "web.tar"), archive, 0o644); err != nil {
		t.Fatal(err)
	}
	awaitReal(w, "a", ready)
}

func awaitReal(w *world, name string, any ...func(*corev1.Pod) bool) {
	w.Helper()
	if !harness.Eventually(harness.Enough, func() bool {
		p := w.get(name)
		return p != nil && slices.ContainsFunc(any, func(ok func(*corev1.Pod) bool) bool { return ok(p) })
	}) {
		w.Fatalf("not in time: %v", w.watched())
	}
}
