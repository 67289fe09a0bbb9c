package placement

import (
	"context"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"monopod/agent/podapi/status"
	"monopod/agent/resources/cpumanager"
	"monopod/apiserver/kit/backoff"
)

// pin reports lost checkpoints, and keeps containers on their CPUs until ctx ends.
func (p *Placement) pin(ctx context.Context) {
	if p.cpus != nil && p.cpus.Lost() != nil {
		p.Node.Event(corev1.EventTypeWarning, "CPUManagerStateLost", "%v", p.cpus.Lost())
	}
	if p.memory != nil && p.memory.Lost() != nil {
		p.Node.Event(corev1.EventTypeWarning, "MemoryManagerStateLost", "%v", p.memory.Lost())
	}
	switch {
	case p.pinner == nil:
	case p.staleCheckpoint != "":
		p.unpin(ctx)
	default:
		p.pinner.Run(ctx)
	}
}

func (p *Placement) newPinner(cpus func(types.UID, string) cpuset.CPUSet) *cpumanager.Pinner {
	return cpumanager.NewPinner(cpumanager.PinnerDeps{
		Running: p.running, CPUs: cpus, Update: p.updateCPUs, Clock: p.Clock, Log: p.Log, Period: p.cfg.CPUs.Period,
	})
}

// unpinInterval is the interval of attempts to unpin containers.
const unpinInterval = time.Second

// unpin updates the containers that policy static had pinned to run on all CPUs, once all containers are known.
func (p *Placement) unpin(ctx context.Context) {
	p.Log.Warn("the CPU manager policy is now none: all containers run on all CPUs again",
		zap.String("file", string(p.staleCheckpoint)))
	for !p.allObserved() || !p.pinner.Reconcile(ctx) {
		if !backoff.Sleep(ctx, p.Clock, unpinInterval) {
			return
		}
	}
	if err := p.staleCheckpoint.Remove(); err != nil {
		p.Log.Warn("failed to remove the CPU manager checkpoint", zap.Error(err))
	}
}

// allObserved reports whether the containers of every pod are known.
func (p *Placement) allObserved() bool {
	for _, pod := range p.Pods() {
		if pod.Observed() == nil {
			return false
		}
	}
	return p.Known()
}

// running returns the running containers.
func (p *Placement) running() []cpumanager.Container {
	var out []cpumanager.Container
	for uid, pod := range p.Pods() {
		seen := pod.Observed()
		if seen == nil {
			continue
		}
		for i := range seen.Containers {
			if c := &seen.Containers[i]; c.State == status.Running {
				out = append(out, cpumanager.Container{Pod: uid, Name: c.Name, ID: c.ID})
			}
		}
	}
	return out
}

func (p *Placement) updateCPUs(ctx context.Context, id, cpus string) error {
	err := p.Runtime.UpdateContainerResources(ctx, id, &cri.LinuxContainerResources{CpusetCpus: cpus})
	if grpcstatus.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// ContainerCreated records the config with which a container was created.
func (p *Placement) ContainerCreated(id string, config *cri.ContainerConfig) {
	if p.pinner != nil {
		p.pinner.Created(id, config.GetLinux().GetResources().GetCpusetCpus())
	}
}

// Started updates a container if the CPUs have changed since its creation.
func (p *Placement) Started(ctx context.Context, uid types.UID, c *status.Container) {
	if p.pinner != nil && p.staleCheckpoint == "" {
		p.pinner.Started(ctx, cpumanager.Container{Pod: uid, Name: c.Name, ID: c.ID})
	}
}
