package sandbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/sandbox"
	"monopod/agent/runtime/relist"
	"monopod/apiserver/kit/guard"
)

// machine is a runtime and a manager of cgroups and user namespaces, with injected failures.
type machine struct {
	relist.Runtime
	run, stop error
	busy      int // number of failures to remove the cgroup
	removed   int
	config    *cri.PodSandboxConfig
}

func (m *machine) Status(context.Context) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{}, nil
}

func (m *machine) RunPodSandbox(_ context.Context, config *cri.PodSandboxConfig, _ string) (string, error) {
	m.config = config
	return "s", m.run
}
func (m *machine) StopPodSandbox(context.Context, string) error { return m.stop }
func (m *machine) RemovePodSandbox(context.Context, string) error {
	return grpcstatus.Error(codes.NotFound, "s")
}

func (m *machine) PodSandboxStatus(context.Context, string) (*cri.PodSandboxStatus, error) {
	return &cri.PodSandboxStatus{Id: "s", State: cri.PodSandboxState_SANDBOX_READY}, nil
}
func (m *machine) Create(*corev1.Pod)        {}
func (m *machine) Update(*corev1.Pod)        {}
func (m *machine) Adopt(*corev1.Pod)         {}
func (m *machine) Parent(*corev1.Pod) string { return "/kubepods/u" }

func (m *machine) Remove(*corev1.Pod) error {
	if m.removed++; m.removed <= m.busy {
		return errors.New("busy")
	}
	return nil
}

func (m *machine) Get(types.UID) (*cri.UserNamespace, error) {
	return &cri.UserNamespace{Mode: cri.NamespaceMode_POD}, nil
}

// made returns the sandbox of a pod with its observer and its pace.
func made(t *testing.T, m *machine) (*sandbox.Sandbox, *observe.Observer, *pace.Pace) {
	t.Helper()
	dir, p := t.TempDir(), &pace.Pace{}
	id := &identity.Pod{UID: "u", Life: t.Context(), Event: func(string, string, string, string, ...any) {}}
	o := observe.New(&observe.Node{Clock: clock.RealClock{}, Runtime: relist.Reader{Runtime: m}, Owners: &relist.Owners{}},
		id, nil)
	return sandbox.New(
		&sandbox.Node{Runtime: m, Clock: clock.RealClock{}, Cgroups: m, Users: m,
			Logs: func(*corev1.Pod) string { return dir }},
		id, o, p), o, p
}

func TestCreate(t *testing.T) {
	t.Parallel()
	m := &machine{}
	s, o, p := made(t, m)
	pod := &corev1.Pod{Spec: corev1.PodSpec{HostUsers: new(bool), Containers: []corev1.Container{{Name: "c"}}}}
	if err := s.Create(t.Context(), pod, 0); err != nil || !o.Observed().Sandbox().Ready {
		t.Errorf("Create returned %v: %+v", err, o.Observed())
	}
	users := m.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if users.GetMode() != cri.NamespaceMode_POD || m.config.GetLinux().GetCgroupParent() != "/kubepods/u" {
		t.Errorf("the config of the sandbox is %v", m.config)
	}
	m.run = errors.New("no such handler")
	if err := s.Create(t.Context(), pod, 1); err == nil || len(p.Waiting()) > 0 {
		t.Errorf("Create with a failing runtime returned %v, waiting %v", err, p.Waiting())
	}
}

// A sandbox that fails to stop does not count as stopped; the others do.
func TestStopping(t *testing.T) {
	t.Parallel()
	for _, stop := range []error{nil, errors.New("no")} {
		m := &machine{stop: stop}
		s, o, _ := made(t, m)
		if err := s.Create(t.Context(), &corev1.Pod{}, 0); err != nil {
			t.Fatal(err)
		}
		var g guard.Group
		stopped := s.StopAll(&g)
		err := g.Wait()
		stopped()
		if !errors.Is(err, stop) || o.Observed().Sandbox().Ready != (stop != nil) {
			t.Errorf("error %v, want %v: %+v", err, stop, o.Observed().Sandbox())
		}
		var rest guard.Group
		s.RemoveAll(&rest)
		if err := rest.Wait(); err != nil { // the runtime returns NotFound
			t.Error(err)
		}
	}
}

// RemoveCgroup retries, because processes leave a cgroup a moment after the runtime reports their exit.
func TestRemoveCgroup(t *testing.T) {
	t.Parallel()
	for busy, want := range map[int]bool{0: true, 9: true, 10: false} {
		synctest.Test(t, func(t *testing.T) {
			m := &machine{busy: busy}
			s, _, _ := made(t, m)
			began := time.Now()
			if err := s.RemoveCgroup(&corev1.Pod{}); (err == nil) != want || time.Since(began) > 50*time.Millisecond {
				t.Errorf("busy %d times: %v after %v", busy, err, time.Since(began))
			}
			if err := s.RemoveCgroup(&corev1.Pod{}); err != nil || want && m.removed != busy+1 {
				t.Errorf("second call: %v after %d attempts", err, m.removed)
			}
		})
	}
}
