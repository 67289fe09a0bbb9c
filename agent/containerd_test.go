package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent"
	"monopod/agent/host/mount"
	"monopod/agent/runtime/containerd"
	"monopod/agent/runtime/cri"
	"monopod/apiserver/kit/client"
	"monopod/testdata/harness"
	"monopod/testdata/web/image"
)

// real is an agent with its own containerd.
type real struct {
	*world
	child   *containerd.Child
	runtime *cri.Runtime
	root    string // the root of the cgroups
}

func openReal(t *testing.T) *real {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: real containers need root")
	}
	if _, err := exec.LookPath("containerd"); err != nil {
		t.Skip("skipped: real containers need containerd in PATH")
	}
	dir, err := os.MkdirTemp("/tmp", "m p") // the kernel writes the space as \040
	if err != nil {
		t.Fatal(err)
	}
	r := &real{world: &world{T: t, dir: dir, calls: map[string]int{}}, root: "/monopod-" + containerd.InstanceID(dir)}
	r.openAPI()
	r.startContainerd()
	r.importSample()
	r.begin()
	return r
}

func (r *real) startContainerd() {
	log := zaptest.NewLogger(r, zaptest.Level(zap.WarnLevel))
	child, err := containerd.New(
		containerd.Config{DataDir: r.dir, Log: log, Executable: harness.Build(r).Monopod(harness.Plain)})
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := child.Run(ctx); err != nil {
			r.Error(err)
		}
	})
	r.child = child
	if r.runtime,
		err = cri.New(cri.Config{Socket: child.Socket(), Snapshotter: child.Snapshotter(), Log: log}); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		bg := context.Background()
		if err := r.runtime.RemoveAll(bg); err != nil {
			r.Error(err)
		}
		if err := r.runtime.Close(); err != nil {
			r.Error(err)
		}
		cancel()
		wg.Wait()
		if err := child.Discard(); err != nil {
			r.Error(err)
		}
		os.RemoveAll(r.dir)
	})
}

func (r *real) importSample() {
	program := filepath.Join(r.TempDir(), "web")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "monopod/testdata/web")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		r.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(r.dir, "images"), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "images", "web.tar"), sampleArchive(r, b), 0o644); err != nil {
		r.Fatal(err)
	}
}

// sampleArchive packs the sample image.
func sampleArchive(t testing.TB, program []byte) []byte {
	t.Helper()
	var archive bytes.Buffer
	if err := image.Write(&archive, image.Name, program); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func (r *real) begin() {
	a, err := agent.New(
		agent.Deps{Client: r.api, Runtime: r.runtime, Log: zaptest.NewLogger(r, zaptest.Level(zap.InfoLevel)), Recorder: r},
		agent.Config{NodeName: "n1", DataDir: r.dir, ImageDir: filepath.Join(r.dir, "images"), CgroupRoot: r.root},
	)
	if err != nil {
		r.Fatal(err)
	}
	r.a = a
	r.stop = runAgent(r, a)
	r.Cleanup(func() { r.stop() })
}

// await waits for a state of a pod in real time.
func (r *real) await(name string, ok func(*corev1.Pod) bool) {
	r.Helper()
	if harness.Eventually(harness.Enough, func() bool { return ok(r.get(name)) }) {
		return
	}
	r.Fatalf("not in time\nevents:\n%s\nwatch:\n%s", strings.Join(r.recorded(), "\n"), strings.Join(r.watched(), "\n"))
}

func realPod(name string, args ...string) *corev1.Pod {
	p := pod(name, args...)
	p.Spec.Containers[0].Image = image.Name
	return p
}

func TestContainerd(t *testing.T) {
	r := openReal(t)
	t.Run("twenty", r.twenty)
	t.Run("life", func(t *testing.T) { r.life(t) })
	t.Run("files", func(t *testing.T) { r.files(t) })
	t.Run("adopt", func(t *testing.T) { r.adopt(t) })
	t.Run("oom", func(t *testing.T) { r.oom(t) })
	r.leftovers()
}

func (r *real) twenty(*testing.T) {
	name := func(i int) string { return fmt.Sprintf("many%d", i) }
	all := func(what func(name string), ok func(*corev1.Pod) bool) {
		for i := range 20 {
			what(name(i))
		}
		for i := range 20 {
			r.await(name(i), ok)
		}
	}
	all(func(n string) { r.create(realPod(n)) }, ready)
	all(func(n string) { r.delete(n, 10) }, gone)
}

func (r *real) life(t *testing.T) {
	p := realPod("a", "-ignore-term")
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}},
		PeriodSeconds: 1,
	}
	p.Spec.Containers[0].ReadinessProbe.TCPSocket.Port.IntVal = 8080
	r.create(p)
	r.await("a", ready)
	began := time.Now()
	r.delete("a", 3)
	r.await("a", gone) // slow on a busy machine
	if took := time.Since(began); took < 2900*time.Millisecond {
		t.Errorf("the pod terminated after %v, want its grace period of 3s", took)
	}
	if !harness.Eventually(harness.Enough, func() bool { // events arrive after the stored state
		seen := r.watched()
		return len(seen) > 2 && strings.Contains(seen[len(seen)-2], "c:exit=137")
	}) {
		t.Errorf("no watch event with exit code 137 before the deletion: %v", r.watched())
	}
}

func (r *real) files(t *testing.T) {
	p := realPod("f")
	p.Spec.Hostname = "sample"
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "IP",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: mustParse("64Mi"),
		corev1.ResourceCPU: mustParse("500m")}
	p.Spec.Volumes = []corev1.Volume{{Name: "m",
		VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: new(mustParse("1Mi"))},
		}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "m", MountPath: "/m"}}
	r.create(p)
	r.await("f", ready)
	got := r.get("f")
	if hosts := r.run("f", "cat", "/etc/hosts"); !strings.Contains(hosts, got.Status.PodIP+"\tsample") {
		t.Errorf("hosts: %s", hosts)
	}
	if env := r.run("f", "env"); !strings.Contains(env, "IP="+got.Status.PodIP) ||
		!strings.Contains(env, "HOSTNAME=sample") {
		t.Errorf("env: %s", env)
	}
	limit := filepath.Join("/sys/fs/cgroup/memory", r.root, "kubepods", "pod"+string(got.UID), "memory.limit_in_bytes")
	if b, err := os.ReadFile(limit); err == nil && strings.TrimSpace(string(b)) != "67108864" {
		t.Errorf("pod limit: %s", b)
	} else if err != nil {
		t.Logf("no pod limit seen: %v", err)
	}
	r.delete("f", 5)
	r.await("f", gone)
}

func (r *real) run(name string, cmd ...string) string {
	id := strings.TrimPrefix(r.get(name).Status.ContainerStatuses[0].ContainerID, "containerd://")
	out, stderr, code, err := r.runtime.ExecSync(r.Context(), id, append([]string{"/web"}, cmd...), 5*time.Second)
	if err != nil || code != 0 {
		r.Errorf("%v: %v %d %s", cmd, err, code, stderr)
	}
	return string(out)
}

func (r *real) adopt(t *testing.T) {
	r.create(realPod("a"))
	r.await("a", ready)
	before := r.get("a")
	r.stop()
	r.begin()
	time.Sleep(time.Second)
	if after := r.get("a"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("a restart of the agent changed the status:\n%+v\n%+v", before.Status, after.Status)
	}
	r.delete("a", 5)
	r.await("a", gone)
}

func (r *real) oom(t *testing.T) {
	p := realPod("o", "alloc", "64")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: mustParse("16Mi")}
	r.create(p)
	r.await("o", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if end := r.get("o").Status.ContainerStatuses[0].State.Terminated; end.Reason != "OOMKilled" || end.ExitCode != 137 {
		t.Errorf("end: %+v", end)
	}
	r.delete("o", 5) // immediate, because the pod has terminated
}

// leftovers checks that no state of deleted pods remains.
func (r *real) leftovers() {
	r.Helper()
	harness.Eventually(harness.Enough, func() bool { // the runtime removes the container after the API removes the pod
		list, _ := r.runtime.ListPodSandbox(context.Background(), nil)
		return len(list) == 0 && len(names(r.world, "logs/pods")) == 0
	})
	r.stop()
	sandboxes, _ := r.runtime.ListPodSandbox(context.Background(), nil)
	containers, _ := r.runtime.ListContainers(context.Background(), nil)
	if len(sandboxes)+len(containers) > 0 {
		r.Errorf("left behind: %v %v", sandboxes, containers)
	}
	for _, dir := range []string{"pods", "logs/pods"} {
		if left := names(r.world, dir); len(left) > 0 {
			r.Errorf("left behind in %s: %v", dir, left)
		}
	}
	v1, _ := filepath.Glob("/sys/fs/cgroup/*" + r.root)
	if v2, _ := filepath.Glob("/sys/fs/cgroup" + r.root); len(v1)+len(v2) > 0 {
		r.Errorf("cgroups left behind: %v %v", v1, v2)
	}
	if mounts, err := mount.Below(filepath.Join(r.dir, "pods")); err != nil || len(mounts) > 0 {
		r.Errorf("mounts left behind: %q, %v", mounts, err)
	}
	var node *corev1.Node
	node, err := client.Get[*corev1.Node](context.Background(), r.api, "", "n1")
	if err != nil || !nodeReady(node) {
		r.Errorf("node: %v %v", node, err)
	}
	for _, c := range node.Status.Conditions {
		r.Logf("%s=%s %s", c.Type, c.Status, c.Message)
	}
}
