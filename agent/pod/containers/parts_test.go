package containers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/probe"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
	"monopod/agent/runtime/relist"
)

type reader struct{ relist.Runtime }

// machine is a runtime that records its calls and their times.
type machine struct {
	reader
	Runtime
	hook error

	mu    sync.Mutex
	began time.Time
	calls []string
}

func (m *machine) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, fmt.Sprintf("%v ", time.Since(m.began))+fmt.Sprintf(format, args...))
}

func (m *machine) StopContainer(_ context.Context, id string, grace time.Duration) error {
	m.note("stop %s %v", id, grace)
	return nil
}

func (m *machine) ContainerStatus(_ context.Context, id string) (*cri.ContainerStatus, error) {
	return nil, grpcstatus.Error(codes.NotFound, id)
}

func (m *machine) ExecSync(_ context.Context, id string, cmd []string,
	_ time.Duration) (stdout, stderr []byte, code int32, err error) {
	m.note("%s in %s", strings.Join(cmd, " "), id)
	time.Sleep(time.Second)
	return nil, nil, 0, m.hook
}

// world returns the stopper and the observer of a pod with running containers.
func world(t *testing.T, pod *corev1.Pod, m *machine, ids ...string) (*Stopper, *observe.Observer) {
	t.Helper()
	m.began = time.Now()
	node := &Node{Runtime: m, Clock: clock.RealClock{}, Caller: probe.Caller{Exec: m}}
	id := &identity.Pod{UID: "u", Life: t.Context(), Event: func(string, string, string, string, ...any) {}}
	o := observe.New(
		&observe.Node{Clock: clock.RealClock{}, HostIPs: func() []string { return nil }, Runtime: relist.Reader{Runtime: m},
			Owners: &relist.Owners{}}, id, func() []runtime.Event { return nil })
	for i, name := range ids {
		o.ContainerCreated(status.Container{ID: name, Name: name, State: status.Running, StartedAt: time.Unix(int64(i), 0)})
	}
	probes := NewProbes(node, id, pod, o, func() bool { return false }, func() {})
	return NewStopper(node, id, o, NewHooks(node, id, o), probes, func() {}), o
}

func sidecar(name string) corev1.Container {
	return corev1.Container{Name: name, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
}

// Sidecars are stopped after the other containers, in reverse order, with the remaining grace period.
func TestStopOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hooked := corev1.Container{Name: "b",
			Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}}}
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{sidecar("s1"), sidecar("s2")},
			Containers: []corev1.Container{hooked}}}
		m := &machine{}
		s, o := world(t, pod, m, "s1", "s2", "b")
		if err := s.StopWithin(t.Context(), pod, 5*time.Second); err != nil || len(o.Observed().Alive()) > 0 {
			t.Errorf("%v: %+v", err, o.Observed())
		}
		if want := []string{"0s bye in b", "1s stop b 4s", "1s stop s2 4s", "1s stop s1 4s"}; !slices.Equal(m.calls, want) {
			t.Errorf("calls %q, want %q", m.calls, want)
		}
	})
}

// A preStop hook runs once, or again if the runtime was unavailable. The container always has two seconds after it.
func TestPreStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "b", Lifecycle: &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}}}}}}
		m := &machine{hook: grpcstatus.Error(codes.Unavailable, "away")}
		s, o := world(t, pod, m, "b")
		if err := s.StopWithin(t.Context(), pod, 2*time.Second); err == nil {
			t.Error("the container was stopped although its hook did not run")
		}
		o.ContainerCreated(status.Container{ID: "b", Name: "b", State: status.Running})
		m.hook, m.calls = nil, nil
		if err := s.StopWithin(t.Context(), pod, 2*time.Second); err != nil {
			t.Error(err)
		}
		if want := []string{"1s bye in b", "2s stop b 2s"}; !slices.Equal(m.calls, want) {
			t.Errorf("calls %q, want %q", m.calls, want)
		}
		if s.hooks.Executed() != 1 {
			t.Error("the hook was not recorded as executed")
		}
		if s.hooks.ForgetRemoved(func(string) bool { return false }); s.hooks.Executed() != 0 {
			t.Error("the record of the hook remains after the removal of the container")
		}
	})
}

// The backoff of a crashing container grows, with one event per restart. A container whose start was interrupted is
// recreated without backoff.
func TestBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := 0
		s := NewStarter(&Node{Clock: clock.RealClock{}},
			&identity.Pod{Event: func(string, string, string, string, ...any) { events++ }}, Parts{})
		pod := &corev1.Pod{}
		for i, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
			last := &status.Container{State: status.Exited, FinishedAt: time.Now()}
			b := &pace.Blocked{}
			for range 2 {
				if err := s.backOff(pod, "c", last); want == 0 && err != nil ||
					want > 0 && (!errors.As(err, &b) || b.Retry != want || b.Reason != "CrashLoopBackOff") {
					t.Errorf("crash %d: %v, want %v", i, b.Retry, want)
				}
			}
			if events != i {
				t.Errorf("crash %d: %d events", i, events)
			}
			time.Sleep(want)
			s.recordRestart("c", last.FinishedAt)
		}
		fixed := &corev1.Container{Name: "c", Image: "fixed"}
		last := &status.Container{State: status.Exited, FinishedAt: time.Now(), Hash: spec.Hash(fixed)}
		if s.resetBackoff(fixed, last); s.backOff(pod, "c", last) == nil {
			t.Error("no backoff with the same image")
		}
		last.Hash = spec.Hash(&corev1.Container{Name: "c", Image: "broken"})
		if s.resetBackoff(fixed, last); s.backOff(pod, "c", last) != nil {
			t.Error("backoff with another image")
		}
		s.recreated = map[string]int{"c": 1}
		if err := s.backOff(pod, "c", &status.Container{State: status.Exited, FinishedAt: time.Now()}); err != nil {
			t.Errorf("backoff of a recreated container: %v", err)
		}
	})
}

// The next attempt follows the attempt in the runtime or the restart count in the stored status.
func TestNextAttempt(t *testing.T) {
	t.Parallel()
	ran := corev1.ContainerStatus{Name: "c", ContainerID: "containerd://1", RestartCount: 4,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	never := corev1.ContainerStatus{Name: "c", ContainerID: "containerd://1", RestartCount: 4,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	for name, c := range map[string]struct {
		last   *status.Container
		stored []corev1.ContainerStatus
		want   uint32
	}{
		"the first":                        {nil, nil, 0},
		"terminated":                       {&status.Container{State: status.Exited, Attempt: 2}, nil, 3},
		"not started":                      {&status.Container{State: status.Created, Attempt: 2}, nil, 2},
		"stored":                           {nil, []corev1.ContainerStatus{ran}, 5},
		"stored, removed before its start": {nil, []corev1.ContainerStatus{never}, 4},
	} {
		s := NewStarter(&Node{}, &identity.Pod{},
			Parts{Stored: func(*corev1.Pod) *corev1.PodStatus { return &corev1.PodStatus{ContainerStatuses: c.stored} }})
		if got := s.nextAttempt(&corev1.Pod{}, "c", c.last); got != c.want {
			t.Errorf("%s: attempt %d, want %d", name, got, c.want)
		}
	}
}

// A container that was killed after an interrupted start, before it was observed running, is recreated with the same
// attempt number. A container that ended by itself, or was observed running, restarts with the next number.
func TestStartInterrupted(t *testing.T) {
	t.Parallel()
	started := time.Unix(1, 0)
	for name, tc := range map[string]struct {
		pending  *pending
		exitCode int32
		want     bool
	}{
		"killed during an interrupted start": {&pending{id: "x"}, 137, true},
		"killed after it was observed":       {&pending{id: "x", reported: true}, 137, false},
		"ended by itself":                    {&pending{id: "x"}, 1, false},
		"start of another instance":          {&pending{id: "y"}, 137, false},
		"start was not interrupted":          {nil, 137, false},
	} {
		s := &Starter{}
		if tc.pending != nil {
			s.pending = map[string]*pending{"c": tc.pending}
		}
		c := &status.Container{ID: "x", Name: "c", State: status.Exited, Reason: "Error", ExitCode: tc.exitCode,
			StartedAt: started}
		if got := s.startInterrupted(&corev1.Pod{}, c); got != tc.want {
			t.Errorf("%s: interrupted %v", name, got)
		}
	}
}
