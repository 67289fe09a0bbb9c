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
	// sigkilled is the exit code of what the kernel killed.
	sigkilled = 128 + 9
)

// watchKernel tells of the containers in which the kernel killed a process.
func (f *follower) watchKernel(ctx context.Context) {
	for kill := range f.r.config.Kernel.Watch(ctx) {
		for name := range strings.SplitSeq(kill.Cgroup, "/") {
			id := containerID(name)
			if o, ok := f.r.known.get(id); ok && f.r.known.starved(id) {
				f.send(ctx, runtime.Event{Type: runtime.EventContainerOOM, PodUID: o.pod, SandboxID: o.sandbox, ContainerID: id, At: kill.At})
			}
		}
	}
}

// containerID is whose a cgroup of that name is: the systemd driver wraps the ID
// up.
func containerID(folder string) string {
	if scope, ok := strings.CutSuffix(folder, ".scope"); ok {
		return scope[strings.LastIndexByte(scope, '-')+1:]
	}
	return folder
}

// explain says before an exit that it was for want of memory, if the kernel says
// so.
func (f *follower) explain(ctx context.Context, exit runtime.Event, pid int) {
	id := exit.ContainerID
	if id == "" || exit.ExitCode != sigkilled || !f.r.starved(id, pid) || !f.r.known.starved(id) {
		return
	}
	exit.Type, exit.ExitCode = runtime.EventContainerOOM, 0
	f.send(ctx, exit)
}

// starved asks the kernel: its log, or where that must not be read, the counter of
// the container's cgroup.
func (r *Runtime) starved(id string, pid int) bool {
	if r.config.Kernel != nil {
		return r.config.Kernel.Killed(id, pid)
	}
	o, _ := r.known.get(id)
	return o.cgroup != "" && cgroup.Starved("/sys/fs/cgroup", o.cgroup, id)
}

// reasoned gives the status of a dead container the reason that containerd may have
// lost.
func (r *Runtime) reasoned(s *cri.ContainerStatus) *cri.ContainerStatus {
	if s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode == 0 || s.Reason != "" && s.Reason != "Error" {
		return s
	}
	if o, _ := r.known.get(s.Id); o.oom || s.ExitCode == sigkilled && r.config.Kernel.Killed(s.Id, 0) {
		s.Reason = reasonOOM
	}
	return s
}
