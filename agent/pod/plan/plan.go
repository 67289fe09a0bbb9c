// Package plan computes the next actions for a pod: create a sandbox, start containers, kill containers. It is pure;
// the pod's worker carries the plan out.
package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// Kill is a container to stop, and the reason as the text of an event.
type Kill struct {
	Container *status.Container
	Message   string
}

// Plan contains the next actions, in this order.
type Plan struct {
	// RestartAll is the container whose exit restarts all containers except ephemeral ones; nil: none. The containers in
	// Kill must end at once; when Kill is empty, all containers are removed, RestartAll last. The other fields are empty.
	RestartAll *status.Container

	NewSandbox bool   // stop what is left of the old one, then create a new one
	Attempt    uint32 // of the new sandbox
	Kill       []Kill
	// Start contains the containers to start now: ephemeral ones, then init containers, then the others. A container that
	// crashed may have to wait for its backoff.
	Start []*corev1.Container
}

// Input is the input of For.
type Input struct {
	Pod      *corev1.Pod
	Observed *status.Observed
	Started  func(id string) bool           // startup probe passed
	Failed   func(id string) (string, bool) // the failed probe of a container
}

// For computes the plan of a pod that should run.
func For(in Input) Plan {
	if trigger := status.RestartsAll(in.Pod, in.Observed); trigger != nil {
		return in.restartAll(trigger)
	}
	sandbox := in.Observed.Sandbox()
	if sandbox == nil || !sandbox.Ready {
		return in.newSandbox(sandbox)
	}
	var p Plan
	in.kills(&p)
	for _, c := range spec.Ephemeral(in.Pod) { // they run once, regardless of the others
		last := in.Observed.Latest(c.Name)
		if last == nil && !in.ran(c.Name) || last != nil && last.State == status.Created {
			p.Start = append(p.Start, c)
		}
	}
	if in.initialized(&p, sandbox.ID) {
		for i := range in.Pod.Spec.Containers {
			c := &in.Pod.Spec.Containers[i]
			last := in.Observed.Latest(c.Name)
			running := last != nil && (last.State == status.Running || last.State == status.Unknown)
			if !running && in.restarts(c) {
				p.Start = append(p.Start, c)
			}
		}
	}
	return p
}

// restartAll plans the end of every container that is not ephemeral.
func (in *Input) restartAll(trigger *status.Container) Plan {
	p := Plan{RestartAll: trigger}
	why := fmt.Sprintf("Container %s exited with code %d, all containers will be restarted", trigger.Name,
		trigger.ExitCode)
	for _, c := range in.Observed.Alive() {
		named := func(e corev1.EphemeralContainer) bool { return e.Name == c.Name }
		if !slices.ContainsFunc(in.Pod.Spec.EphemeralContainers, named) {
			p.Kill = append(p.Kill, Kill{c, why})
		}
	}
	return p
}

// newSandbox plans a pod without a running sandbox. The plan is empty if no container restarts.
func (in *Input) newSandbox(old *status.Sandbox) Plan {
	p := Plan{NewSandbox: true}
	for i := range in.Pod.Spec.Containers {
		if c := &in.Pod.Spec.Containers[i]; in.restarts(c) {
			p.Start = append(p.Start, c)
		}
	}
	if len(p.Start) == 0 {
		return Plan{}
	}
	if old != nil {
		p.Attempt = old.Attempt + 1
	}
	if len(in.Pod.Spec.InitContainers) > 0 {
		p.Start = []*corev1.Container{&in.Pod.Spec.InitContainers[0]}
	}
	return p
}

// exitUnknown is upstream's exit code of a container whose end was not observed.
const exitUnknown = 137

// restarts reports whether a container that does not run should start, by its last exit and the restart policy.
func (in *Input) restarts(c *corev1.Container) bool {
	last := in.Observed.Latest(c.Name)
	if last == nil || last.State == status.Created || status.Sidecar(c) {
		return true
	}
	code := last.ExitCode
	if last.State != status.Exited {
		code = exitUnknown
	}
	return status.Restarts(in.Pod, c, code)
}

// kills adds running containers with a failed probe or a changed spec, and those in an unknown state: the runtime was
// killed while it created them.
func (in *Input) kills(p *Plan) {
	for _, want := range spec.Containers(&in.Pod.Spec) {
		c := in.Observed.Latest(want.Name)
		if c != nil && c.State == status.Unknown {
			p.Kill = append(p.Kill,
				Kill{c, fmt.Sprintf("Container %s is in unknown state, it is killed before it is restarted", c.Name)})
		}
		if c == nil || c.State != status.Running {
			continue
		}
		if why, ok := in.Failed(c.ID); ok {
			p.Kill = append(p.Kill, Kill{c, fmt.Sprintf("Container %s failed %s probe, will be restarted", c.Name, why)})
		} else if c.Hash != "" && c.Hash != spec.Hash(want) {
			p.Kill = append(p.Kill, Kill{c, fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)})
		}
	}
}

// ran reports whether the ephemeral container has run, even if the runtime no longer has it.
func (in *Input) ran(name string) bool {
	for i := range in.Pod.Status.EphemeralContainerStatuses {
		if s := &in.Pod.Status.EphemeralContainerStatuses[i]; s.Name == name {
			return status.Ran(s)
		}
	}
	return false
}

// initialized adds the next init container and reports whether the regular containers may start. Once a regular
// container has run in this sandbox, the init containers are finished; sidecars are still restarted.
func (in *Input) initialized(p *Plan, sandbox string) bool {
	done := slices.ContainsFunc(in.Pod.Spec.Containers, func(c corev1.Container) bool {
		last := in.Observed.Latest(c.Name)
		return last != nil && last.SandboxID == sandbox && last.State != status.Created
	})
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		last := in.Observed.Latest(c.Name)
		if last != nil && last.SandboxID != sandbox {
			last = nil
		}
		switch {
		case status.Sidecar(c):
			if last == nil || last.State == status.Exited || last.State == status.Created {
				p.Start = append(p.Start, c)
				if !done {
					return false
				}
			} else if !done && !in.Started(last.ID) {
				return false
			}
		case done:
		case last == nil || last.State == status.Created:
			p.Start = append(p.Start, c)
			return false
		case last.State != status.Exited:
			return false
		case last.ExitCode != 0:
			if status.Restarts(in.Pod, c, last.ExitCode) {
				p.Start = append(p.Start, c)
			}
			return false
		}
	}
	return true
}
