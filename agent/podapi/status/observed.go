// Package status computes the API's status of a pod from the runtime's state. Everything in it is pure.
//
//   - Observed: the pod's sandboxes and containers in the runtime.
//   - Input: Observed and everything else that a status depends on.
//   - Of: computes a corev1.PodStatus from Input.
package status

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// State is the state of one container instance.
type State int

// The states of a container instance.
const (
	Created State = iota // created, not started
	Running
	Exited
	Unknown // unknown to the runtime
)

// Container is one instance of a container. Each restart creates a new instance with the same name.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	Attempt   uint32
	Hash      string // hash of the spec it was created from
	Image     string
	ImageID   string
	State     State
	OOM       bool // the OOM killer ended a process of the container

	CreatedAt, StartedAt, FinishedAt time.Time

	ExitCode int32
	Reason   string
	Message  string

	MessagePath   string // of the termination message on the host
	MessagePolicy string // terminationMessagePolicy

	// Resources are its current resources; nil: unknown.
	Resources *corev1.ResourceRequirements

	// User is the user of its first process, if the runtime reports it.
	User *corev1.ContainerUser

	// RecursiveReadOnly are the paths of its recursively read-only mounts.
	RecursiveReadOnly []string

	// ImageVolumes are the IDs of the images of its image volumes, by mount path.
	ImageVolumes map[string]string
}

// Sandbox is one pod sandbox.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	IPs       []string
}

// Observed contains the sandboxes and containers of one pod in the runtime.
type Observed struct {
	Sandboxes  []Sandbox
	Containers []Container
}

// Sandbox returns the newest sandbox; nil if there is none.
func (o *Observed) Sandbox() *Sandbox {
	var newest *Sandbox
	for i := range o.Sandboxes {
		if s := &o.Sandboxes[i]; newest == nil || s.Attempt > newest.Attempt ||
			s.Attempt == newest.Attempt && s.CreatedAt.After(newest.CreatedAt) {
			newest = s
		}
	}
	return newest
}

// Named returns the instances of a container, newest first.
func (o *Observed) Named(name string) []*Container {
	var out []*Container
	for i := range o.Containers {
		if o.Containers[i].Name == name {
			out = append(out, &o.Containers[i])
		}
	}
	slices.SortFunc(out, func(a, b *Container) int {
		if a.Attempt != b.Attempt {
			return int(b.Attempt) - int(a.Attempt)
		}
		return b.CreatedAt.Compare(a.CreatedAt)
	})
	return out
}

// Latest returns the newest instance of a container; nil if there is none.
func (o *Observed) Latest(name string) *Container {
	if all := o.Named(name); len(all) > 0 {
		return all[0]
	}
	return nil
}

// ByID returns an instance; nil if it does not exist.
func (o *Observed) ByID(id string) *Container {
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			return &o.Containers[i]
		}
	}
	return nil
}

// Forget removes a container or sandbox that no longer exists.
func (o *Observed) Forget(id string) {
	o.Containers = slices.DeleteFunc(o.Containers, func(c Container) bool { return c.ID == id })
	o.Sandboxes = slices.DeleteFunc(o.Sandboxes, func(s Sandbox) bool { return s.ID == id })
}

// Alive returns the instances that run, or whose state is unknown.
func (o *Observed) Alive() []*Container {
	var out []*Container
	for i := range o.Containers {
		if s := o.Containers[i].State; s == Running || s == Unknown {
			out = append(out, &o.Containers[i])
		}
	}
	return out
}

// Clone copies the state for a reader on another goroutine.
func (o *Observed) Clone() Observed {
	return Observed{Sandboxes: slices.Clone(o.Sandboxes), Containers: slices.Clone(o.Containers)}
}

// Ran reports whether a stored status contains an instance that was started.
func Ran(s *corev1.ContainerStatus) bool {
	last := s.LastTerminationState.Terminated
	return s.ContainerID != "" && (s.State.Waiting == nil || last != nil && last.ContainerID == s.ContainerID)
}

// Exit records an exit from an event, before the runtime's status reports it.
func (c *Container) Exit(code int32, at time.Time) {
	if c.State == Exited {
		return
	}
	c.State, c.ExitCode, c.FinishedAt = Exited, code, at
	c.Reason = c.exitReason()
}

// exitReason derives the reason from the exit code and the OOM event. A container with exit code 0 has completed, even
// if the OOM killer ended one of its processes.
func (c *Container) exitReason() string {
	switch {
	case c.ExitCode == 0:
		return "Completed"
	case c.OOM:
		return "OOMKilled"
	}
	return "Error"
}

// FromCRI converts the runtime's status of a container.
func FromCRI(s *cri.ContainerStatus, sandboxID string) Container {
	c := Container{
		ID: s.Id, SandboxID: sandboxID,
		Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(),
		Image: s.GetImage().GetImage(), ImageID: cmp.Or(s.ImageRef, s.ImageId),
		CreatedAt: nanos(s.CreatedAt), StartedAt: nanos(s.StartedAt), FinishedAt: nanos(s.FinishedAt),
		ExitCode: s.ExitCode, Message: s.Message, OOM: s.Reason == "OOMKilled", User: user(s.GetUser().GetLinux()),
	}
	for _, m := range s.Mounts {
		if m.RecursiveReadOnly {
			c.RecursiveReadOnly = append(c.RecursiveReadOnly, m.ContainerPath)
		}
		if id := m.GetImage().GetImage(); id != "" {
			if c.ImageVolumes == nil {
				c.ImageVolumes = map[string]string{}
			}
			c.ImageVolumes[m.ContainerPath] = id
		}
	}
	switch s.State {
	case cri.ContainerState_CONTAINER_RUNNING:
		c.State = Running
	case cri.ContainerState_CONTAINER_EXITED:
		c.State = Exited
		c.Reason = s.Reason
		if c.Reason == "" || c.OOM {
			c.Reason = c.exitReason()
		}
	case cri.ContainerState_CONTAINER_UNKNOWN:
		c.State = Unknown
	}
	return c
}

func user(u *cri.LinuxContainerUser) *corev1.ContainerUser {
	if u == nil {
		return nil
	}
	return &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: u.Uid, GID: u.Gid,
		SupplementalGroups: u.SupplementalGroups}}
}

func nanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}
