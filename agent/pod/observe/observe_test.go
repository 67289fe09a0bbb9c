package observe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
	"monopod/agent/runtime/relist"
)

// machine is a runtime with one sandbox and the given containers.
type machine struct {
	containers map[string]cri.ContainerState
	err        error
}

func (m *machine) ListPodSandbox(context.Context, *cri.PodSandboxFilter) ([]*cri.PodSandbox, error) {
	return []*cri.PodSandbox{{Id: "s"}}, m.err
}

func (m *machine) PodSandboxStatus(context.Context, string) (*cri.PodSandboxStatus, error) {
	return &cri.PodSandboxStatus{Id: "s", Network: &cri.PodSandboxNetworkStatus{Ip: "10.0.0.1"}}, m.err
}

func (m *machine) ListContainers(context.Context, *cri.ContainerFilter) (out []*cri.Container, err error) {
	for id, state := range m.containers {
		out = append(out, &cri.Container{Id: id, PodSandboxId: "s", State: state})
	}
	return out, m.err
}

func (m *machine) ContainerStatus(_ context.Context, id string) (*cri.ContainerStatus, error) {
	state, ok := m.containers[id]
	if !ok {
		return nil, grpcstatus.Error(codes.NotFound, id)
	}
	return &cri.ContainerStatus{Id: id, State: state, Metadata: &cri.ContainerMetadata{Name: "c"}, StartedAt: 1}, m.err
}

func observer(m *machine, pending ...runtime.Event) (*observe.Observer, *relist.Owners) {
	owners := &relist.Owners{}
	return observe.New(&observe.Node{
		Clock: clocktesting.NewFakePassiveClock(
			time.Unix(100, 0),
		), Runtime: relist.Reader{Runtime: m}, Owners: owners, HostIPs: func() []string { return []string{"192.0.2.1"} },
	}, &identity.Pod{UID: "u"}, func() []runtime.Event { return pending }), owners
}

func TestObserve(t *testing.T) {
	t.Parallel()
	m := &machine{containers: map[string]cri.ContainerState{"c": cri.ContainerState_CONTAINER_RUNNING}}
	o, _ := observer(m)
	if fresh, _, err := o.Observe(t.Context()); fresh || err != nil {
		t.Errorf("observed although nothing was stale: %v, %v", fresh, err)
	}
	o, owners := observer(m)
	o.MarkStale()
	m.err = errors.New("away")
	if _, _, err := o.Observe(t.Context()); err == nil {
		t.Error("Observe returned no error from the runtime")
	}
	m.err = nil
	fresh, first, err := o.Observe(t.Context())
	if !fresh || !first || err != nil || len(o.Observed().Alive()) != 1 || owners.Of("c") != "u" || owners.Of("s") != "u" {
		t.Errorf("fresh %v, first %v, error %v: %+v", fresh, first, err, o.Observed())
	}
	if fresh, _, _ := o.Observe(t.Context()); fresh {
		t.Error("observed again although nothing was stale")
	}
	o.MarkStale()
	if _, first, _ := o.Observe(t.Context()); first {
		t.Error("the second observation counts as the first")
	}
	pod := &corev1.Pod{}
	if got := o.Facts(pod).Address(); got != "10.0.0.1" {
		t.Error("address: ", got)
	}
	pod.Spec.HostNetwork = true
	if got := o.Facts(pod).Address(); got != "192.0.2.1" {
		t.Error("address on the host network: ", got)
	}
}

// Events take precedence: the runtime may report for a moment that a terminated container runs.
func TestEventsComeFirst(t *testing.T) {
	t.Parallel()
	m := &machine{containers: map[string]cri.ContainerState{"c": cri.ContainerState_CONTAINER_RUNNING}}
	o, _ := observer(
		m,
		runtime.Event{Type: runtime.EventContainerExited, ContainerID: "c", ExitCode: 3, At: time.Unix(50, 0)},
	)
	o.ContainerCreated(status.Container{ID: "c", Name: "c", SandboxID: "s", State: status.Running})
	if err := o.Stopped(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	o.MarkStale()
	if _, _, err := o.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := o.Observed().ByID("c"); c.State != status.Exited || c.ExitCode != 3 {
		t.Errorf("the terminated container is %+v", c)
	}
}

func TestStopped(t *testing.T) {
	t.Parallel()
	m := &machine{containers: map[string]cri.ContainerState{"c": cri.ContainerState_CONTAINER_RUNNING}}
	o, _ := observer(m)
	o.ContainerCreated(status.Container{ID: "c", SandboxID: "s", State: status.Running})
	if err := o.Stopped(t.Context(), "c"); !errors.Is(err, observe.ErrAlive) {
		t.Error("Stopped with a running container: ", err)
	}
	delete(m.containers, "c")
	if err := o.Stopped(t.Context(), "c"); err != nil || len(o.Observed().Alive()) > 0 {
		t.Errorf("Stopped with a removed container: %v: %+v", err, o.Observed())
	}
}

func TestFailedStartCountsAsExit(t *testing.T) {
	t.Parallel()
	o, _ := observer(&machine{})
	o.ContainerCreated(status.Container{ID: "c"})
	o.StartFailed("c", errors.New("no such program"))
	if c := o.Observed().ByID("c"); c.State != status.Exited || c.ExitCode != 128 || c.Reason != observe.StartError ||
		!c.FinishedAt.Equal(time.Unix(100, 0)) {
		t.Errorf("the container is %+v", c)
	}
}

// Snapshot returns the published state without containers that were removed since.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	o, owners := observer(&machine{})
	if o.Snapshot() != nil {
		t.Error("Snapshot returned a state before the first Publish")
	}
	o.ContainerCreated(status.Container{ID: "a"})
	o.ContainerCreated(status.Container{ID: "b"})
	changed := o.Changes()
	o.Publish()
	select {
	case <-changed:
	default:
		t.Error("Publish did not notify of the change")
	}
	if o.Removed("a"); len(o.Snapshot().Containers) != 1 || len(o.Observed().Containers) != 2 {
		t.Errorf("snapshot %+v, observed %+v", o.Snapshot(), o.Observed())
	}
	o.Forget("a")
	if exists := o.ForgetRemovedOwners(); exists("a") || !exists("b") || owners.Count("u") != 1 {
		t.Error("the owner of a removed container is still recorded")
	}
}
