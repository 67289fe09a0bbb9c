// Package stream serves the logs of containers, and returns the URLs at which the runtime serves exec, attach and
// port-forward.
package stream

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/logs"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Runtime is the part of the agent's runtime that serves streams.
type Runtime interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32,
		err error)
	ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error)
	Exec(ctx context.Context, req *cri.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *cri.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *cri.PortForwardRequest) (url string, err error)
	Execs(ctx context.Context, id string) ([]runtime.Process, error)
}

// Pod is a pod on the node.
type Pod interface {
	// Observed returns the observed state of the pod, which must not be modified; nil: not observed yet.
	Observed() *status.Observed
	// Changes returns a channel that is closed when the observed state changes.
	Changes() <-chan struct{}
	// Done returns a channel that is closed when nothing is left of the pod.
	Done() <-chan struct{}
}

// Deps are the dependencies of Streams. All are required.
type Deps struct {
	Runtime Runtime
	Clock   clock.WithTicker
	Dir     *logs.Dir
	// Pod returns a pod of the node, if it exists.
	Pod func(types.UID) (Pod, bool)
	// PodsListed is closed when the node has listed its pods.
	PodsListed <-chan struct{}
	// StaticPod returns the static pod of a mirror pod, and any other pod as it is.
	StaticPod func(*corev1.Pod) *corev1.Pod
	Guard     *guard.Guard // nil: panics are only recovered
}

// Streams serves streams of the node's containers.
type Streams struct {
	deps      Deps
	terminals chan struct{} // full while the process of a new terminal is not identified: two could be confused
}

var _ client.Node = (*Streams)(nil)

// New returns the Streams of a node.
func New(deps Deps) *Streams { return &Streams{deps, make(chan struct{}, 1)} }

// findTime limits the wait in find.
const findTime = 10 * time.Second

// find returns the pod of the node; false if there is none. Right after the start of the agent it waits until the
// running pods are observed.
func (s *Streams) find(ctx context.Context, pod *corev1.Pod) (Pod, bool) {
	if !slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(c corev1.ContainerStatus) bool { return c.ContainerID != "" }) {
		return s.deps.Pod(pod.UID)
	}
	limit := s.deps.Clock.NewTimer(findTime)
	defer limit.Stop()
	wait := s.deps.PodsListed
	for {
		select {
		case <-wait:
		case <-ctx.Done():
			return s.deps.Pod(pod.UID)
		case <-limit.C():
			return s.deps.Pod(pod.UID)
		}
		p, ok := s.deps.Pod(pod.UID)
		if !ok {
			return nil, false
		}
		changes := p.Changes()
		if p.Observed() != nil {
			return p, true
		}
		wait = changes
	}
}

// podWith returns the pod, or an error if the pod does not have the container.
func (s *Streams) podWith(ctx context.Context, pod *corev1.Pod, container string) (Pod, error) {
	p, ok := s.find(ctx, pod)
	if !ok {
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("container %q in pod %q is waiting to start: ContainerCreating", container, pod.Name))
	}
	if spec.Find(pod, container) != nil {
		return p, nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", container, pod.Name))
}

// runningContainer returns the ID of the container, or an error if it does not run.
func (s *Streams) runningContainer(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	p, err := s.podWith(ctx, pod, container)
	if err != nil {
		return "", err
	}
	if seen := p.Observed(); seen != nil {
		if c := seen.Latest(container); c != nil && c.State == status.Running {
			return c.ID, nil
		}
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container not found (%q)", container))
}

// Exec prepares a command in a container; see client.Node. The process of a terminal ends with ctx.
func (s *Streams) Exec(ctx context.Context, pod *corev1.Pod, opts *corev1.PodExecOptions) (*url.URL, error) {
	pod = s.deps.StaticPod(pod)
	id, err := s.runningContainer(ctx, pod, opts.Container)
	if err != nil {
		return nil, err
	}
	start := func() (*url.URL, error) {
		return parse(s.deps.Runtime.Exec(ctx, &cri.ExecRequest{
			ContainerId: id, Cmd: opts.Command, Tty: opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout,
			Stderr: opts.Stderr && !opts.TTY,
		}))
	}
	if !opts.TTY {
		return start()
	}
	return s.terminal(ctx, id, start)
}

// RunInContainer runs a command until it ends and returns its output, standard output first. An exit code other
// than 0 is an error.
func (s *Streams) RunInContainer(ctx context.Context, pod *corev1.Pod, container string, cmd []string) ([]byte, error) {
	pod = s.deps.StaticPod(pod)
	id, err := s.runningContainer(ctx, pod, container)
	if err != nil {
		return nil, err
	}
	stdout, stderr, code, err := s.deps.Runtime.ExecSync(ctx, id, cmd, 0)
	out := slices.Concat(stdout, stderr)
	if err == nil && code != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(cmd, " "), code, out)
	}
	return out, err
}

// Attach prepares a connection to the streams of a container's main process; see client.Node.
func (s *Streams) Attach(ctx context.Context, pod *corev1.Pod, opts *corev1.PodAttachOptions) (*url.URL, error) {
	pod = s.deps.StaticPod(pod)
	id, err := s.runningContainer(ctx, pod, opts.Container)
	if err != nil {
		return nil, err
	}
	return parse(s.deps.Runtime.Attach(ctx, &cri.AttachRequest{
		ContainerId: id, Tty: opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr && !opts.TTY,
	}))
}

// PortForward prepares connections to a pod's ports; see client.Node.
func (s *Streams) PortForward(ctx context.Context, pod *corev1.Pod,
	opts *corev1.PodPortForwardOptions) (*url.URL, error) {
	pod = s.deps.StaticPod(pod)
	p, ok := s.find(ctx, pod)
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	var sandbox *status.Sandbox
	if seen := p.Observed(); seen != nil {
		sandbox = seen.Sandbox()
	}
	if sandbox == nil || !sandbox.Ready {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %q does not run", pod.Name))
	}
	return parse(s.deps.Runtime.PortForward(ctx, &cri.PortForwardRequest{PodSandboxId: sandbox.ID, Port: opts.Ports}))
}

func parse(raw string, err error) (*url.URL, error) {
	if err != nil {
		return nil, err
	}
	return url.Parse(raw)
}
