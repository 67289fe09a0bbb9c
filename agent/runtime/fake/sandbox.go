package fake

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
)

// sandboxService contains the sandboxes. Runtime stops and removes them, because that also stops and removes
// containers.
type sandboxService struct {
	gate     *Gate
	events   *events
	network  *Network
	handlers []*cri.RuntimeHandler // nil: runc only

	mu        sync.Mutex // guards sandboxes, and state and ended of each
	sandboxes map[string]*sandbox
}

// sandbox is immutable except for state and ended.
type sandbox struct {
	id        string
	config    *cri.PodSandboxConfig
	createdAt time.Time
	endpoint  *Endpoint

	state cri.PodSandboxState
	ended bool // its address is free and its end is published
}

// RunPodSandbox creates a sandbox, which is ready at once.
func (s *sandboxService) RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig,
	handler string) (string, error) {
	meta := config.GetMetadata()
	return Answer(ctx, s.gate, "RunPodSandbox", meta.GetNamespace()+"/"+meta.GetName(), func() (string, error) {
		return s.run(config, handler)
	})
}

func (s *sandboxService) run(config *cri.PodSandboxConfig, handler string) (string, error) {
	meta := config.GetMetadata()
	if meta.GetName() == "" || meta.GetUid() == "" {
		return "", status.Error(codes.InvalidArgument, "a sandbox needs a name and a uid")
	}
	if !s.handles(handler) {
		return "", status.Errorf(codes.Unknown, "failed to get sandbox runtime: no runtime for %q is configured", handler)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.sandboxes {
		if proto.Equal(other.config.Metadata, meta) {
			return "", status.Errorf(codes.AlreadyExists, "sandbox %s has this name, uid and attempt", other.id)
		}
	}
	host := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == cri.NamespaceMode_NODE
	endpoint, err := s.network.Attach(host)
	if err != nil {
		return "", err
	}
	made := &sandbox{id: newID(), config: proto.CloneOf(config), createdAt: s.gate.Clock.Now(), endpoint: endpoint}
	s.sandboxes[made.id] = made
	return made.id, nil
}

// handles reports whether a handler of that name is configured.
func (s *sandboxService) handles(name string) bool {
	if s.handlers == nil {
		return name == "" || name == "runc"
	}
	return slices.ContainsFunc(s.handlers, func(h *cri.RuntimeHandler) bool { return h.Name == name })
}

// lookup returns a sandbox, or NotFound.
func (s *sandboxService) lookup(id string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := find(s.sandboxes, id); ok {
		return found, nil
	}
	return nil, status.Errorf(codes.NotFound, "no sandbox %q", id)
}

// ready returns FailedPrecondition once the sandbox is closed.
func (s *sandboxService) ready(of *sandbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.state != cri.PodSandboxState_SANDBOX_READY {
		return status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", of.id)
	}
	return nil
}

// close makes the sandbox not ready: no more containers can be created or started in it.
func (s *sandboxService) close(of *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.state = cri.PodSandboxState_SANDBOX_NOTREADY
}

// end frees the address and publishes the end of a closed sandbox, once.
func (s *sandboxService) end(of *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.ended {
		return
	}
	of.ended = true
	of.endpoint.Detach()
	s.events.publish(runtime.Event{
		Type: runtime.EventSandboxExited, PodUID: of.config.Metadata.Uid, SandboxID: of.id, At: s.gate.Clock.Now(),
	})
}

func (s *sandboxService) remove(of *sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, of.id)
}

// PodSandboxStatus returns NotFound for a missing sandbox.
func (s *sandboxService) PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatus, error) {
	if err := s.gate.Begin(ctx, "PodSandboxStatus", id); err != nil {
		return nil, err
	}
	found, err := s.lookup(id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	config := proto.CloneOf(found.config)
	return &cri.PodSandboxStatus{
		Id: found.id, Metadata: config.Metadata, State: found.state, CreatedAt: found.createdAt.UnixNano(),
		Labels: config.Labels, Annotations: config.Annotations,
		Network: &cri.PodSandboxNetworkStatus{Ip: found.endpoint.Address()},
		Linux: &cri.LinuxPodSandboxStatus{
			Namespaces: &cri.Namespace{Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions()},
		},
	}, nil
}

// ListPodSandbox returns the oldest first.
func (s *sandboxService) ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error) {
	if err := s.gate.Begin(ctx, "ListPodSandbox", filter.GetId()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return oldestFirst(s.sandboxes, func(one *sandbox) bool { return one.matches(filter) },
		func(one *sandbox) *cri.PodSandbox {
			config := proto.CloneOf(one.config)
			return &cri.PodSandbox{
				Id: one.id, Metadata: config.Metadata, State: one.state, CreatedAt: one.createdAt.UnixNano(),
				Labels: config.Labels, Annotations: config.Annotations,
			}
		}), nil
}
