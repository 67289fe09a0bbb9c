package cri

import (
	"context"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/runtime"
	"monopod/apiserver/kit/backoff"
)

// CreateContainer is CRI's.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig,
	sandbox *cri.PodSandboxConfig) (string, error) {
	if err := r.nameImages(ctx, config.GetMounts()); err != nil {
		return "", err
	}
	resp, err := r.pods.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox,
	})
	if err != nil {
		return "", err
	}
	r.owners.add(resp.ContainerId,
		owner{sandbox: sandboxID, pod: sandbox.GetMetadata().GetUid(), cgroup: sandbox.GetLinux().GetCgroupParent()})
	return resp.ContainerId, nil
}

// StartContainer is CRI's.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	_, err := r.pods.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer rounds grace up to seconds.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	seconds := int64((max(grace, 0) + time.Second - 1) / time.Second)
	return ignoreNotFound(r.orKillShim(ctx, id, func() error {
		_, err := r.pods.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: seconds})
		return err
	}))
}

// UpdateContainerResources is CRI's.
func (r *Runtime) UpdateContainerResources(ctx context.Context, id string,
	resources *cri.LinuxContainerResources) error {
	_, err := r.pods.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: resources})
	return err
}

// RemoveContainer is CRI's, and also ends an orphaned task.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	err := r.orKillShim(ctx, id, func() error {
		return r.orEndTasks(ctx, func() error {
			_, err := r.pods.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
			return err
		}, func() ([]string, error) { return []string{id}, nil })
	})
	if err == nil {
		r.owners.forget(id)
	}
	return err
}

// ListContainers is CRI's, but never older than the events sent.
func (r *Runtime) ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error) {
	resp, err := r.pods.ListContainers(ctx, &cri.ListContainersRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	for _, c := range resp.Containers {
		if _, dead := r.owners.exit(c.Id); dead && c.State == cri.ContainerState_CONTAINER_RUNNING {
			c.State = cri.ContainerState_CONTAINER_EXITED
		}
	}
	return resp.Containers, nil
}

// ContainerStatus is CRI's, but never older than the events sent: after the event of an exit, it waits up to exitLag
// for CRI to report the exit, too, and then returns what the event contained.
func (r *Runtime) ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	for wait := time.Millisecond; ; wait *= 2 {
		resp, err := r.pods.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return nil, err
		}
		s := resp.Status
		exit, dead := r.owners.exit(id)
		if !dead || s.State != cri.ContainerState_CONTAINER_RUNNING {
			return r.withOOMReason(s), nil
		}
		if wait > exitLag/2 {
			s.State, s.ExitCode, s.FinishedAt = cri.ContainerState_CONTAINER_EXITED, exit.code, exit.at.UnixNano()
			if s.Reason = "Error"; exit.code == 0 { // containerd's reasons
				s.Reason = "Completed"
			}
			return r.withOOMReason(s), nil
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// ReopenContainerLog is CRI's.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := r.pods.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// ExecSync rounds timeout up to seconds; 0 means none.
func (r *Runtime) ExecSync(ctx context.Context, id string, cmd []string,
	timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	resp, err := r.pods.ExecSync(ctx, &cri.ExecSyncRequest{
		ContainerId: id, Cmd: cmd, Timeout: int64((timeout + time.Second - 1) / time.Second),
	})
	if err != nil {
		return nil, nil, 0, err
	}
	return resp.Stdout, resp.Stderr, resp.ExitCode, nil
}

// Exec is CRI's.
func (r *Runtime) Exec(ctx context.Context, req *cri.ExecRequest) (string, error) {
	resp, err := r.pods.Exec(ctx, req)
	return resp.GetUrl(), err
}

// Execs asks containerd, because CRI does not list the processes of exec.
func (r *Runtime) Execs(ctx context.Context, id string) ([]runtime.Process, error) {
	resp, err := r.client.TaskService().ListPids(InNamespace(ctx), &tasks.ListPidsRequest{ContainerID: id})
	if err != nil {
		return nil, err
	}
	var out []runtime.Process
	for _, p := range resp.Processes {
		var details options.ProcessDetails
		if p.Info != nil && p.Info.UnmarshalTo(&details) == nil && details.ExecID != "" && details.ExecID != id {
			out = append(out, runtime.Process{ID: details.ExecID, PID: int(p.Pid)})
		}
	}
	return out, nil
}

// Attach is CRI's.
func (r *Runtime) Attach(ctx context.Context, req *cri.AttachRequest) (string, error) {
	resp, err := r.pods.Attach(ctx, req)
	return resp.GetUrl(), err
}

// PortForward is CRI's.
func (r *Runtime) PortForward(ctx context.Context, req *cri.PortForwardRequest) (string, error) {
	resp, err := r.pods.PortForward(ctx, req)
	return resp.GetUrl(), err
}

// sleep waits for d. It returns ctx's error if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	backoff.Sleep(ctx, clock.RealClock{}, d)
	return ctx.Err()
}
