package machine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/testdata/harness"
)

// leakCycles is an environment variable for longer runs: the number of pods that TestLeaks creates; default 40.
const leakCycles = "MONOPOD_LEAK_CYCLES"

// atATime is the number of pods that churn creates concurrently.
const atATime = 8

// asked returns a number from the environment.
func asked(t testing.TB, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// server is the monopod of a test.
type server struct {
	*harness.Server
	crashes bool // the test kills monopod or its containerd at random moments
}

// open starts monopod with containerd and a new data folder.
func open(t *testing.T, flags ...string) *server {
	t.Helper()
	harness.NeedsContainerd(t)
	programs := harness.Build(t)
	dir, err := programs.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	// --eviction-hard makes the test independent of the free disk space of the machine.
	s := &server{Server: harness.NewServer(programs.Monopod(harness.Plain), dir,
		append([]string{"--node-name", "node1", "--eviction-hard", "memory.available<1Mi"}, flags...)...)}
	t.Cleanup(func() {
		s.CleanUp(true)
		if t.Failed() {
			t.Logf("%s", s.Log)
		}
		os.RemoveAll(dir)
	})
	s.begin(t)
	return s
}

// begin starts monopod and waits for its API.
func (s *server) begin(t testing.TB) {
	t.Helper()
	s.Start()
	if err := s.Ready(); err != nil {
		t.Fatalf("%v\n%s", err, s.Log)
	}
}

// call sends a request, and decodes the response into out unless out is nil. Without a response the code is 0.
func (s *server) call(method, path string, in, out any) (code int, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequest(method, "http://x"+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.HTTP().Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	if out != nil {
		err = json.Unmarshal(answer, out)
	}
	return resp.StatusCode, err
}

// pod returns the current pod, or nil if it does not exist. It repeats the request while the server is down.
func (s *server) pod(t testing.TB, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	var err error
	if !harness.Eventually(20*time.Second, func() bool {
		var code int
		pod = &corev1.Pod{}
		code, err = s.call(http.MethodGet, podPath+"/"+name, nil, pod)
		if code == http.StatusNotFound {
			pod, err = nil, nil
		}
		return err == nil
	}) {
		t.Fatal(err)
	}
	return pod
}

// await waits until ok returns true for the pod.
func (s *server) await(t testing.TB, name string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var last *corev1.Pod
	if !harness.Eventually(harness.Enough, func() bool { last = s.pod(t, name); return ok(last) }) {
		t.Errorf("%s did not reach the expected state: %s", name, describe(last))
	}
	return last
}

func describe(p *corev1.Pod) string {
	if p == nil {
		return "gone"
	}
	status, err := json.Marshal(p.Status)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("deletion %v, %s", p.DeletionTimestamp, status)
}

func isGone(p *corev1.Pod) bool { return p == nil }

func isReady(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// shapes returns specs of all kinds of pods: those that become ready, and others.
func shapes() (ready, others []corev1.PodSpec) {
	one := func(args ...string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "monopod.local/web:1", Args: args}}}
	}
	volumes := one()
	volumes.Volumes = []corev1.Volume{
		{Name: "memory",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "config",
			VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}},
	}
	for _, v := range volumes.Volumes {
		volumes.Containers[0].VolumeMounts = append(volumes.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name,
			MountPath: "/" + v.Name})
	}
	inits := one()
	inits.InitContainers = []corev1.Container{
		{Name: "i", Image: "monopod.local/web:1", Args: []string{"exit", "0"}},
		{Name: "s", Image: "monopod.local/web:1", Args: []string{"sleep", "1h"},
			RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	limited := one()
	limited.Containers[0].Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("64Mi"),
		"cpu": resource.MustParse("100m")}
	probed := one()
	probed.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1,
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/web", "echo"}}}}
	probed.Containers[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 10,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}}}
	hooked := one()
	run := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/web", "sleep", "20ms"}}}
	hooked.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: run, PreStop: run}
	host := one("sleep", "1h")
	host.HostNetwork = true
	pulls, config, command := one(), one(), one()
	pulls.Containers[0].Image = "127.0.0.1:1/none:1"
	config.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}}
	command.Containers[0].Command = []string{"/none"}
	ends := one("exit", "0")
	ends.RestartPolicy = corev1.RestartPolicyNever
	return []corev1.PodSpec{one(), one("-ignore-term"), volumes, inits, limited, probed, hooked, host},
		[]corev1.PodSpec{one("sleep", "100ms", "exit", "1"), one("exit", "1"), ends, pulls, config, command}
}

// cycle creates a pod of a random shape, and deletes it after a random time with a random grace period.
func (s *server) cycle(t testing.TB, r *rand.Rand, name string) {
	t.Helper()
	ready, others := shapes()
	i := r.IntN(len(ready) + len(others))
	calm := i < len(ready)
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Spec = append(ready, others...)[i]
	if calm && r.IntN(4) == 0 && !pod.Spec.HostNetwork {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 20000 + hostPorts.Add(1)}}
	}
	s.insist(t, http.MethodPost, podPath, pod)
	switch r.IntN(3) {
	case 0: // while it starts
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
	case 1:
		if calm {
			if now := s.await(t, name, isReady); slices.ContainsFunc(slices.Concat(now.Status.InitContainerStatuses,
				now.Status.ContainerStatuses), s.restarted) {
				t.Errorf("%s was restarted before it was ready: %s", name, describe(now))
			}
		}
	case 2:
		time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
	}
	s.insist(t, http.MethodDelete, podPath+"/"+name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64([]int{0, 0, 1, 1, 2}[r.IntN(5)]))})
	began := time.Now()
	s.await(t, name, isGone)
	if took := time.Since(began); took > unhurried {
		t.Logf("the deletion of %s (%v) took %v", name, pod.Spec.Containers[0].Args, took.Round(time.Millisecond))
	}
}

// unhurried is the duration of a deletion above which cycle logs it.
const unhurried = 5 * time.Second

// restarted reports whether a container was restarted without a reason. If containerd is killed while it starts a
// container, the next containerd may adopt the container and kill it when it cleans up the interrupted start.
func (s *server) restarted(c corev1.ContainerStatus) bool {
	end := c.LastTerminationState.Terminated
	killed := s.crashes && c.RestartCount == 1 && end != nil && end.ExitCode == 137 &&
		end.FinishedAt.Sub(end.StartedAt.Time) <= time.Second
	return c.RestartCount > 0 && !killed
}

// hostPorts counts the used host ports: each is used once.
var hostPorts atomic.Int32

// insist repeats a write while the server is down. It accepts AlreadyExists and NotFound, because the write may have
// taken effect before the server went down.
func (s *server) insist(t testing.TB, method, path string, in any) {
	t.Helper()
	var err error
	harness.Eventually(20*time.Second, func() bool {
		var code int
		code, err = s.call(method, path, in, nil)
		if code == http.StatusConflict && method == http.MethodPost || code == http.StatusNotFound &&
			method == http.MethodDelete {
			err = nil
		}
		return code != 0
	})
	if err != nil {
		t.Fatal(err)
	}
}

// churn creates and deletes pods, several concurrently.
func (s *server) churn(t testing.TB, seed uint64, cycles int) {
	t.Helper()
	var all sync.WaitGroup
	for worker := range min(atATime, cycles) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(worker)))
			for i := worker; i < cycles && !t.Failed(); i += atATime {
				s.cycle(t, r, fmt.Sprintf("w%d-%d", worker, r.IntN(3)))
			}
		})
	}
	all.Wait()
}

// vitals is the resource usage of a monopod.
type vitals struct {
	goroutines, files      int // goroutines and open files of monopod
	containerdFiles, tasks int // open files and threads of its containerd
	kilobytes              int // RSS of monopod
}

// feel measures the resource usage.
func (s *server) feel(t testing.TB) vitals {
	t.Helper()
	_, metrics := s.Get("/metrics")
	v := vitals{goroutines: metric(t, metrics, "go_goroutines"), files: metric(t, metrics, "process_open_fds"),
		kilobytes: metric(t, metrics, "process_resident_memory_bytes") / 1024}
	p, err := procfs.NewProc(s.containerd(t))
	if err != nil {
		t.Fatal(err)
	}
	if v.containerdFiles, err = p.FileDescriptorsLen(); err != nil {
		t.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	v.tasks = stat.NumThreads
	return v
}

// metric returns the value of a metric without labels.
func metric(t testing.TB, text, name string) int {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(f)
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// settled waits until the inventory has no names that before lacks. It fails the test if names remain.
func (s *server) settled(t testing.TB, before inventory) {
	t.Helper()
	var left inventory
	if harness.Eventually(harness.Enough, func() bool { left = before.more(s.take(t)); return len(left) == 0 }) {
		return
	}
	for kind, names := range left {
		t.Errorf("%s: %d left behind: %v", kind, len(names), names)
	}
}

// images waits until only images and nftables rules are left, and returns them.
func (s *server) images(t testing.TB) inventory {
	t.Helper()
	all := s.take(t)
	own := inventory{}
	for _, kind := range []string{"content", "snapshot", "rule"} {
		own[kind] = all[kind]
	}
	s.settled(t, own)
	return own
}

// Pods of every shape, created and deleted in random order, leave nothing behind: no process, sandbox, container,
// snapshot, lease, content, namespace, mount, cgroup, link, address, host port, folder or log, no goroutine in monopod,
// and no open file in monopod or its containerd.
func TestLeaks(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.churn(t, 1, 3*atATime) // warm up: create what exists only once
	idle := s.images(t)
	before := s.feel(t)
	for round := range max(1, asked(t, leakCycles, 40)/leakRound) {
		began := time.Now()
		s.churn(t, uint64(round+2), min(leakRound, asked(t, leakCycles, 40)))
		s.settled(t, idle)
		now := s.feel(t)
		t.Logf("round %d, %v: %+v, before %+v", round, time.Since(began).Round(time.Millisecond), now, before)
		now.check(t, before)
	}
}

// leakRound is the number of cycles after which TestLeaks checks for leaks.
const leakRound = 100

// slack is the permitted growth of the number of goroutines or files: connections that clients have just closed, timers
// of the runtime.
const slack = 8

func (v vitals) check(t testing.TB, before vitals) {
	t.Helper()
	for what, more := range map[string]int{
		"goroutines": v.goroutines - before.goroutines, "files of monopod": v.files - before.files,
		"files of containerd": v.containerdFiles - before.containerdFiles,
	} {
		if more > slack {
			t.Errorf("%d %s left behind", more, what)
		}
	}
}

// nodeReady reports whether the node is ready.
func (s *server) nodeReady() bool {
	var node corev1.Node
	if _, err := s.call(http.MethodGet, "/api/v1/nodes/node1", nil, &node); err != nil {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
