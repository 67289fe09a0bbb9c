package cri

import (
	"context"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/resources/cgroup"
	"monopod/agent/runtime"
)

const (
	reasonOOM = "OOMKilled"
	// sigkilled is the exit code of a killed process.
	sigkilled = 128 + 9
)

// watchKernel reports the containers in which the kernel OOM-killed a process.
func (f *follower) watchKernel(ctx context.Context) {
	for kill := range f.r.config.Kernel.Watch(ctx) {
		for name := range strings.SplitSeq(kill.Cgroup, "/") {
			id := containerID(name)
			if o, ok := f.r.known.get(id); ok && f.r.known.starved(id) {
				f.send(ctx, runtime.Event{Type: runtime.EventContainerOOM, PodUID: o.pod, SandboxID: o.sandbox, ContainerID: id,
					At: kill.At})
			}
		}
	}
}

// containerID returns the container of a cgroup's folder: the systemd driver adds a
// prefix and suffix to the ID.
func containerID(folder string) string {
	if scope, ok := strings.CutSuffix(folder, ".scope"); ok {
		return scope[strings.LastIndexByte(scope, '-')+1:]
	}
	return folder
}

// explain sends an OOM event before the exit if the kernel reports an OOM kill.
func (f *follower) explain(ctx context.Context, exit runtime.Event, pid int) {
	id := exit.ContainerID
	if id == "" || exit.ExitCode != sigkilled || !f.r.starved(id, pid) || !f.r.known.starved(id) {
		return
	}
	exit.Type, exit.ExitCode = runtime.EventContainerOOM, 0
	f.send(ctx, exit)
}

// starved checks for an OOM kill in the kernel's log or, without permission to read
// it, in the counter of the container's cgroup.
func (r *Runtime) starved(id string, pid int) bool {
	if r.config.Kernel != nil {
		return r.config.Kernel.Killed(id, pid)
	}
	o, _ := r.known.get(id)
	return o.cgroup != "" && cgroup.Starved("/sys/fs/cgroup", o.cgroup, id)
}

// reasoned sets the reason OOMKilled of a dead container if containerd missed it.
func (r *Runtime) reasoned(s *cri.ContainerStatus) *cri.ContainerStatus {
	if s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode == 0 || s.Reason != "" && s.Reason != "Error" {
		return s
	}
	if o, _ := r.known.get(s.Id); o.oom || s.ExitCode == sigkilled && r.config.Kernel.Killed(s.Id, 0) {
		s.Reason = reasonOOM
	}
	return s
}
