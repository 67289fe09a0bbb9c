package fake

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
	"monopod/agent/runtime/fake/port"
)

// sandbox is a pod's place: an address and what listens there. It is guarded by
// Runtime.mu, but for config, which never changes.
type sandbox struct {
	id        string
	config    *cri.PodSandboxConfig
	state     cri.PodSandboxState
	createdAt time.Time
	ended     bool       // and told so
	ip        netip.Addr // not valid: the host's network, or stopped
	ports     map[uint16]port.Port
}

// RunPodSandbox makes a sandbox; it is ready when the call returns.
func (r *Runtime) RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	meta := config.GetMetadata()
	return answer(ctx, r, "RunPodSandbox", meta.GetNamespace()+"/"+meta.GetName(), func() (string, error) {
		return r.runPodSandbox(config, handler)
	})
}

func (r *Runtime) runPodSandbox(config *cri.PodSandboxConfig, handler string) (string, error) {
	meta := config.GetMetadata()
	if meta.GetName() == "" || meta.GetUid() == "" {
		return "", status.Error(codes.InvalidArgument, "a sandbox needs a name and a uid")
	}
	if !r.handles(handler) {
		return "", status.Errorf(codes.Unknown, "failed to get sandbox runtime: no runtime for %q is configured", handler)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if proto.Equal(s.config.Metadata, meta) {
			return "", status.Errorf(codes.AlreadyExists, "sandbox %s has this name, uid and attempt", s.id)
		}
	}
	s := &sandbox{id: newID(), config: proto.CloneOf(config), createdAt: r.clock.Now(), ports: map[uint16]port.Port{}}
	if !s.hostNetwork() {
		var err error
		if s.ip, err = r.addresses.Take(); err != nil {
			return "", err
		}
		r.at[s.ip] = s
	}
	r.sandboxes[s.id] = s
	return s.id, nil
}

// handles reports whether there is a handler of that name.
func (r *Runtime) handles(name string) bool {
	if r.cfg.Handlers == nil {
		return name == "" || name == "runc"
	}
	return slices.ContainsFunc(r.cfg.Handlers, func(h *cri.RuntimeHandler) bool { return h.Name == name })
}

// StopPodSandbox kills the containers in it and takes its address.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	return answerErr(ctx, r, "StopPodSandbox", id, func() error { return r.stopSandbox(ctx, id) })
}

// stopSandbox lets nothing new in, then kills what is inside.
func (r *Runtime) stopSandbox(ctx context.Context, id string) error {
	r.mu.Lock()
	s, ok := find(r.sandboxes, id)
	if !ok {
		r.mu.Unlock()
		return nil
	}
	inside := r.inside(s)
	s.state = cri.PodSandboxState_SANDBOX_NOTREADY
	r.mu.Unlock()
	for _, c := range inside {
		if err := r.kill(ctx, c); err != nil {
			return err
		}
	}
	r.sandboxEnded(s)
	return nil
}

func (r *Runtime) sandboxEnded(s *sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	delete(r.at, s.ip)
	r.addresses.Free(s.ip)
	s.ip = netip.Addr{}
	r.events.publish(runtime.Event{
		Type: runtime.EventSandboxExited, PodUID: s.config.Metadata.Uid, SandboxID: s.id, At: r.clock.Now(),
	})
}

// RemovePodSandbox stops what still runs, then forgets it and its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	return answerErr(ctx, r, "RemovePodSandbox", id, func() error { return r.removeSandbox(ctx, id) })
}

func (r *Runtime) removeSandbox(ctx context.Context, id string) error {
	if err := r.stopSandbox(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := find(r.sandboxes, id); ok {
		for _, c := range r.inside(s) {
			delete(r.containers, c.id)
		}
		delete(r.sandboxes, s.id)
	}
	return nil
}

// inside lists the containers of a sandbox. The caller holds mu.
func (r *Runtime) inside(s *sandbox) []*container {
	return slices.DeleteFunc(slices.Collect(maps.Values(r.containers)), func(c *container) bool { return c.sandbox != s })
}

// PodSandboxStatus answers NotFound for what is not there.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatus, error) {
	if err := r.begin(ctx, "PodSandboxStatus", id); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := find(r.sandboxes, id)
	if !ok {
		return nil, noSandbox(id)
	}
	config := proto.CloneOf(s.config)
	return &cri.PodSandboxStatus{
		Id: s.id, Metadata: config.Metadata, State: s.state, CreatedAt: s.createdAt.UnixNano(),
		Labels: config.Labels, Annotations: config.Annotations,
		Network: &cri.PodSandboxNetworkStatus{Ip: s.address()},
		Linux: &cri.LinuxPodSandboxStatus{
			Namespaces: &cri.Namespace{Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions()},
		},
	}, nil
}

// ListPodSandbox lists the oldest first.
func (r *Runtime) ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error) {
	if err := r.begin(ctx, "ListPodSandbox", filter.GetId()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.PodSandbox
	for _, s := range r.sandboxes {
		if s.matches(filter) {
			config := proto.CloneOf(s.config)
			list = append(list, &cri.PodSandbox{
				Id: s.id, Metadata: config.Metadata, State: s.state, CreatedAt: s.createdAt.UnixNano(),
				Labels: config.Labels, Annotations: config.Annotations,
			})
		}
	}
	slices.SortFunc(list, func(a, b *cri.PodSandbox) int { return byAge(a.CreatedAt, b.CreatedAt, a.Id, b.Id) })
	return list, nil
}

func (s *sandbox) hostNetwork() bool {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == cri.NamespaceMode_NODE
}

func (s *sandbox) address() string {
	if !s.ip.IsValid() {
		return ""
	}
	return s.ip.String()
}

func noSandbox(id string) error {
	return status.Error(codes.NotFound, fmt.Sprintf("no sandbox %q", id))
}
