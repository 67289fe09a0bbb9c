package relist_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime/relist"
)

// machine is a runtime with a sandbox s, a running container a, an exited container b, and a container c that is
// removed before its status is read.
type machine struct{ broken error }

func labels(uid string) map[string]string {
	return map[string]string{spec.LabelPodUID: uid, spec.LabelInstance: "i"}
}

func (m machine) ListPodSandbox(_ context.Context, f *cri.PodSandboxFilter) ([]*cri.PodSandbox, error) {
	if !within(f.LabelSelector) {
		return nil, nil
	}
	return []*cri.PodSandbox{{Id: "s", Labels: labels("1"), State: cri.PodSandboxState_SANDBOX_READY}}, nil
}

func (m machine) ListContainers(_ context.Context, f *cri.ContainerFilter) (out []*cri.Container, err error) {
	if !within(f.LabelSelector) {
		return nil, nil
	}
	for _, id := range []string{"a", "b", "c"} {
		out = append(out, &cri.Container{Id: id, PodSandboxId: "s", Labels: labels("1"), State: state(id)})
	}
	return out, nil
}

// within reports whether the labels of the sandbox and the containers match the selector.
func within(selector map[string]string) bool {
	all := labels("1")
	maps.Copy(all, selector)
	return maps.Equal(all, labels("1")) && selector[spec.LabelInstance] == "i"
}

func state(id string) cri.ContainerState {
	if id == "a" {
		return cri.ContainerState_CONTAINER_RUNNING
	}
	return cri.ContainerState_CONTAINER_EXITED
}

func (m machine) PodSandboxStatus(_ context.Context, id string) (*cri.PodSandboxStatus, error) {
	return &cri.PodSandboxStatus{Id: id, Metadata: &cri.PodSandboxMetadata{Attempt: 2},
		State:   cri.PodSandboxState_SANDBOX_READY,
		Network: &cri.PodSandboxNetworkStatus{Ip: "10.0.0.2", AdditionalIps: []*cri.PodIP{{Ip: "fd00::2"}}}}, m.broken
}

func (m machine) ContainerStatus(_ context.Context, id string) (*cri.ContainerStatus, error) {
	if id == "c" {
		return nil, grpcstatus.Error(codes.NotFound, "gone")
	}
	return &cri.ContainerStatus{Id: id, Metadata: &cri.ContainerMetadata{Name: id}, State: state(id)}, nil
}

func TestPod(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var ended []string
	r := relist.Reader{Runtime: machine{}, Instance: "i", Ended: func(c *status.Container) {
		mu.Lock()
		defer mu.Unlock()
		ended = append(ended, c.ID)
	}}
	seen, err := r.Pod(t.Context(), "1")
	if err != nil || len(seen.Sandboxes) != 1 || len(seen.Containers) != 2 || len(ended) != 1 || ended[0] != "b" {
		t.Fatalf("observed %+v, exited %v, error %v", seen, ended, err)
	}
	if s := seen.Sandboxes[0]; !s.Ready || s.Attempt != 2 || len(s.IPs) != 2 || s.IPs[1] != "fd00::2" {
		t.Errorf("sandbox %+v", s)
	}
	if a := seen.ByID("a"); a == nil || a.State != status.Running || a.SandboxID != "s" {
		t.Errorf("container a: %+v", a)
	}
	if other, err := r.Pod(t.Context(), "2"); err != nil || len(other.Sandboxes)+len(other.Containers) > 0 {
		t.Errorf("another pod has %+v, %v", other, err)
	}
	r.Runtime = machine{broken: errors.New("broken")}
	if _, err := r.Pod(t.Context(), "1"); err == nil {
		t.Error("no error from a runtime that does not respond")
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	sandboxes, containers, err := relist.Reader{Runtime: machine{}, Instance: "i"}.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := relist.ByPod(sandboxes, containers)["1"]
	sandbox := func(ready bool) []status.Sandbox { return []status.Sandbox{{ID: "s", Ready: ready}} }
	has := func(a, b status.State, c string) []status.Container {
		return []status.Container{{ID: "a", State: a}, {ID: "b", State: b}, {ID: c, State: status.Exited}}
	}
	for name, c := range map[string]struct {
		seen *status.Observed
		want bool
	}{
		"all": {&status.Observed{Sandboxes: sandbox(true),
			Containers: has(status.Running, status.Exited, "c")}, true},
		"nothing": {nil, false},
		"a dead sandbox": {&status.Observed{Sandboxes: sandbox(false), Containers: has(status.Running, status.Exited,
			"c")}, false},
		"other state of a": {&status.Observed{Sandboxes: sandbox(true), Containers: has(status.Exited, status.Exited,
			"c")}, false},
		"other state of b": {&status.Observed{Sandboxes: sandbox(true), Containers: has(status.Running, status.Running,
			"c")}, false},
		"another container": {&status.Observed{Sandboxes: sandbox(true), Containers: has(status.Running, status.Exited,
			"d")}, false},
		"one container fewer": {&status.Observed{Sandboxes: sandbox(true), Containers: has(status.Running, status.Exited,
			"c")[:2]}, false},
	} {
		if got := held.Matches(c.seen); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if none := (*relist.Held)(nil); !none.Matches(nil) || none.Matches(&status.Observed{Sandboxes: sandbox(true)}) {
		t.Error("a nil Held must match only a pod that was not observed")
	}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	known := status.Observed{
		Sandboxes: []status.Sandbox{{ID: "s", IPs: []string{"10.0.0.2"}}},
		Containers: []status.Container{
			{ID: "a", State: status.Exited, ExitCode: 3, Message: "why"},
			{ID: "b", State: status.Running, OOM: true, Resources: &corev1.ResourceRequirements{}},
		},
	}
	next := status.Observed{
		Sandboxes: []status.Sandbox{{ID: "s"}, {ID: "new"}},
		Containers: []status.Container{{ID: "a", State: status.Running}, {ID: "b", State: status.Exited, ExitCode: 1},
			{ID: "new"}},
	}
	relist.Reconcile(&next, &known)
	if a := next.Containers[0]; a.State != status.Exited || a.ExitCode != 3 || a.Message != "why" {
		t.Errorf("Reconcile dropped the exit code of an event: %+v", a)
	}
	if b := next.Containers[1]; b.State != status.Exited || !b.OOM || b.Resources == nil {
		t.Errorf("Reconcile dropped the known OOM kill or resources: %+v", b)
	}
	if len(next.Sandboxes[0].IPs) != 1 || len(next.Sandboxes[1].IPs) != 0 {
		t.Errorf("addresses: %+v", next.Sandboxes)
	}
}
