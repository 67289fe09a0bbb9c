package cri

import (
	"context"
	"errors"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox first imports the sandbox image if it is missing.
func (r *Runtime) RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	if err := r.checkTraversable(config); err != nil {
		return "", err
	}
	if err := r.ensurePause(ctx); err != nil {
		return "", err
	}
	resp, err := r.pods.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return "", err
	}
	id := resp.PodSandboxId
	r.owners.add(id, owner{sandbox: id, pod: config.GetMetadata().GetUid()})
	return id, nil
}

// StopPodSandbox also stops the containers in it, by force.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	err := r.orKillShim(ctx, id, func() error {
		_, err := r.pods.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
		return err
	})
	if isTruncatedResult(err) {
		if errDrop := removeResults(networkResults, id, true); errDrop != nil {
			return errors.Join(err, errDrop)
		}
		_, err = r.pods.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	}
	return ignoreNotFound(err)
}

// RemovePodSandbox also removes the containers in it.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	err := r.orKillShim(ctx, id, func() error {
		return r.orEndTasks(ctx, func() error {
			_, err := r.pods.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
			return err
		}, func() ([]string, error) { return r.notRunning(ctx, id) })
	})
	if err == nil {
		r.owners.forgetSandbox(id)
		r.shimReaper.add(r.life, id)
		err = removeResults(networkResults, id, false)
	}
	return err
}

// PodSandboxStatus is CRI's.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatus, error) {
	resp, err := r.pods.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	if _, dead := r.owners.exit(id); dead {
		resp.Status.State = cri.PodSandboxState_SANDBOX_NOTREADY
	}
	return resp.Status, nil
}

// ListPodSandbox is CRI's.
func (r *Runtime) ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error) {
	resp, err := r.pods.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	return resp.Items, nil
}

// RemoveAll stops and removes every sandbox, with a short grace period. It is for
// discarding an instance; a normal stop leaves pods running.
func (r *Runtime) RemoveAll(ctx context.Context) error {
	sandboxes, err := r.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		if err := r.StopPodSandbox(ctx, s.Id); err != nil {
			return err
		}
		if err := r.RemovePodSandbox(ctx, s.Id); err != nil {
			return err
		}
	}
	return nil
}
