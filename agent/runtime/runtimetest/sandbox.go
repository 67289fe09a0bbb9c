package runtimetest

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testReady(t *testing.T, env Env) {
	version, err := env.Runtime.Version(t.Context())
	if err != nil || version.RuntimeApiVersion != "v1" || version.RuntimeName == "" || version.RuntimeVersion == "" {
		t.Errorf("version %v, %v", version, err)
	}
	resp, err := env.Runtime.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status := resp.GetStatus()
	ready := map[string]bool{}
	for _, c := range status.Conditions {
		ready[c.Type] = c.Status
	}
	if !ready[cri.RuntimeReady] || !ready[cri.NetworkReady] {
		t.Errorf("conditions %v", status.Conditions)
	}
}

func testSandboxLife(t *testing.T, env Env) {
	p, other := newPod(t, env), newPod(t, env)
	ctx := t.Context()

	s, err := env.Runtime.PodSandboxStatus(ctx, p.id)
	if err != nil {
		t.Fatal(err)
	}
	if s.State != cri.PodSandboxState_SANDBOX_READY || s.Id != p.id || s.CreatedAt == 0 {
		t.Errorf("status %v", s)
	}
	for what, diff := range map[string]string{
		"metadata":    cmp.Diff(p.config.Metadata, s.Metadata, protocmp.Transform()),
		"labels":      cmp.Diff(p.config.Labels, s.Labels),
		"annotations": cmp.Diff(p.config.Annotations, s.Annotations),
	} {
		if diff != "" {
			t.Errorf("the status has other %s (-want +got): %s", what, diff)
		}
	}
	p.checkAddresses(s, other)

	for range 2 {
		if err := env.Runtime.StopPodSandbox(ctx, p.id); err != nil {
			t.Fatalf("stop: %v", err)
		}
		if s, err := env.Runtime.PodSandboxStatus(ctx, p.id); err != nil || s.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("stopped sandbox: %v, %v", s, err)
		}
	}
	for range 2 {
		if err := env.Runtime.RemovePodSandbox(ctx, p.id); err != nil {
			t.Fatalf("remove: %v", err)
		}
		_, err := env.Runtime.PodSandboxStatus(ctx, p.id)
		wantCode(t, "removed sandbox", err, codes.NotFound)
	}
}

// checkAddresses requires a separate address for each pod that is not on the host network.
func (p *pod) checkAddresses(s *cri.PodSandboxStatus, other *pod) {
	p.Helper()
	if p.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == cri.NamespaceMode_NODE {
		return
	}
	o, err := p.Runtime.PodSandboxStatus(p.Context(), other.id)
	if err != nil {
		p.Fatal(err)
	}
	a, errA := netip.ParseAddr(s.GetNetwork().GetIp())
	b, errB := netip.ParseAddr(o.GetNetwork().GetIp())
	if errA != nil || errB != nil || a == b {
		p.Errorf("addresses %v and %v", s.Network, o.Network)
	}
}

func testHandlers(t *testing.T, env Env) {
	p := newPod(t, env)
	p.config.Metadata.Attempt++
	id, err := env.Runtime.RunPodSandbox(t.Context(), p.config, "nosuch")
	if err == nil {
		env.remove(t, id)
	}
	if err == nil || !strings.Contains(err.Error(), `no runtime for "nosuch" is configured`) {
		t.Errorf("sandbox with an unknown handler: %v", err)
	}
	if id, err = env.Runtime.RunPodSandbox(t.Context(), p.config, "runc"); err != nil {
		t.Fatalf("handler runc: %v", err)
	}
	env.remove(t, id)
}

func testSandboxTwice(t *testing.T, env Env) {
	p := newPod(t, env)
	if id, err := env.Runtime.RunPodSandbox(t.Context(), p.config, ""); err == nil {
		env.remove(t, id)
		t.Error("a second sandbox with the same name, uid and attempt was created")
	}
	p.config.Metadata.Attempt++
	id, err := env.Runtime.RunPodSandbox(t.Context(), p.config, "")
	if err != nil {
		t.Fatalf("next attempt: %v", err)
	}
	defer env.remove(t, id)
	s, err := env.Runtime.PodSandboxStatus(t.Context(), id)
	if err != nil || s.Metadata.Attempt != 1 {
		t.Errorf("attempt of %v, %v", s, err)
	}
}

func testSandboxList(t *testing.T, env Env) {
	a, b := newPod(t, env), newPod(t, env)
	if err := env.Runtime.StopPodSandbox(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	ready := &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}
	notReady := &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_NOTREADY}
	for _, tc := range []struct {
		name   string
		filter *cri.PodSandboxFilter
		a, b   bool
	}{
		{"nil", nil, true, true},
		{"empty", &cri.PodSandboxFilter{}, true, true},
		{"id", &cri.PodSandboxFilter{Id: a.id}, true, false},
		{"ready", &cri.PodSandboxFilter{State: ready}, true, false},
		{"not ready", &cri.PodSandboxFilter{State: notReady}, false, true},
		{"labels", &cri.PodSandboxFilter{LabelSelector: map[string]string{"uid": b.config.Metadata.Uid, "app": "web"}}, false,
			true},
		{"one other label",
			&cri.PodSandboxFilter{LabelSelector: map[string]string{"uid": b.config.Metadata.Uid, "app": "db"}}, false, false},
		{"id and state", &cri.PodSandboxFilter{Id: a.id, State: notReady}, false, false},
		{"unknown id", &cri.PodSandboxFilter{Id: "nothing-here"}, false, false},
	} {
		list, err := env.Runtime.ListPodSandbox(t.Context(), tc.filter)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		found := map[string]*cri.PodSandbox{}
		for _, s := range list {
			found[s.Id] = s
		}
		if (found[a.id] != nil) != tc.a || (found[b.id] != nil) != tc.b {
			t.Errorf("%s: found the ready sandbox %v, want %v; the other sandbox %v, want %v", tc.name, found[a.id] != nil, tc.a,
				found[b.id] != nil, tc.b)
		}
		if s := found[a.id]; s != nil &&
			(s.Metadata.Uid != a.config.Metadata.Uid || s.Labels["app"] != "web" || s.CreatedAt == 0) {
			t.Errorf("%s: listed as %v", tc.name, s)
		}
	}
}

func testSandboxEndsContainers(t *testing.T, env Env) {
	p := newPod(t, env)
	id := p.serve()
	if err := env.Runtime.StopPodSandbox(t.Context(), p.id); err != nil {
		t.Fatal(err)
	}
	if s := p.status(id); s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode != 137 {
		t.Errorf("container of a stopped sandbox: %v, code %d", s.State, s.ExitCode)
	}
	if _, err := env.Runtime.CreateContainer(t.Context(), p.id, p.container(), p.config); err == nil {
		t.Error("creating a container in a stopped sandbox succeeded")
	}
	if err := env.Runtime.RemovePodSandbox(t.Context(), p.id); err != nil {
		t.Fatal(err)
	}
	_, err := env.Runtime.ContainerStatus(t.Context(), id)
	wantCode(t, "container of a removed sandbox", err, codes.NotFound)
}
