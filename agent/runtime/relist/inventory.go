package relist

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/guard"
)

// Runtime contains the methods of runtime.Runtime that a Reader needs.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error)
	PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatus, error)
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
	ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error)
}

// Reader reads the sandboxes and containers of one agent.
type Reader struct {
	Runtime  Runtime
	Instance string // of the agent
	// Ended is called for each terminated container, concurrently; may be nil.
	Ended func(*status.Container)
}

// All lists the sandboxes and containers of all pods.
func (r Reader) All(ctx context.Context) ([]*cri.PodSandbox, []*cri.Container, error) {
	return r.list(ctx, map[string]string{spec.LabelInstance: r.Instance})
}

func (r Reader) list(ctx context.Context, labels map[string]string) ([]*cri.PodSandbox, []*cri.Container, error) {
	sandboxes, err := r.Runtime.ListPodSandbox(ctx, &cri.PodSandboxFilter{LabelSelector: labels})
	if err != nil {
		return nil, nil, err
	}
	containers, err := r.Runtime.ListContainers(ctx, &cri.ContainerFilter{LabelSelector: labels})
	return sandboxes, containers, err
}

// Pod returns the observed state of one pod.
func (r Reader) Pod(ctx context.Context, uid types.UID) (status.Observed, error) {
	labels := map[string]string{spec.LabelPodUID: string(uid), spec.LabelInstance: r.Instance}
	sandboxes, containers, err := r.list(ctx, labels)
	if err != nil {
		return status.Observed{}, err
	}
	return r.read(ctx, sandboxes, containers)
}

// read gets the status of each sandbox and container. It omits those that were removed meanwhile.
func (r Reader) read(ctx context.Context, sandboxes []*cri.PodSandbox,
	containers []*cri.Container) (status.Observed, error) {
	var out status.Observed
	var mu sync.Mutex // guards out
	g, ctx := guard.With(ctx)
	g.SetLimit(4)
	for _, s := range sandboxes {
		g.Do(func() error {
			one, err := r.Sandbox(ctx, s.Id)
			if err != nil || one == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out.Sandboxes = append(out.Sandboxes, *one)
			return nil
		})
	}
	for _, c := range containers {
		g.Do(func() error {
			one, err := r.Container(ctx, c.Id, c.PodSandboxId)
			if err != nil || one == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out.Containers = append(out.Containers, *one)
			return nil
		})
	}
	err := g.Wait()
	return out, err
}

// Sandbox returns the sandbox with the ID; nil: there is none.
func (r Reader) Sandbox(ctx context.Context, id string) (*status.Sandbox, error) {
	s, err := r.Runtime.PodSandboxStatus(ctx, id)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &status.Sandbox{
		ID: s.Id, Attempt: s.GetMetadata().GetAttempt(), CreatedAt: time.Unix(0, s.CreatedAt),
		Ready: s.State == cri.PodSandboxState_SANDBOX_READY, IPs: addresses(s),
	}, nil
}

func addresses(s *cri.PodSandboxStatus) []string {
	n := s.GetNetwork()
	if n.GetIp() == "" {
		return nil
	}
	out := []string{n.Ip}
	for _, more := range n.AdditionalIps {
		out = append(out, more.Ip)
	}
	return out
}

// Container returns the container with the ID in the sandbox; nil: there is none.
func (r Reader) Container(ctx context.Context, id, sandbox string) (*status.Container, error) {
	s, err := r.Runtime.ContainerStatus(ctx, id)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := status.FromCRI(s, sandbox)
	a := spec.AnnotationsOf(s.Annotations)
	c.Hash, c.MessagePath, c.MessagePolicy = a.Hash, a.MessageHostPath, a.MessagePolicy
	if c.State == status.Exited && r.Ended != nil {
		r.Ended(&c)
	}
	return &c, nil
}

func isNotFound(err error) bool { return grpcstatus.Code(err) == codes.NotFound }
