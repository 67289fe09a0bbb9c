package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/logs"
	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/backoff"
)

// Logs writes a container's log; see client.Node.
func (s *Streams) Logs(ctx context.Context, pod *corev1.Pod, opts *corev1.PodLogOptions, w io.Writer) error {
	pod = s.deps.StaticPod(pod)
	c, err := s.loggedContainer(ctx, pod, opts)
	if err != nil {
		return err
	}
	path := s.deps.Dir.Path(pod, c)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.State == status.Exited {
		s.Flushed(ctx, c)
	}
	var dead <-chan struct{}
	if opts.Follow {
		dead = s.awaitExit(ctx, pod, c.ID)
	}
	err = logs.Read(ctx, path, logs.OptionsOf(opts, s.deps.Clock.Now(), dead), w)
	if errors.Is(err, os.ErrNotExist) {
		return apierrors.NewNotFound(corev1.Resource("pods/log"), pod.Name)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// loggedContainer returns the instance whose log is requested.
func (s *Streams) loggedContainer(ctx context.Context, pod *corev1.Pod,
	opts *corev1.PodLogOptions) (*status.Container, error) {
	p, err := s.podWith(ctx, pod, opts.Container)
	if err != nil {
		return nil, err
	}
	var all []*status.Container
	if seen := p.Observed(); seen != nil {
		all = seen.Named(opts.Container)
	}
	// Users regard the last instance of a container that waits to restart, as in CrashLoopBackOff, as the previous one.
	shown := statusOf(pod, opts.Container)
	waits := shown != nil && shown.State.Waiting != nil
	switch {
	case opts.Previous && len(all) < 2 && (len(all) == 0 || all[0].State != status.Exited || !waits):
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("previous terminated container %q in pod %q not found", opts.Container, pod.Name))
	case opts.Previous && len(all) >= 2 && all[0].State != status.Exited:
		return all[1], nil
	case len(all) == 0 || all[0].State == status.Created:
		return nil, apierrors.NewBadRequest(
			fmt.Sprintf("container %q in pod %q is waiting to start: %s", opts.Container, pod.Name,
				waitingReason(shown)))
	}
	return all[0], nil
}

func waitingReason(s *corev1.ContainerStatus) string {
	switch {
	case s == nil || s.State.Waiting == nil:
		return "ContainerCreating"
	case s.State.Waiting.Message != "" && s.State.Waiting.Reason != "CrashLoopBackOff":
		return s.State.Waiting.Message
	}
	return s.State.Waiting.Reason
}

// statusOf returns the status of a container of any type; nil if there is none yet.
func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses)
	if i := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// awaitExit returns a channel that is closed when the container no longer runs according to its observed state.
func (s *Streams) awaitExit(ctx context.Context, pod *corev1.Pod, id string) <-chan struct{} {
	out := make(chan struct{})
	s.deps.Guard.Spawn("stream", func() {
		defer close(out)
		for {
			p, ok := s.deps.Pod(pod.UID)
			if !ok {
				return
			}
			changed := p.Changes()
			seen := p.Observed()
			if seen == nil {
				return
			}
			if c := seen.ByID(id); c == nil || c.State == status.Exited {
				if c != nil {
					s.Flushed(ctx, c)
				}
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-p.Done():
				return
			case <-changed:
			}
		}
	})
	return out
}

// The event of a container's exit arrives before the runtime has written the rest of its log. The log is complete when
// the runtime's status reports the exit, 20 to 70 ms later.
const (
	flushPause = 5 * time.Millisecond
	flushLimit = time.Second
)

// Flushed waits until the log of a terminated container is complete.
func (s *Streams) Flushed(ctx context.Context, c *status.Container) {
	for s.deps.Clock.Since(c.FinishedAt) < flushLimit {
		now, err := s.deps.Runtime.ContainerStatus(ctx, c.ID)
		if err != nil || now.State == cri.ContainerState_CONTAINER_EXITED || !backoff.Sleep(ctx, s.deps.Clock, flushPause) {
			return
		}
	}
}
