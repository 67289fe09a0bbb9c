package cri

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A containerd that is killed while it starts a container may leave an orphaned task, which CRI does not know: the
// container can neither start, because its task exists, nor be removed, because its task runs.

// orEndTasks calls remove, which removes a container or sandbox. If remove fails because of orphaned tasks, orEndTasks
// ends the tasks of the containers and calls remove again.
func (r *Runtime) orEndTasks(ctx context.Context, remove func() error, containers func() ([]string, error)) error {
	err := remove()
	if status.Code(err) != codes.FailedPrecondition {
		return ignoreNotFound(err)
	}
	ids, errs := containers()
	for _, id := range ids {
		errs = errors.Join(errs, r.endTask(ctx, id))
	}
	if errs != nil {
		return errors.Join(err, errs)
	}
	return ignoreNotFound(remove())
}

// notRunning returns the containers of a sandbox that do not run according to CRI.
func (r *Runtime) notRunning(ctx context.Context, sandboxID string) ([]string, error) {
	list, err := r.ListContainers(ctx, &cri.ContainerFilter{PodSandboxId: sandboxID})
	var ids []string
	for _, c := range list {
		if c.State != cri.ContainerState_CONTAINER_RUNNING {
			ids = append(ids, c.Id)
		}
	}
	return ids, err
}

// endTask kills the processes of a container, also if they do not run according to CRI.
func (r *Runtime) endTask(ctx context.Context, id string) error {
	ctx = InNamespace(ctx)
	c, err := r.client.LoadContainer(ctx, id)
	if err == nil {
		var task containerd.Task
		if task, err = c.Task(ctx, nil); err == nil {
			_, err = task.Delete(ctx, containerd.WithProcessKill)
		}
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("end the task of %s: %w", id, errgrpc.ToGRPC(err))
	}
	return nil
}
