package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/logs"
	"monopod/agent/spec"
	"monopod/agent/status"
)

// Logs writes a container's log; see client.Node.
func (a *Agent) Logs(ctx context.Context, pod *corev1.Pod, opts *corev1.PodLogOptions, w io.Writer) error {
	pod = a.mirrors.Behind(pod)
	c, err := a.logged(ctx, pod, opts)
	if err != nil {
		return err
	}
	path := a.logs.Path(pod, c)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.State == status.Exited {
		a.flushed(ctx, c)
	}
	var dead <-chan struct{}
	if opts.Follow {
		dead = a.dead(ctx, pod, c.ID)
	}
	err = logs.Read(ctx, path, logs.OptionsOf(opts, a.Clock.Now(), dead), w)
	if errors.Is(err, os.ErrNotExist) {
		return apierrors.NewNotFound(corev1.Resource("pods/log"), pod.Name)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// logged is the instance whose log is asked for.
func (a *Agent) logged(ctx context.Context, pod *corev1.Pod, opts *corev1.PodLogOptions) (*status.Container, error) {
	w, err := a.running(ctx, pod, opts.Container)
	if err != nil {
		return nil, err
	}
	var all []*status.Container
	if seen := w.snapshot.Load(); seen != nil {
		all = seen.Named(opts.Container)
	}
	switch {
	case opts.Previous && len(all) < 2 && (len(all) == 0 || all[0].State != status.Exited || !a.waitsToRestart(pod, opts.Container)):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", opts.Container, pod.Name))
	case opts.Previous && len(all) >= 2 && all[0].State != status.Exited:
		return all[1], nil
	case len(all) == 0 || all[0].State == status.Created:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", opts.Container, pod.Name, waitingReason(pod, opts.Container)))
	}
	return all[0], nil
}

// waitsToRestart says whether a container's last instance is already the previous
// one to users, as in CrashLoopBackOff.
func (a *Agent) waitsToRestart(pod *corev1.Pod, name string) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == name {
			return s.State.Waiting != nil
		}
	}
	return false
}

func waitingReason(pod *corev1.Pod, name string) string {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, s := range list {
			if s.Name == name && s.State.Waiting != nil {
				if s.State.Waiting.Message != "" && s.State.Waiting.Reason != "CrashLoopBackOff" {
					return s.State.Waiting.Message
				}
				return s.State.Waiting.Reason
			}
		}
	}
	return "ContainerCreating"
}

// dead closes when the container does not run, as the pod's worker sees it.
func (a *Agent) dead(ctx context.Context, pod *corev1.Pod, id string) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		for {
			w := a.worker(pod.UID)
			if w == nil {
				return
			}
			changed := w.changes()
			seen := w.snapshot.Load()
			if seen == nil {
				return
			}
			if c := seen.ByID(id); c == nil || c.State == status.Exited {
				if c != nil {
					a.flushed(ctx, c)
				}
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-w.done:
				return
			case <-changed:
			}
		}
	}()
	return out
}

// A container's end is known before the runtime has written the last of its
// log, which it has once its own status says so; measured 20 to 70 ms.
const (
	flushPause = 5 * time.Millisecond
	flushLimit = time.Second
)

// flushed waits until the log of a container that ended is whole.
func (a *Agent) flushed(ctx context.Context, c *status.Container) {
	for a.Clock.Since(c.FinishedAt) < flushLimit {
		s, err := a.Runtime.ContainerStatus(ctx, c.ID)
		if err != nil || s.State == cri.ContainerState_CONTAINER_EXITED || !a.sleep(ctx, flushPause) {
			return
		}
	}
}

// findTime bounds find.
const findTime = 10 * time.Second

// find is the pod's worker; nil: there is none. Right after a start pods run that
// are yet to be found: it waits until they have been.
func (a *Agent) find(ctx context.Context, pod *corev1.Pod) *worker {
	if !slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.ContainerID != "" }) {
		return a.worker(pod.UID)
	}
	limit := a.Clock.NewTimer(findTime)
	defer limit.Stop()
	wait := (<-chan struct{})(a.swept)
	for {
		select {
		case <-wait:
		case <-ctx.Done():
			return a.worker(pod.UID)
		case <-limit.C():
			return a.worker(pod.UID)
		}
		w := a.worker(pod.UID)
		if w == nil {
			return nil
		}
		changes := w.changes()
		if w.snapshot.Load() != nil {
			return w
		}
		wait = changes
	}
}

// running finds the pod's worker, and that the pod has such a container.
func (a *Agent) running(ctx context.Context, pod *corev1.Pod, container string) (*worker, error) {
	w := a.find(ctx, pod)
	if w == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: ContainerCreating", container, pod.Name))
	}
	if spec.Find(pod, container) != nil {
		return w, nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", container, pod.Name))
}

// alive is the id of a container that can be talked to.
func (a *Agent) alive(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	w, err := a.running(ctx, pod, container)
	if err != nil {
		return "", err
	}
	if seen := w.snapshot.Load(); seen != nil {
		if c := seen.Latest(container); c != nil && c.State == status.Running {
			return c.ID, nil
		}
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container not found (%q)", container))
}

// Exec prepares a command in a container; see client.Node.
func (a *Agent) Exec(ctx context.Context, pod *corev1.Pod, opts *corev1.PodExecOptions) (*url.URL, error) {
	pod = a.mirrors.Behind(pod)
	id, err := a.alive(ctx, pod, opts.Container)
	if err != nil {
		return nil, err
	}
	return parse(a.Runtime.Exec(ctx, &cri.ExecRequest{
		ContainerId: id, Cmd: opts.Command, Tty: opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr && !opts.TTY,
	}))
}

// Attach prepares a connection to a container's own streams; see client.Node.
func (a *Agent) Attach(ctx context.Context, pod *corev1.Pod, opts *corev1.PodAttachOptions) (*url.URL, error) {
	pod = a.mirrors.Behind(pod)
	id, err := a.alive(ctx, pod, opts.Container)
	if err != nil {
		return nil, err
	}
	return parse(a.Runtime.Attach(ctx, &cri.AttachRequest{
		ContainerId: id, Tty: opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr && !opts.TTY,
	}))
}

// PortForward prepares connections to a pod's ports; see client.Node.
func (a *Agent) PortForward(ctx context.Context, pod *corev1.Pod, opts *corev1.PodPortForwardOptions) (*url.URL, error) {
	pod = a.mirrors.Behind(pod)
	w := a.find(ctx, pod)
	if w == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	seen := w.snapshot.Load()
	if seen == nil || seen.Sandbox() == nil || !seen.Sandbox().Ready {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %q does not run", pod.Name))
	}
	return parse(a.Runtime.PortForward(ctx, &cri.PortForwardRequest{PodSandboxId: seen.Sandbox().ID, Port: opts.Ports}))
}

func parse(raw string, err error) (*url.URL, error) {
	if err != nil {
		return nil, err
	}
	return url.Parse(raw)
}
