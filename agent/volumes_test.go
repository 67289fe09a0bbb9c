package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host/mount"
	"monopod/agent/runtime/fake"
)

func withVolume(p *corev1.Pod, source corev1.VolumeSource) *corev1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: "/v", ReadOnly: true})
	return p
}

// A pod that is deleted while it waits for its volumes terminates, even while a finalizer blocks the deletion.
func TestDeletedWhileWaitingForVolumes(t *testing.T) {
	inWorld(t, func(w *world) {
		p := withVolume(
			pod("p"),
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}},
			},
		)
		p.Finalizers = []string{"example.com/hold"}
		w.create(p)
		w.until(5*time.Second, "p", waitingFor("ContainerCreating"))
		w.delete("p", 30)
		w.until(time.Second, "p", func(p *corev1.Pod) bool {
			end := p.Status.ContainerStatuses[0].State.Terminated
			return p.Status.Phase == corev1.PodFailed && end != nil && end.Reason == "ContainerStatusUnknown" &&
				end.ExitCode == 137
		})
		w.after(time.Minute)
		if p := w.get("p"); p == nil || p.Status.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("a minute later: %+v", p)
		}
	})
}

// A pod whose ConfigMap does not exist emits an event, and runs as soon as the ConfigMap exists.
func TestVolumeIsRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(withVolume(
			pod("p"),
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}},
			},
		))
		const message = `MountVolume.SetUp failed for volume "v" : configmap "late" not found`
		w.until(5*time.Second, "p", func(p *corev1.Pod) bool {
			return waitingFor("ContainerCreating")(p) && p.Status.ContainerStatuses[0].State.Waiting.Message == message
		})
		if !slices.Contains(w.recorded(), "Warning p FailedMount: "+message) {
			t.Errorf("no event: %v", w.recorded())
		}
		w.after(time.Minute)
		w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"},
			Data: map[string]string{"k": "v"}})
		w.until(time.Second, "p", ready)
		mounts := w.get("p").Status.ContainerStatuses[0].VolumeMounts
		if i := slices.IndexFunc(mounts, func(m corev1.VolumeMountStatus) bool { return m.Name == "v" }); i < 0 ||
			!mounts[i].ReadOnly || *mounts[i].RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled {
			t.Errorf("mounts in the status: %+v", mounts)
		}
		w.delete("p", 0)
		w.until(5*time.Second, "p", gone)
		w.nothingLeft()
	})
}

// The status names an unsupported volume type, and the deletion of the pod completes.
func TestUnsupportedVolume(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(withVolume(pod("p"), corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}))
		w.until(5*time.Second, "p", func(p *corev1.Pod) bool {
			return waitingFor("ContainerCreating")(p) &&
				strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message,
					"no volume plugin matched: volumes of type nfs")
		})
		w.delete("p", 30)
		w.until(5*time.Second, "p", gone)
		w.nothingLeft()
	})
}

// A container that needs a feature that the runtime does not support fails to start, with an event.
func TestRecursiveReadOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		p := withVolume(pod("p"), corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		p.Spec.Containers[0].VolumeMounts[0].RecursiveReadOnly = new(corev1.RecursiveReadOnlyEnabled)
		w.create(p)
		w.until(5*time.Second, "p", waitingFor("CreateContainerConfigError"))
		if !w.hasEvent(`volume "v" requested recursive read-only mode, but it is not supported by the runtime`) {
			t.Errorf("events: %v", w.recorded())
		}
	})
}

// The agent uses features that the runtime reports for the handler of the pod; the status shows them.
func TestRecursiveReadOnlyReachesRuntime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop()
		w.rt = fake.New(fake.Config{Latency: latency, Fail: w.call, Handlers: []*cri.RuntimeHandler{
			{Features: &cri.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}},
			{Name: "plain", Features: &cri.RuntimeHandlerFeatures{}},
		}})
		t.Cleanup(func() { w.rt.Close() })
		w.startAgent()
		w.create(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Handler: "plain"})
		for name, want := range map[string]corev1.RecursiveReadOnlyMode{"default": corev1.RecursiveReadOnlyEnabled,
			"plain": corev1.RecursiveReadOnlyDisabled} {
			p := withVolume(pod(name), corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
			p.Spec.Containers[0].VolumeMounts[0].RecursiveReadOnly = new(corev1.RecursiveReadOnlyIfPossible)
			if name == "plain" {
				p.Spec.RuntimeClassName = &name
			}
			w.create(p)
			w.until(5*time.Second, name, ready)
			if got := w.get(name).Status.ContainerStatuses[0].VolumeMounts[0].RecursiveReadOnly; got == nil || *got != want {
				t.Errorf("%s: %v, want %s", name, got, want)
			}
		}
	})
}

// clumsy fails to unmount for a while.
type clumsy struct {
	mount.Folders
	failing atomic.Bool
}

func (c *clumsy) Mounted(dir string) (bool, error) { return strings.Contains(dir, "projected"), nil }
func (c *clumsy) Unmount(string) error {
	if c.failing.Load() {
		return errors.New("device or resource busy")
	}
	return nil
}

// The deletion of a pod waits until its volumes are unmounted.
func TestUnmountIsTriedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop()
		m := &clumsy{}
		m.failing.Store(true)
		w.mounter = m
		w.startAgent()
		w.create(pod("p"))
		w.until(5*time.Second, "p", ready)
		w.delete("p", 1)
		w.after(10 * time.Second)
		if w.get("p") == nil || len(names(w, "pods")) != 1 {
			t.Error("the API removed the pod although its volume is mounted")
		}
		m.failing.Store(false)
		w.until(15*time.Second, "p", gone)
		w.nothingLeft()
	})
}

// The agent unmounts orphaned mounts of an earlier start as soon as possible, and never removes files through a mount.
func TestOrphanedVolumes(t *testing.T) {
	dir := t.TempDir()
	if err := (mount.Kernel{}).Tmpfs(dir, mount.Tmpfs{Mode: 0o700}); err != nil {
		t.Skipf("skipped: cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = mount.Kernel{}.Unmount(dir) })
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	inWorld(t, func(w *world) {
		w.stop()
		left := filepath.Join(w.dir, "pods", "dead", "volumes", "kubernetes.io~local-volume", "v")
		if err := os.MkdirAll(left, 0o755); err != nil {
			t.Fatal(err)
		}
		source, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		if _, err := (mount.Kernel{}).Bind(int(source.Fd()), left); err != nil {
			t.Fatal(err)
		}
		m := &heldMounts{}
		m.failing.Store(true)
		w.mounter = m
		w.startAgent()
		w.after(3 * time.Minute)
		if mounted, err := (mount.Kernel{}).Mounted(left); err != nil || !mounted {
			t.Errorf("after failed unmounts: mounted %v, error %v", mounted, err)
		}
		m.failing.Store(false)
		w.after(2 * time.Minute)
		if left := names(w, "pods"); len(left) > 0 {
			t.Errorf("folders of pods left: %v", left)
		}
		if _, err := os.Stat(precious); err != nil {
			t.Errorf("the agent removed a file through a mount: %v", err)
		}
	})
}

// heldMounts is a mounter whose mounts are busy.
type heldMounts struct {
	mount.Kernel
	failing atomic.Bool
}

func (s *heldMounts) Unmount(dir string) error {
	if s.failing.Load() {
		return errors.New("device or resource busy")
	}
	return s.Kernel.Unmount(dir)
}

// A volume shows the current resources of its container, also after a restart of the agent.
func TestVolumeShowsResources(t *testing.T) {
	inWorld(t, func(w *world) {
		p := withVolume(w.sized("p"),
			corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "memory", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.memory"}},
			}}})
		w.create(p)
		w.until(time.Second, "p", ready)
		file := filepath.Join(w.dir, "pods", string(w.get("p").UID), "volumes", "kubernetes.io~downward-api", "v", "memory")
		for _, size := range []string{"128Mi", "256Mi"} {
			w.resize("p", "100m", size)
			w.after(time.Second)
			want := resource.MustParse(size)
			if data, err := os.ReadFile(file); err != nil || string(data) != strconv.FormatInt(want.Value(), 10) {
				t.Errorf("%s: %s, %v", size, data, err)
			}
			w.stop()
			w.startAgent()
			w.after(time.Second)
		}
	})
}

// The next agent removes the volumes of a pod that terminated while no agent ran.
func TestVolumesOfPodThatEndedWithoutAgent(t *testing.T) {
	inWorld(t, func(w *world) {
		p := withVolume(pod("p", "sleep", "10"), corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		w.create(p)
		w.until(time.Second, "p", ready)
		volumes := filepath.Join(w.dir, "pods", string(w.get("p").UID), "volumes")
		if _, err := os.Stat(volumes); err != nil {
			t.Fatal(err)
		}
		w.stop()
		w.after(time.Minute)
		w.startAgent()
		w.until(5*time.Second, "p", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		w.after(time.Second)
		if _, err := os.Stat(volumes); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("volumes left: %v", err)
		}
	})
}
