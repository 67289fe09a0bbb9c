package machine_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"monopod/agent"
	"monopod/agent/runtime/fake"
	"monopod/apiserver/access/rbac"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/record"
	"monopod/apiserver/registry"
	"monopod/controllers"
	"monopod/store"
	"monopod/store/state"
)

// idleDir is an environment variable with a data folder. If it is set, TestIdleHour is the observed process.
const idleDir = "MONOPOD_TEST_IDLE_DIR"

// Monopod writes no byte in an hour without requests, although leases are renewed, pods are synced and snapshots are
// due. The test runs in a separate process, because the kernel counts writes by process.
func TestIdleHour(t *testing.T) {
	if dir := os.Getenv(idleDir); dir != "" {
		synctest.Test(t, func(t *testing.T) { idleHour(t, dir) })
		return
	}
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestIdleHour$")
	cmd.Env = append(os.Environ(), idleDir+"="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// idlePods is the number of running pods.
const idlePods = 5

// idleHour runs the parts of `monopod serve`, except for the listeners and the watch of the images' folder,
// whose system calls would block virtual time.
func idleHour(t *testing.T, dir string) {
	ctx, stop := context.WithCancel(t.Context())
	resources := registry.Resources()
	state, err := state.Open(ctx, state.Place{DataDir: dir},
		state.Config{Config: store.Config{Kind: registry.Kinds(resources)}})
	if err != nil {
		t.Fatal(err)
	}
	roles := rbac.New(rbac.Config{})
	api := registry.New(state, resources, registry.Config{Roles: roles})
	if err := api.Bootstrap(ctx); err != nil {
		t.Fatal(err)
	}
	stopped := startParts(ctx, t, dir, api, state)
	watching := make(chan error)
	go func() { watching <- roles.Run(ctx, api) }()
	for n := range idlePods {
		createPod(t, api, fmt.Sprint("idle-", n))
	}

	time.Sleep(90 * time.Minute) // until the Events of the start have expired and the first snapshot exists
	if n := readyPods(t, api); n != idlePods {
		t.Errorf("%d pods of %d are ready", n, idlePods)
	}
	rev, before := state.Revision(), written(t)
	time.Sleep(time.Hour)
	if n := written(t).since(before); n.Disk != 0 || n.Handed != wakeUp*n.Calls {
		t.Errorf("an idle hour wrote: %+v", n)
	}
	if state.Revision() < rev+hourOfLeases {
		t.Errorf("from revision %d to %d: the node did not renew its lease", rev, state.Revision())
	}

	stop()
	stopped()
	if err := <-watching; err != nil {
		t.Error(err)
	}
	if err := state.Close(); err != nil {
		t.Error(err)
	}
}

// hourOfLeases is the number of lease renewals in an hour, one every 10 s.
const hourOfLeases = 360

// startParts starts the controllers, the agent and the maintenance of the state. They end with ctx; stopped waits for
// their end.
func startParts(ctx context.Context, t *testing.T, dir string, api *registry.Registry,
	state *state.State) (stopped func()) {
	t.Helper()
	cfg := controllers.Default()
	cfg.Kinds = registry.ServedBy(api)
	manager, err := controllers.New(controllers.Deps{Client: api}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	runtime := fake.New(fake.Config{})
	dropped, err := record.NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	events := record.New(
		record.Config{Client: api, Component: "kubelet", Host: "node1", Clock: clock.RealClock{}, Metrics: dropped})
	node, err := agent.New(
		agent.Deps{Client: api, Runtime: runtime, Recorder: events, Dial: runtime.Dial},
		agent.Config{NodeName: "node1", DataDir: dir, NodeIP: "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 4)
	go func() { done <- manager.Run(ctx) }()
	go func() { done <- node.Run(ctx) }()
	go func() {
		state.Tidy(ctx)
		done <- nil
	}()
	go func() {
		state.File.KeepSnapshots(ctx, 20*time.Minute, func(err error) { t.Error(err) })
		done <- nil
	}()
	return func() {
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		events.Close()
		if err := runtime.Close(); err != nil {
			t.Error(err)
		}
	}
}

// createPod creates a pod with a probe every 10 s. The pod has no token: a renewal of its token after 48 minutes would
// count as a write, although it goes to a tmpfs.
func createPod(t *testing.T, api client.Client, name string) {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{
			Name: "c", Image: "web:1", Args: []string{"serve"},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}},
		}}},
	}
	if _, err := api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func readyPods(t *testing.T, api client.Client) (n int) {
	t.Helper()
	pods, _, err := api.List(t.Context(), client.Selector{Resource: client.Pods})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		for _, c := range p.(*corev1.Pod).Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				n++
			}
		}
	}
	return n
}

// ioCount counts the writes of this process: bytes, calls, and bytes to a disk.
type ioCount struct{ Handed, Calls, Disk uint64 }

// wakeUp is the size of a write to the eventfd with which Go's runtime wakes its network poller.
const wakeUp = 8

func (c ioCount) since(before ioCount) ioCount {
	return ioCount{c.Handed - before.Handed, c.Calls - before.Calls, c.Disk - before.Disk}
}

func written(t *testing.T) ioCount {
	t.Helper()
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	io, err := self.IO()
	if err != nil {
		t.Fatal(err)
	}
	return ioCount{io.WChar, io.SyscW, io.WriteBytes}
}
