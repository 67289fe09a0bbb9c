package agent_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent"
	"monopod/agent/host/mount"
	"monopod/agent/runtime"
	"monopod/agent/storage/volume"
	"monopod/apiserver/kit/client"
)

// moment is when an agent is killed relative to an external call.
type moment string

const (
	before moment = "before" // the runtime never gets the call
	after  moment = "after"  // the call takes effect, but the agent never gets its result
	late   moment = "late"   // the call takes effect after the start of the next agent
)

// failpoint is one step in the life of a pod: the n-th call of the operation op.
type failpoint struct {
	op string
	n  int
}

func (p failpoint) String() string { return fmt.Sprintf("%s#%d", p.op, p.n) }

// fate kills one agent at one failpoint, like kill -9: none of its later calls reaches the runtime, the API or the
// mounts. Then another agent starts and survives.
type fate struct {
	w     *world
	point failpoint
	when  moment

	mu     sync.Mutex // guards counts, seen, dead and over
	counts map[string]int
	seen   []failpoint
	dead   bool
	over   bool

	late   sync.WaitGroup // calls that outlive the agent
	reborn chan struct{}  // closed when the next agent runs
}

// doom restarts the agent so that it is killed at the failpoint.
func (w *world) doom(point failpoint, when moment) *fate {
	f := &fate{w: w, point: point, when: when, counts: map[string]int{}, reborn: make(chan struct{})}
	w.stop()
	w.alter = func(d *agent.Deps) {
		d.Client, d.Runtime = mortalClient{d.Client, f}, mortalRuntime{d.Runtime, f}
		d.Mounter, d.Recorder = mortalMounter{d.Mounter, f}, mortalRecorder{d.Recorder, f}
	}
	w.startAgent()
	w.alter = nil
	return f
}

// begin records a call. It returns an error if the agent is dead, and a moment if this call kills the agent.
func (f *fate) begin(op string) (mine moment, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return "", context.Canceled
	}
	f.counts[op]++
	p := failpoint{op, f.counts[op]}
	if !f.over {
		f.seen = append(f.seen, p)
	}
	if p != f.point || f.over {
		return "", nil
	}
	if f.when != after {
		f.kill()
	}
	return f.when, nil
}

// end returns the result of a call that took effect.
func (f *fate) end(mine moment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mine == after {
		f.kill()
	}
	if f.dead {
		return context.Canceled
	}
	return nil
}

// kill kills the agent at once, and starts the next one a little later. The caller holds mu.
func (f *fate) kill() {
	f.dead = true
	go func() {
		f.w.stop()
		time.Sleep(5 * latency)
		f.w.startAgent()
		close(f.reborn)
	}()
}

// wait ends the story. If the agent was killed, it waits until the next agent runs and late calls have returned.
func (f *fate) wait() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	if f.killed() {
		<-f.reborn
		f.late.Wait()
	}
}

// meet makes one call, unless the agent is dead.
func meet[T any](ctx context.Context, f *fate, op string, call func(context.Context) (T, error)) (T, error) {
	var none T
	mine, err := f.begin(op)
	switch {
	case err != nil:
		return none, err
	case mine == before:
		return none, context.Canceled
	case mine == late:
		f.late.Go(func() {
			time.Sleep(8 * latency) // until shortly after the start of the next agent
			_, _ = call(context.WithoutCancel(ctx))
		})
		return none, context.Canceled
	}
	out, err := call(ctx)
	if mine == after || f.killed() {
		return none, f.end(mine)
	}
	return out, err
}

func (f *fate) killed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

func meetErr(ctx context.Context, f *fate, op string, call func(context.Context) error) error {
	_, err := meet(ctx, f, op, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// mortalRuntime is the runtime as one agent sees it.
type mortalRuntime struct {
	runtime.Runtime
	f *fate
}

func (r mortalRuntime) RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig,
	handler string) (string, error) {
	return meet(ctx, r.f, "RunPodSandbox", func(ctx context.Context) (string, error) {
		defer r.f.w.noTwins()
		return r.Runtime.RunPodSandbox(ctx, config, handler)
	})
}

func (r mortalRuntime) StopPodSandbox(ctx context.Context, id string) error {
	return meetErr(ctx, r.f, "StopPodSandbox",
		func(ctx context.Context) error { return r.Runtime.StopPodSandbox(ctx, id) })
}

func (r mortalRuntime) RemovePodSandbox(ctx context.Context, id string) error {
	return meetErr(ctx, r.f, "RemovePodSandbox",
		func(ctx context.Context) error { return r.Runtime.RemovePodSandbox(ctx, id) })
}

func (r mortalRuntime) PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatus, error) {
	return meet(ctx, r.f, "PodSandboxStatus",
		func(ctx context.Context) (*cri.PodSandboxStatus, error) { return r.Runtime.PodSandboxStatus(ctx, id) })
}

func (r mortalRuntime) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig,
	sandbox *cri.PodSandboxConfig) (string, error) {
	return meet(ctx, r.f, "CreateContainer", func(ctx context.Context) (string, error) {
		return r.Runtime.CreateContainer(ctx, sandboxID, config, sandbox)
	})
}

func (r mortalRuntime) StartContainer(ctx context.Context, id string) error {
	return meetErr(ctx, r.f, "StartContainer", func(ctx context.Context) error {
		defer r.f.w.noTwins()
		return r.Runtime.StartContainer(ctx, id)
	})
}

func (r mortalRuntime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return meetErr(ctx, r.f, "StopContainer",
		func(ctx context.Context) error { return r.Runtime.StopContainer(ctx, id, grace) })
}

func (r mortalRuntime) RemoveContainer(ctx context.Context, id string) error {
	return meetErr(ctx, r.f, "RemoveContainer",
		func(ctx context.Context) error { return r.Runtime.RemoveContainer(ctx, id) })
}

func (r mortalRuntime) ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	return meet(ctx, r.f, "ContainerStatus",
		func(ctx context.Context) (*cri.ContainerStatus, error) { return r.Runtime.ContainerStatus(ctx, id) })
}

func (r mortalRuntime) ExecSync(ctx context.Context, id string, cmd []string,
	timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	type answer struct {
		stdout, stderr []byte
		exitCode       int32
	}
	a, err := meet(ctx, r.f, "ExecSync", func(ctx context.Context) (a answer, err error) {
		a.stdout, a.stderr, a.exitCode, err = r.Runtime.ExecSync(ctx, id, cmd, timeout)
		return a, err
	})
	return a.stdout, a.stderr, a.exitCode, err
}

func (r mortalRuntime) PullImage(ctx context.Context, image string, auth *cri.AuthConfig,
	sandbox *cri.PodSandboxConfig) (string, error) {
	return meet(ctx, r.f, "PullImage",
		func(ctx context.Context) (string, error) { return r.Runtime.PullImage(ctx, image, auth, sandbox) })
}

// mortalClient is the API as one agent sees it. Only calls about pods count.
type mortalClient struct {
	client.Client
	f *fate
}

// counted reports whether calls for the resource are failpoints, because their order is the same in every run.
func counted(resource string) bool { return resource != "nodes" && resource != "leases" }

func (c mortalClient) Get(ctx context.Context, ref client.Ref) (client.Object, error) {
	if !counted(ref.Resource.Resource) {
		return c.Client.Get(ctx, ref)
	}
	return meet(ctx, c.f, "get "+ref.Resource.Resource,
		func(ctx context.Context) (client.Object, error) { return c.Client.Get(ctx, ref) })
}

func (c mortalClient) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	if _, pod := obj.(*corev1.Pod); !pod {
		return c.Client.Create(ctx, obj)
	}
	return meet(ctx, c.f, "create pods",
		func(ctx context.Context) (client.Object, error) { return c.Client.Create(ctx, obj) })
}

func (c mortalClient) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if !counted(ref.Resource.Resource) {
		return c.Client.Update(ctx, ref, change)
	}
	return meet(ctx, c.f, "update "+ref.Resource.Resource+"/"+ref.Subresource,
		func(ctx context.Context) (client.Object, error) {
			return c.Client.Update(ctx, ref, change)
		})
}

func (c mortalClient) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	return meet(ctx, c.f, "delete "+ref.Resource.Resource,
		func(ctx context.Context) (client.Object, error) { return c.Client.Delete(ctx, ref, opts) })
}

// mortalMounter is the kernel's mounts as one agent sees them.
type mortalMounter struct {
	volume.Mounter
	f *fate
}

func (m mortalMounter) Tmpfs(dir string, o mount.Tmpfs) error {
	return meetErr(context.Background(), m.f, "mount", func(context.Context) error { return m.Mounter.Tmpfs(dir, o) })
}

func (m mortalMounter) Unmount(dir string) error {
	return meetErr(context.Background(), m.f, "unmount", func(context.Context) error { return m.Mounter.Unmount(dir) })
}

// mortalRecorder makes every event a failpoint.
type mortalRecorder struct {
	agent.Recorder
	f *fate
}

func (r mortalRecorder) Reference(ref corev1.ObjectReference, eventType, reason, format string, args ...any) {
	if ref.Kind != "Pod" {
		return
	}
	_ = meetErr(context.Background(), r.f, "event "+reason, func(context.Context) error {
		r.Recorder.Reference(ref, eventType, reason, format, args...)
		return nil
	})
}

// noTwins checks that no pod has two ready sandboxes, and that no container runs twice.
func (w *world) noTwins() {
	ctx := context.Background()
	sandboxes, err1 := w.rt.ListPodSandbox(ctx, nil)
	containers, err2 := w.rt.ListContainers(ctx, nil)
	if err1 != nil || err2 != nil {
		return // the test has ended
	}
	alive := map[string]string{}
	for _, s := range sandboxes {
		if s.State != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		if other := alive[s.Metadata.Uid]; other != "" {
			w.Errorf("pod %s has two sandboxes: %s and %s", s.Metadata.Name, other, s.Id)
		}
		alive[s.Metadata.Uid] = s.Id
	}
	for _, c := range containers {
		key := c.Labels["io.kubernetes.pod.uid"] + "/" + c.Metadata.Name
		if c.State != cri.ContainerState_CONTAINER_RUNNING {
			continue
		}
		if other := alive[key]; other != "" {
			w.Errorf("container %s runs twice: %s and %s", key, other, c.Id)
		}
		alive[key] = c.Id
	}
}
