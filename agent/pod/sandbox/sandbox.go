// Package sandbox creates and removes the sandbox, the cgroup and the user namespace of one pod.
package sandbox

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/pace"
	"monopod/agent/podapi/security"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/userns"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Runtime is the part of the container runtime that this package uses.
type Runtime interface {
	Status(ctx context.Context) (*cri.StatusResponse, error)
	RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (id string, err error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
}

// Cgroups manages the cgroups of the node's pods.
type Cgroups interface {
	// Create creates the cgroup of a new pod, with its limits.
	Create(pod *corev1.Pod)
	// Update sets the limits of an existing cgroup.
	Update(pod *corev1.Pod)
	// Adopt adds the requests of a pod that an earlier agent admitted to its QoS class.
	Adopt(pod *corev1.Pod)
	// Remove removes the cgroup. It fails while the cgroup contains a process.
	Remove(pod *corev1.Pod) error
	// Parent returns the cgroup's name for the runtime.
	Parent(pod *corev1.Pod) string
}

// Users assigns user IDs of the host to pods.
type Users interface {
	Get(pod types.UID) (*cri.UserNamespace, error)
}

// Node contains the dependencies that the sandboxes of all pods of a node share.
type Node struct {
	Client   client.Client
	Runtime  Runtime
	Clock    clock.Clock
	Cgroups  Cgroups // nil: the runtime's default
	Users    Users
	Machine  security.Host
	Instance string // of the agent
	Cluster  spec.Cluster
	Resolv   spec.Resolvers
	// Logs returns the folder of a pod's logs.
	Logs func(*corev1.Pod) string
}

// Sandbox manages the sandboxes of one pod. One of them runs at a time.
type Sandbox struct {
	node     *Node
	pod      *identity.Pod
	observer *observe.Observer
	pace     *pace.Pace
	users    *cri.UserNamespace // nil: not known yet
	removed  bool               // the cgroup is removed
}

// New returns the Sandbox of a pod.
func New(node *Node, pod *identity.Pod, o *observe.Observer, p *pace.Pace) *Sandbox {
	return &Sandbox{node: node, pod: pod, observer: o, pace: p}
}

// CheckSupport returns why the pod must fail: it requests a feature that the runtime does not support. It calls the
// runtime only for pods that request optional features.
func (s *Sandbox) CheckSupport(ctx context.Context, pod *corev1.Pod) (*status.Failure, error) {
	if !security.NeedsFeatures(pod) {
		return nil, nil
	}
	handler, err := s.Handler(ctx, pod)
	if err != nil {
		return nil, nil // reported when the sandbox is created
	}
	resp, err := s.node.Runtime.Status(ctx)
	if err != nil {
		return nil, err
	}
	can := security.Abilities{Handlers: resp.RuntimeHandlers, Features: resp.Features}
	return can.Check(pod, handler), nil
}

// Handler returns the runtime handler of the pod's RuntimeClass.
func (s *Sandbox) Handler(ctx context.Context, pod *corev1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	class, err := client.Get[*nodev1.RuntimeClass](ctx, s.node.Client, "", *name)
	if err != nil {
		return "", err
	}
	return class.Handler, nil
}

// Create creates the cgroup and the sandbox.
func (s *Sandbox) Create(ctx context.Context, pod *corev1.Pod, attempt uint32) error {
	if s.node.Cgroups != nil {
		s.node.Cgroups.Create(pod)
	}
	if err := os.MkdirAll(s.node.Logs(pod), 0o755); err != nil {
		return err
	}
	id, err := s.run(ctx, pod, attempt)
	switch {
	case s.pace.Undecided(err):
		return fmt.Errorf("create sandbox: %w", err)
	case err != nil:
		// The status of a pod with a RuntimeClass shows why it has no sandbox: the class is the most likely cause.
		if name := pod.Spec.RuntimeClassName; name != nil && *name != "" {
			message := fmt.Sprintf("Failed to create pod sandbox: %v", err)
			s.pace.WaitAll(pod, status.Waiting{Reason: pace.Creating(pod), Message: message}, nil)
		}
		s.pod.Warn("FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return fmt.Errorf("create sandbox: %w", err)
	}
	return s.observer.SandboxCreated(ctx, id, attempt)
}

// run makes the runtime create the sandbox. Changes of the pod do not interrupt it.
func (s *Sandbox) run(ctx context.Context, pod *corev1.Pod, attempt uint32) (id string, err error) {
	if err := spec.CheckHostname(pod, s.node.Cluster.Domain); err != nil {
		return "", err
	}
	handler, err := s.Handler(ctx, pod)
	if err != nil {
		return "", err
	}
	if _, err := s.UserNamespace(pod); err != nil {
		return "", err
	}
	if security.SetsSELinux(pod) && !s.node.Machine.SELinux() {
		s.pod.Warn("SELinuxNotEnabled", "seLinuxOptions have no effect: SELinux is not enabled on the host")
	}
	return s.node.Runtime.RunPodSandbox(s.pod.Life, s.config(pod, attempt), handler)
}

// UserNamespace returns the user namespace of the pod, and assigns user IDs to a pod that needs its own.
func (s *Sandbox) UserNamespace(pod *corev1.Pod) (_ *cri.UserNamespace, err error) {
	if s.users == nil {
		s.users = userns.Shared()
		if security.NeedsUserNamespace(pod) {
			s.users, err = s.node.Users.Get(s.pod.UID)
		}
	}
	return s.users, err
}

func (s *Sandbox) config(pod *corev1.Pod, attempt uint32) *cri.PodSandboxConfig {
	o := spec.SandboxOptions{
		Users: s.users, Attempt: attempt, Instance: s.node.Instance, LogDir: s.node.Logs(pod),
		Domain: s.node.Cluster.Domain, DNS: spec.DNS(pod, s.node.Resolv.Of(pod), s.node.Cluster),
	}
	if s.node.Cgroups != nil {
		o.CgroupParent = s.node.Cgroups.Parent(pod)
	}
	return spec.Sandbox(pod, o)
}

// Config returns the config with which the running sandbox was created.
func (s *Sandbox) Config(pod *corev1.Pod) *cri.PodSandboxConfig {
	return s.config(pod, s.observer.Observed().Sandbox().Attempt)
}

// Stop stops the newest sandbox, of which no container runs, and releases the pod's address.
func (s *Sandbox) Stop(ctx context.Context) error {
	return s.node.Runtime.StopPodSandbox(ctx, s.observer.Observed().Sandbox().ID)
}

// StopAll stops all sandboxes concurrently in a group. Changes of the pod do not interrupt it. The caller calls stopped
// after the group has ended, to record the stopped sandboxes.
func (s *Sandbox) StopAll(g *guard.Group) (stopped func()) {
	seen := s.observer.Observed()
	done := make([]string, len(seen.Sandboxes))
	for i := range seen.Sandboxes {
		id := seen.Sandboxes[i].ID
		g.Do(func() error {
			if err := s.node.Runtime.StopPodSandbox(s.pod.Life, id); err != nil {
				return fmt.Errorf("stop sandbox: %w", err)
			}
			done[i] = id
			return nil
		})
	}
	return func() {
		for _, id := range done {
			s.observer.SandboxStopped(id)
		}
	}
}

// RemoveAll removes all sandboxes with their containers in a group.
func (s *Sandbox) RemoveAll(g *guard.Group) {
	for _, sandbox := range s.observer.Observed().Sandboxes {
		g.Do(func() error {
			if err := s.node.Runtime.RemovePodSandbox(s.pod.Life, sandbox.ID); err != nil && !identity.NotFound(err) {
				return fmt.Errorf("remove sandbox: %w", err)
			}
			return nil
		})
	}
}

// Limit sets the limits of the pod's cgroup to those in pod.
func (s *Sandbox) Limit(pod *corev1.Pod) {
	if s.node.Cgroups != nil {
		s.node.Cgroups.Update(pod)
	}
}

// AdoptCgroup takes over the cgroup that an earlier agent created.
func (s *Sandbox) AdoptCgroup(pod *corev1.Pod) {
	if s.node.Cgroups != nil && len(s.observer.Observed().Sandboxes) > 0 {
		s.node.Cgroups.Adopt(pod)
	}
}

// Processes leave a cgroup a moment after the runtime reports their death.
const (
	cgroupTries = 10
	cgroupPause = 5 * time.Millisecond
)

// RemoveCgroup removes the cgroup, unless it is already removed.
func (s *Sandbox) RemoveCgroup(pod *corev1.Pod) error {
	if s.node.Cgroups == nil || s.removed {
		return nil
	}
	var err error
	for range cgroupTries {
		if err = s.node.Cgroups.Remove(pod); err == nil {
			s.removed = true
			return nil
		}
		if !backoff.Sleep(s.pod.Life, s.node.Clock, cgroupPause) {
			return s.pod.Life.Err()
		}
	}
	return fmt.Errorf("remove cgroup: %w", err)
}
