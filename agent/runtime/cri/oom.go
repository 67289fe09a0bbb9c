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
	// sigkilled is the exit code of a process that SIGKILL ended.
	sigkilled = 128 + 9
)

// watchKernel sends an event for each container in which the kernel OOM-killed a process.
func (f *eventStream) watchKernel(ctx context.Context) {
	for kill := range f.r.config.Kernel.Watch(ctx) {
		for name := range strings.SplitSeq(kill.Cgroup, "/") {
			id := containerID(name)
			if o, ok := f.r.owners.get(id); ok && f.r.owners.markOOM(id) {
				f.send(ctx, runtime.Event{Type: runtime.EventContainerOOM, PodUID: o.pod, SandboxID: o.sandbox, ContainerID: id,
					At: kill.At})
			}
		}
	}
}

// containerID returns the ID of the container in the name of its cgroup, to which the systemd driver adds a prefix and
// a suffix.
func containerID(folder string) string {
	if scope, ok := strings.CutSuffix(folder, ".scope"); ok {
		return scope[strings.LastIndexByte(scope, '-')+1:]
	}
	return folder
}

// sendOOM is called before the event of an exit. It sends an OOM event if the exit was an OOM kill.
func (f *eventStream) sendOOM(ctx context.Context, exit runtime.Event, pid int) {
	id := exit.ContainerID
	if id == "" || exit.ExitCode != sigkilled || !f.r.wasOOMKilled(id, pid) || !f.r.owners.markOOM(id) {
		return
	}
	exit.Type, exit.ExitCode = runtime.EventContainerOOM, 0
	f.send(ctx, exit)
}

// wasOOMKilled looks for an OOM kill in the kernel's log or, without permission to read it, in the counter of the
// container's cgroup.
func (r *Runtime) wasOOMKilled(id string, pid int) bool {
	if r.config.Kernel != nil {
		return r.config.Kernel.Killed(id, pid)
	}
	o, _ := r.owners.get(id)
	return o.cgroup != "" && cgroup.OOMKilled("/sys/fs/cgroup", o.cgroup, id)
}

// withOOMReason sets the reason OOMKilled of a dead container if containerd missed the OOM kill.
func (r *Runtime) withOOMReason(s *cri.ContainerStatus) *cri.ContainerStatus {
	if s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode == 0 || s.Reason != "" && s.Reason != "Error" {
		return s
	}
	if o, _ := r.owners.get(s.Id); o.oom || s.ExitCode == sigkilled && r.config.Kernel.Killed(s.Id, 0) {
		s.Reason = reasonOOM
	}
	return s
}
