package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/sandbox"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/runtime/relist"
)

// node implements the dependencies of the parts under test.
type node struct {
	sets    []*corev1.PodStatus
	updates int
	err     error
	health  map[string][]corev1.ResourceStatus
	stats   []*cri.ContainerStats
}

func (n *node) Set(_ context.Context, _ *corev1.Pod, want *corev1.PodStatus) {
	n.sets = append(n.sets, want)
}
func (n *node) Restore(context.Context, *corev1.Pod)                {}
func (n *node) Flush(context.Context, types.UID) error              { return nil }
func (n *node) PrepareDevices(context.Context, *corev1.Pod) error   { return n.err }
func (n *node) PrepareClaims(context.Context, *corev1.Pod) error    { return n.err }
func (n *node) UnprepareClaims(context.Context, types.UID) error    { return n.err }
func (n *node) HoldsClaims(types.UID) bool                          { return false }
func (n *node) Release(types.UID)                                   {}
func (n *node) Health(types.UID) map[string][]corev1.ResourceStatus { return n.health }

func (n *node) UpdateContainerResources(context.Context, string, *cri.LinuxContainerResources) error {
	n.updates++
	return n.err
}

func (n *node) ListContainerStats(context.Context, *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	return n.stats, nil
}

func quiet(t *testing.T) *identity.Pod {
	return &identity.Pod{UID: "u", Life: t.Context(), Event: func(string, string, string, string, ...any) {}}
}

// The reporter stores a status only if it has changed, and reports the time to Running once.
func TestReporter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, ran, ended := &node{}, []time.Duration{}, []string{}
		object := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		r := newReporter(
			&Node{Clock: clock.RealClock{}, Statuses: n,
				Hooks: Hooks{Ran: func(d time.Duration) { ran = append(ran, d) },
					Terminated: func(kind string, end *corev1.ContainerStateTerminated) {
						ended = append(ended, fmt.Sprint(kind, " ", end.ExitCode, " ", end.Reason))
					}}}, quiet(t), object)
		yes := func(string) bool { return true }
		report := func(seen status.Observed) {
			r.report(
				object,
				status.Input{Observed: &seen, Ready: yes, Started: yes, Now: time.Now()},
				func(*corev1.PodStatus) {},
			)
		}
		report(status.Observed{})
		report(status.Observed{})
		if len(n.sets) != 1 || !r.awaitsRunning() || r.startTime(object).IsZero() {
			t.Errorf("%d statuses stored, want 1", len(n.sets))
		}
		time.Sleep(time.Second)
		running := status.Observed{Sandboxes: []status.Sandbox{{ID: "s", Ready: true}},
			Containers: []status.Container{{ID: "c", Name: "c", SandboxID: "s", State: status.Running, StartedAt: time.Now()}}}
		report(running)
		report(running)
		if len(n.sets) != 2 || len(ended) > 0 || len(ran) != 1 || ran[0] != time.Second || r.awaitsRunning() ||
			r.finished() || r.last(object).Phase != corev1.PodRunning {
			t.Errorf("%d statuses stored, running after %v: %+v", len(n.sets), ran, r.last(object))
		}
		running.Containers[0].Exit(3, time.Now())
		report(running)
		report(running)
		if !slices.Equal(ended, []string{"container 3 Error"}) {
			t.Errorf("terminations: %q", ended)
		}
	})
}

// The resizer retries a resize that the runtime rejects later, or when the request changes.
func TestResizer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, p, id := &node{err: errors.New("no")}, &pace.Pace{}, quiet(t)
		o := observe.New(&observe.Node{Clock: clock.RealClock{}, Owners: &relist.Owners{}}, id, nil)
		o.ContainerCreated(
			status.Container{ID: "c", Name: "c", State: status.Running, Resources: &sized("1").Spec.Containers[0].Resources})
		all := &Node{Clock: clock.RealClock{}, Runtime: n}
		r := &resizer{node: all, id: id, observer: o, pace: p, sandbox: sandbox.New(&all.Sandboxes, id, o, p),
			report: func() {}}
		resize := func(cpu string) {
			p.Step()
			if restart := r.resize(t.Context(), sized(cpu)); len(restart) > 0 {
				t.Error("containers to restart: ", restart)
			}
		}
		if resize("1"); n.updates != 0 || r.progress != nil {
			t.Error("resize without a change of the request")
		}
		resize("2")
		if resize("2"); n.updates != 1 || r.progress == nil || r.progress.Reason != corev1.PodReasonError ||
			p.Retry() != pace.Config {
			t.Errorf("%d updates, condition %+v, retry in %v", n.updates, r.progress, p.Retry())
		}
		r.retry()
		if resize("3"); n.updates != 2 {
			t.Errorf("%d updates after a change of the request, want 2", n.updates)
		}
		time.Sleep(pace.Config)
		n.err = nil
		if resize("2"); n.updates != 3 || r.progress != nil {
			t.Errorf("%d updates, condition %+v", n.updates, r.progress)
		}
		if resize("2"); n.updates != 3 {
			t.Error("update although the container has the resources")
		}
	})
}

// limits records the CPU requests of pods at each update of the cgroup.
type limits []string

func (l *limits) Create(*corev1.Pod)        {}
func (l *limits) Adopt(*corev1.Pod)         {}
func (l *limits) Remove(*corev1.Pod) error  { return nil }
func (l *limits) Parent(*corev1.Pod) string { return "" }
func (l *limits) Update(pod *corev1.Pod) {
	*l = append(*l, pod.Spec.Containers[0].Resources.Requests.Cpu().String())
}

// The resizer updates the cgroup of the pod before a container restarts with more resources, even if the agent restarts
// meanwhile.
func TestResizeByRestartSetsTheCgroup(t *testing.T) {
	t.Parallel()
	restarts := func(cpu string) *corev1.Pod {
		pod := sized(cpu)
		pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU,
			RestartPolicy: corev1.RestartContainer}}
		return pod
	}
	for _, adopted := range []bool{false, true} {
		set, p, id := &limits{}, &pace.Pace{}, quiet(t)
		o := observe.New(&observe.Node{Clock: clock.RealClock{}, Owners: &relist.Owners{}}, id, nil)
		c := status.Container{ID: "c", Name: "c", State: status.Running,
			Resources: &restarts("1").Spec.Containers[0].Resources}
		o.ContainerCreated(c)
		all := &Node{Clock: clock.RealClock{}}
		all.Sandboxes.Cgroups = set
		r := &resizer{node: all, id: id, observer: o, pace: p, sandbox: sandbox.New(&all.Sandboxes, id, o, p),
			report: func() {}}
		if !adopted {
			r.granted(restarts("2"))
			if restart := r.resize(t.Context(), restarts("2")); len(restart) != 1 || !slices.Equal(*set, limits{"2"}) {
				t.Errorf("restart %v, cgroup %v", restart, *set)
			}
		}
		r.behind = r.behind || adopted
		c.State = status.Exited
		o.ContainerCreated(c)
		*set = nil
		for range 2 {
			if restart := r.resize(t.Context(), restarts("2")); len(restart) != 0 || !slices.Equal(*set, limits{"2"}) {
				t.Errorf("adopted %v: restart %v, cgroup %v", adopted, restart, *set)
			}
		}
	}
}

// The resizer rejects a memory limit below the current usage, which would cause an OOM kill, and retries it later.
func TestResizeBelowUsage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limited := func(memory string) *corev1.Pod {
			pod := sized("1")
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
			return pod
		}
		stats := &cri.ContainerStats{Attributes: &cri.ContainerAttributes{Id: "c"},
			Memory: &cri.MemoryUsage{UsageBytes: &cri.UInt64Value{Value: 30 << 20}}}
		n, p, id, set := &node{stats: []*cri.ContainerStats{stats}}, &pace.Pace{}, quiet(t), &limits{}
		o := observe.New(&observe.Node{Clock: clock.RealClock{}, Owners: &relist.Owners{}}, id, nil)
		o.ContainerCreated(status.Container{ID: "c", Name: "c", State: status.Running,
			Resources: &limited("64Mi").Spec.Containers[0].Resources})
		all := &Node{Clock: clock.RealClock{}, Runtime: n}
		all.Sandboxes.Cgroups = set
		r := &resizer{node: all, id: id, observer: o, pace: p, sandbox: sandbox.New(&all.Sandboxes, id, o, p),
			report: func() {}}
		p.Step()
		r.resize(t.Context(), limited("20Mi"))
		const why = "cannot decrease memory limits: " +
			"attempting to set container \"c\" memory limit (20971520) below current usage (31457280)"
		if n.updates != 0 || len(*set) > 0 || r.progress == nil || r.progress.Message != why {
			t.Errorf("%d updates, cgroup %v: %+v", n.updates, *set, r.progress)
		}
		time.Sleep(pace.Config)
		stats.Memory.UsageBytes.Value = 10 << 20
		p.Step()
		if r.resize(t.Context(), limited("20Mi")); n.updates != 1 || r.progress != nil {
			t.Errorf("%d updates: %+v", n.updates, r.progress)
		}
		time.Sleep(pace.Config)
		if r.resize(t.Context(), limited("80Mi")); n.updates != 2 {
			t.Errorf("%d updates", n.updates)
		}
	})
}

func TestDevices(t *testing.T) {
	t.Parallel()
	n, p := &node{}, &pace.Pace{}
	events, id := 0, quiet(t)
	id.Event = func(string, string, string, string, ...any) { events++ }
	d := newDevices(&Node{Placement: n}, id, p)
	pod := sized("1")
	if ok, failure, err := d.prepare(t.Context(), pod); !ok || failure != nil || err != nil {
		t.Errorf("prepared %v, failure %v, error %v", ok, failure, err)
	}
	n.err = &deviceplugin.Absent{Resource: "example.com/gpu"}
	for range 2 {
		if ok, failure, err := d.prepare(t.Context(), pod); ok || failure != nil || err != nil ||
			p.Waiting()["c"].Reason != "ContainerCreating" || events != 1 {
			t.Errorf("no plugin: ready %v, failure %v, error %v, waiting %v, %d events", ok, failure, err, p.Waiting(), events)
		}
	}
	n.err = errors.New("no")
	if ok, failure, err := d.prepare(t.Context(), pod); ok || failure == nil || err != nil {
		t.Errorf("rejected by the plugin: prepared %v, failure %v, error %v", ok, failure, err)
	}
	n.health = map[string][]corev1.ResourceStatus{"c": {{Name: "example.com/gpu"}}}
	for range 2 { // the second time, the health is unknown
		st := &corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c"}}}
		if d.setHealth(st); len(st.ContainerStatuses[0].AllocatedResourcesStatus) != 1 {
			t.Error("the status lacks the health of the device")
		}
		n.health = nil
	}
}

// An urgent message interrupts the current step of the worker; other messages wait for the next step.
func TestInbox(t *testing.T) {
	t.Parallel()
	b, interrupted := newInbox(), 0
	interrupt := func() { interrupted++ }
	b.put(func(n *news) { n.relist = true })
	if n := b.take(interrupt); !n.relist || n.ending() {
		t.Errorf("messages: %+v", n)
	}
	if b.put(func(n *news) { n.refresh = true }); interrupted != 0 {
		t.Error("a message that is not urgent interrupted the step")
	}
	b.putUrgent(func(n *news) { n.gone = true })
	if interrupted != 1 || !b.ending() || !b.setInterrupt(interrupt) {
		t.Errorf("interrupted %d times, want 1", interrupted)
	}
	why := &status.Failure{}
	if !b.fail(why, nil) || b.fail(&status.Failure{}, nil) || interrupted != 2 {
		t.Errorf("interrupted %d times, want 1", interrupted)
	}
	if n := b.take(interrupt); !n.refresh || !n.gone || n.failure != why {
		t.Errorf("messages: %+v", n)
	}
	if b.ending() || !b.setInterrupt(interrupt) {
		t.Error("a message remains urgent after the worker has taken it")
	}
	select {
	case <-b.wake:
	default:
		t.Error("the messages did not wake the worker")
	}
}
