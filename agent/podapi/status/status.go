package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Waiting is the reason why a container that should run does not.
type Waiting struct{ Reason, Message string }

// Failure is the reason why a pod fails regardless of its containers: it is rejected, evicted or past its deadline.
type Failure struct {
	Reason, Message string
	Disruption      string // reason of the condition DisruptionTarget; empty: none
}

// Resize is a pending change of resources, as a condition.
type Resize struct {
	Type            corev1.PodConditionType // PodResizePending or PodResizeInProgress
	Reason, Message string
}

// Input is everything that a status depends on.
type Input struct {
	Pod      *corev1.Pod // with the last stored status
	Observed *Observed
	Waiting  map[string]Waiting   // by container name
	Ready    func(id string) bool // readiness, of a running container
	Started  func(id string) bool // startup, of a running container
	HostIPs  []string
	// Terminal means that no container runs or will run. Containers whose end was not observed count as terminated.
	Terminal bool
	Failure  *Failure
	Resize   *Resize // nil: the containers have the requested resources
	// PodLevelResources are the actual resources of a pod with spec.resources; nil: unknown.
	PodLevelResources *corev1.ResourceRequirements
	Now               time.Time
}

// Of computes the whole status. Conditions of other components are kept, and a condition's transition time
// changes only with its status.
func Of(in Input) corev1.PodStatus {
	old := &in.Pod.Status
	out := *old.DeepCopy()
	out.ObservedGeneration = in.Pod.Generation
	out.QOSClass = QOS(in.Pod)
	in.addresses(&out)
	if out.StartTime == nil {
		out.StartTime = new(metav1.NewTime(in.Now.Truncate(time.Second)))
	}
	out.InitContainerStatuses = in.containers(in.Pod.Spec.InitContainers, old.InitContainerStatuses, false)
	out.ContainerStatuses = in.containers(in.Pod.Spec.Containers, old.ContainerStatuses, true)
	out.EphemeralContainerStatuses = in.ephemeral(old.EphemeralContainerStatuses)
	if in.Terminal {
		in.conclude(&out)
	}
	clipMessages(in.Pod, &out)
	out.Phase = in.phase(&out)
	out.Reason, out.Message = "", ""
	if in.Failure != nil {
		out.Phase, out.Reason, out.Message = corev1.PodFailed, in.Failure.Reason, in.Failure.Message
	} else if Finished(old.Phase) {
		out.Phase, out.Reason, out.Message = old.Phase, old.Reason, old.Message
	}
	out.Conditions = in.conditions(&out)
	out.Resources, out.AllocatedResources = in.podResources(out.Phase), Requests(in.Pod)
	return out
}

// Finished reports whether a phase is final.
func Finished(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

func (in *Input) addresses(out *corev1.PodStatus) {
	out.HostIP, out.HostIPs = "", nil
	for i, ip := range in.HostIPs {
		if i == 0 {
			out.HostIP = ip
		}
		out.HostIPs = append(out.HostIPs, corev1.HostIP{IP: ip})
	}
	var ips []string
	switch sandbox := in.Observed.Sandbox(); {
	case sandbox == nil:
	case in.Pod.Spec.HostNetwork:
		ips = in.HostIPs
	default:
		ips = PodIPs(sandbox.IPs, in.HostIPs)
	}
	if len(ips) == 0 && (in.Terminal || in.Observed.Sandbox() != nil && !in.Observed.Sandbox().Ready) {
		return // a pod's address is kept after its sandbox
	}
	out.PodIP, out.PodIPs = "", nil
	for i, ip := range ips {
		if i == 0 {
			out.PodIP = ip
		}
		out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: ip})
	}
}

// PodIPs returns the first address of the family of the node's first address, then the first one of the other family,
// as kubelet's sortPodIPs does: a runtime may report more, in any order.
func PodIPs(reported, host []string) []string {
	var first, other []string
	is6 := len(host) > 0 && strings.Contains(host[0], ":")
	for _, ip := range reported {
		if strings.Contains(ip, ":") == is6 {
			first = append(first, ip)
		} else {
			other = append(other, ip)
		}
	}
	return slices.Concat(first[:min(1, len(first))], other[:min(1, len(other))])
}

// containers returns the statuses in the order of the spec.
func (in *Input) containers(specs []corev1.Container, old []corev1.ContainerStatus,
	regular bool) []corev1.ContainerStatus {
	if in.Failure != nil && len(in.Observed.Containers) == 0 && len(old) == 0 {
		return nil // rejected before anything was started
	}
	var out []corev1.ContainerStatus
	for i := range specs {
		was := find(old, specs[i].Name)
		out = append(out, in.container(&specs[i], was, regular))
	}
	return out
}

// ephemeral returns the statuses of ephemeral containers, which are never ready and do not affect the phase.
func (in *Input) ephemeral(old []corev1.ContainerStatus) []corev1.ContainerStatus {
	var specs []corev1.Container
	for i := range in.Pod.Spec.EphemeralContainers {
		specs = append(specs, corev1.Container(in.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	out := in.containers(specs, old, false)
	if in.Terminal {
		concludeAll(out)
	}
	for i := range out {
		out[i].Ready, out[i].Started = false, nil
	}
	return out
}

func find(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	i := slices.IndexFunc(list, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func (in *Input) container(spec *corev1.Container, was *corev1.ContainerStatus, regular bool) corev1.ContainerStatus {
	all := in.Observed.Named(spec.Name)
	if len(all) == 0 {
		return in.absent(spec, was, regular)
	}
	latest := all[0]
	out := corev1.ContainerStatus{
		Name: spec.Name, Image: cmp.Or(latest.Image, spec.Image), ImageID: latest.ImageID,
		ContainerID:  containerID(latest.ID),
		RestartCount: int32(latest.Attempt),
		State:        stateOf(latest),
		Started:      new(false),
		User:         latest.User,
		VolumeMounts: mounts(spec, latest),
	}
	if was != nil && len(all) == 1 {
		out.LastTerminationState = was.LastTerminationState
		if was.ContainerID != out.ContainerID && was.State.Terminated != nil {
			out.LastTerminationState = was.State // of an instance that is removed
		}
	}
	for _, c := range all[1:] {
		if c.State == Exited {
			out.LastTerminationState = stateOf(c)
			break
		}
	}
	in.runState(&out, latest, spec, regular)
	return out
}

// runState sets the fields that depend on whether the container runs, ended permanently, or waits to restart.
func (in *Input) runState(out *corev1.ContainerStatus, c *Container, spec *corev1.Container, regular bool) {
	switch c.State {
	case Running:
		if c.Resources != nil {
			out.Resources, out.AllocatedResources = c.Resources, spec.Resources.Requests
		}
		out.Started = new(in.Started == nil || in.Started(c.ID))
		out.Ready = *out.Started && (in.Ready == nil || in.Ready(c.ID))
		if !regular && !Sidecar(spec) {
			out.Ready = false
		}
	case Exited:
		out.Ready = !regular && !Sidecar(spec) && c.ExitCode == 0
		if w, ok := in.Waiting[spec.Name]; ok && !in.Terminal {
			out.LastTerminationState = out.State
			out.State = waiting(w)
		}
	case Created:
		if w, ok := in.Waiting[spec.Name]; ok {
			out.State = waiting(w)
		}
	case Unknown:
	}
	if in.Terminal {
		conclude(out)
	}
}

// absent returns the status of a container that the runtime does not have.
func (in *Input) absent(spec *corev1.Container, was *corev1.ContainerStatus, regular bool) corev1.ContainerStatus {
	out := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, Started: new(false)}
	why := Waiting{Reason: "ContainerCreating"}
	if len(in.Pod.Spec.InitContainers) > 0 {
		why.Reason = "PodInitializing"
	}
	if w, ok := in.Waiting[spec.Name]; ok {
		why = w
	}
	out.State = waiting(why)
	if was == nil {
		return out
	}
	out.RestartCount, out.LastTerminationState = was.RestartCount, was.LastTerminationState
	out.ContainerID, out.ImageID, out.VolumeMounts = was.ContainerID, was.ImageID, was.VolumeMounts
	if was.ImageID != "" { // the image of the instance that is gone
		out.Image = was.Image
	}
	ended := was.State
	if was.State.Running != nil {
		ended = corev1.ContainerState{Terminated: lost(was.ContainerID, lostMessage)}
		ended.Terminated.StartedAt = was.State.Running.StartedAt
	}
	switch {
	case ended.Terminated == nil:
	case in.Terminal || !regular && !Sidecar(spec) && ended.Terminated.ExitCode == 0:
		out.State = ended
		out.Ready = !regular && ended.Terminated.ExitCode == 0
	default:
		out.LastTerminationState = ended
	}
	return out
}

func stateOf(c *Container) corev1.ContainerState {
	switch c.State {
	case Running:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(c.StartedAt)}}
	case Exited:
		startedAt := c.StartedAt
		if startedAt.IsZero() { // it never ran, but clients subtract the two times
			startedAt = c.FinishedAt
		}
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
			StartedAt: seconds(startedAt), FinishedAt: seconds(c.FinishedAt),
			ContainerID: containerID(c.ID),
		}}
	case Unknown:
		return corev1.ContainerState{Terminated: lost(containerID(c.ID), lostMessage)}
	}
	return waiting(Waiting{Reason: "ContainerCreating"})
}

// seconds truncates a time to the precision of the API's JSON, so that a status is equal after a round trip.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

func waiting(w Waiting) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}}
}

func containerID(id string) string { return "containerd://" + id }

// Sidecar reports whether an init container keeps running while the others run.
func Sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
