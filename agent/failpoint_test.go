package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host/mount"
	"monopod/agent/runtime"
)

// story is the whole life of a pod as a user observes it. A kill of the agent must not change it.
type story struct {
	name   string
	static bool // the agent has a folder of static pods
	tell   func(w *world)
}

// mounts is a mount table that survives the agent, as the kernel's does.
type mounts struct {
	noMounts
	mu  sync.Mutex // guards all
	all map[string]bool
}

func (m *mounts) Tmpfs(dir string, _ mount.Tmpfs) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[dir] = true
	return nil
}

func (m *mounts) Mounted(dir string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[dir], nil
}

func (m *mounts) Unmount(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, dir)
	return nil
}

// TestFailpoints kills the agent at every step in the life of pods, once each: before the step, after it, and so that
// the step takes effect only after the next agent has started. Every story must hold, and no state may remain.
func TestFailpoints(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var steps []failpoint
			t.Run("alive", func(t *testing.T) {
				openWorld(t, func(w *world) { steps = s.live(w, failpoint{}, "").seen })
			})
			if len(steps) < 10 {
				t.Fatalf("the story has only %d steps: %v", len(steps), steps)
			}
			var missed atomic.Int32
			t.Cleanup(func() { // some steps do not occur in every run
				if int(missed.Load()) > len(steps)/5 {
					t.Errorf("%d of %d failpoints were not reached", missed.Load(), len(steps))
				}
			})
			for _, p := range steps {
				for _, when := range p.moments() {
					t.Run(fmt.Sprintf("%s_%s", when, strings.ReplaceAll(p.String(), "/", "-")), func(t *testing.T) {
						inWorld(t, func(w *world) {
							if !s.live(w, p, when).killed() {
								missed.Add(1)
							}
						})
					})
				}
			}
		})
	}
}

// moments returns the moments at which a kill at this step makes a difference. A kill after a read equals a kill before
// the next step. The API ends with the agent, so only the runtime may still process a request of a killed agent.
func (p failpoint) moments() []moment {
	switch verb, _, _ := strings.Cut(p.op, " "); verb {
	case "RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemovePodSandbox":
		return []moment{before, after, late}
	case "event", "get", "ContainerStatus", "PodSandboxStatus":
		return []moment{before}
	}
	return []moment{before, after}
}

// live runs the story with the agent killed at one failpoint.
func (s story) live(w *world, point failpoint, when moment) *fate {
	if s.static {
		w.beginStatic(nil)
	}
	kernel := &mounts{all: map[string]bool{}}
	w.mounter = kernel
	f := w.doom(point, when)
	s.tell(w)
	f.wait()
	w.nothingLeft()
	if len(kernel.all) > 0 {
		w.Errorf("still mounted: %v", kernel.all)
	}
	return f
}

// patience is the time limit of a story, including backoffs.
const patience = 10 * time.Minute

// await is until with fewer checks.
func (w *world) await(name string, ok func(*corev1.Pod) bool) {
	w.Helper()
	for start := time.Now(); time.Since(start) <= patience; time.Sleep(5 * time.Millisecond) {
		if ok(w.get(name)) {
			return
		}
	}
	w.Fatalf("not within the time limit\npod: %+v\nevents:\n%s\nwatch:\n%s", w.get(name), strings.Join(w.recorded(), "\n"),
		strings.Join(w.watched(), "\n"))
}

// oneOf checks that the pod has one sandbox and one instance of each container, all running and never restarted.
func (w *world) oneOf(name string, containers ...string) {
	w.Helper()
	w.after(time.Second) // for calls that take effect late
	p := w.get(name)
	if p == nil || !ready(p) {
		w.Fatalf("not ready: %+v", p)
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if s.RestartCount != 0 {
			w.Errorf("%s was restarted: %+v", s.Name, s)
		}
	}
	sandboxes, _ := w.rt.ListPodSandbox(w.Context(), &cri.PodSandboxFilter{LabelSelector: of(p)})
	if len(sandboxes) != 1 || sandboxes[0].State != cri.PodSandboxState_SANDBOX_READY {
		w.Errorf("sandboxes: %v", sandboxes)
	}
	list, _ := w.rt.ListContainers(w.Context(), &cri.ContainerFilter{LabelSelector: of(p)})
	var names []string
	for _, c := range list {
		names = append(names, c.Metadata.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, containers) {
		w.Errorf("containers: %v, want %v", list, containers)
	}
}

// of returns the sandboxes and containers of a pod in the runtime.
func of(p *corev1.Pod) map[string]string {
	uid := string(p.UID)
	if hash := p.Annotations["kubernetes.io/config.mirror"]; hash != "" {
		uid = hash
	}
	return map[string]string{"io.kubernetes.pod.uid": uid}
}

func phase(want corev1.PodPhase) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == want }
}

func stories() []story {
	return []story{
		{name: "plain", tell: plain},
		{name: "stubborn", tell: stubborn},
		{name: "forced", tell: forced},
		{name: "inits", tell: inits},
		{name: "volumes", tell: volumes},
		{name: "hooks", tell: hooks},
		{name: "crashes", tell: crashes},
		{name: "finishes", tell: finishes},
		{name: "successor", tell: successor},
		{name: "unhealthy", tell: unhealthy},
		{name: "static", static: true, tell: fromFile},
	}
}

func plain(w *world) {
	w.create(pod("a"))
	w.await("a", ready)
	w.oneOf("a", "c")
	w.delete("a", 5)
	w.await("a", gone)
}

func stubborn(w *world) {
	w.create(pod("a", "-ignore-term"))
	w.await("a", ready)
	w.delete("a", 2)
	w.await("a", gone)
}

func forced(w *world) {
	w.create(pod("a", "-ignore-term"))
	w.await("a", ready)
	w.delete("a", 0)
	w.after(5 * time.Second)
}

func inits(w *world) {
	p := pod("a")
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []corev1.Container{
		{Name: "i1", Image: "web:1", Args: []string{"exit", "0"}},
		{Name: "i2", Image: "web:1", Args: []string{"sleep", "1h"}, RestartPolicy: &always},
		{Name: "i3", Image: "web:1", Args: []string{"sleep", "1s", "exit", "0"}},
	}
	p.Spec.Containers = append(p.Spec.Containers,
		corev1.Container{Name: "d", Image: "web:1", Args: []string{"sleep", "1h"}})
	w.create(p)
	w.await("a", ready)
	w.oneOf("a", "c", "d", "i1", "i2", "i3")
	w.delete("a", 5)
	w.await("a", gone)
}

func volumes(w *world) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "o"}
	w.create(&corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Data: map[string]string{"k": "v"}})
	w.create(&corev1.Secret{ObjectMeta: *meta.DeepCopy(), Data: map[string][]byte{"k": []byte("v")}})
	p := pod("a")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "config",
			VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "o"}},
			}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "o"}}},
		{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{
			Name:         "memory",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
		},
	}
	for _, v := range p.Spec.Volumes {
		p.Spec.Containers[0].VolumeMounts = append(
			p.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name},
		)
	}
	w.create(p)
	w.await("a", ready)
	w.oneOf("a", "c")
	w.delete("a", 5)
	w.await("a", gone)
}

func hooks(w *world) {
	p := pod("a")
	run := func(args ...string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: append([]string{"/web"}, args...)}}
	}
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: run("sleep", "20ms"), PreStop: run("sleep", "50ms")}
	w.create(p)
	w.await("a", ready)
	w.oneOf("a", "c")
	w.delete("a", 5)
	w.await("a", gone)
}

// crashes checks that the restart count contains every instance, and nothing else.
func crashes(w *world) {
	w.create(pod("a", "sleep", "1s", "exit", "3"))
	w.await("a", restarts(2))
	w.after(500 * time.Millisecond)
	p := w.get("a")
	list, _ := w.rt.ListContainers(w.Context(), &cri.ContainerFilter{LabelSelector: of(p)})
	attempts := map[uint32]bool{}
	for _, c := range list {
		attempts[c.Metadata.Attempt] = true
		if int32(c.Metadata.Attempt) > p.Status.ContainerStatuses[0].RestartCount {
			w.Errorf("an instance that is not in the restart count: %v, %+v", c, p.Status.ContainerStatuses[0])
		}
	}
	if len(attempts) != len(list) || len(list) != 3 {
		w.Errorf("instances: %v", list)
	}
	w.delete("a", 5)
	w.await("a", gone)
}

func finishes(w *world) {
	p := pod("a", "sleep", "1s", "exit", "0")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	w.create(p)
	w.await("a", phase(corev1.PodSucceeded))
	w.after(10 * time.Second)
	if p := w.get("a"); p.Status.ContainerStatuses[0].RestartCount != 0 ||
		p.Status.ContainerStatuses[0].State.Terminated.ExitCode != 0 {
		w.Errorf("%+v", p.Status)
	}
	w.delete("a", 5)
	w.await("a", gone)
}

// successor has the name of a pod that is still being stopped.
func successor(w *world) {
	w.create(pod("a", "-stop-after", "1s"))
	w.await("a", ready)
	first := w.get("a").UID
	w.delete("a", 0)
	w.create(pod("a"))
	w.await("a", ready)
	w.oneOf("a", "c")
	if w.get("a").UID == first {
		w.Error("the same pod")
	}
	w.delete("a", 5)
	w.await("a", gone)
}

// unhealthy restarts its container once for each failed probe.
func unhealthy(w *world) {
	p := pod("a", "sleep", "1h")
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}},
		PeriodSeconds: 1, FailureThreshold: 2, TerminationGracePeriodSeconds: new(int64(1)),
	}
	w.create(p)
	w.await("a", restarts(1))
	w.delete("a", 1)
	w.await("a", gone)
}

func fromFile(w *world) {
	w.write("a.yaml", staticPod("a", "serve"))
	w.await("a-n1", ready)
	w.oneOf("a-n1", "c")
	w.remove("a.yaml")
	w.await("a-n1", gone)
}

var _ runtime.Runtime = mortalRuntime{}
