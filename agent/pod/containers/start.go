package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/images"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/sandbox"
	"monopod/agent/pod/volumes"
	"monopod/agent/podapi/env"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/backoff"
)

// Parts are the other parts of the pod's worker that a Starter uses.
type Parts struct {
	Observer *observe.Observer
	Pace     *pace.Pace
	Images   *images.Images
	Volumes  *volumes.Volumes
	Sandbox  *sandbox.Sandbox
	Probes   *Probes
	Hooks    *Hooks
	Stopper  *Stopper
	// Stored returns the last reported status, or that of the pod.
	Stored func(*corev1.Pod) *corev1.PodStatus
	// Wake wakes the worker.
	Wake func()
}

// Starter starts the containers of one pod. Its state are starts whose outcome is not known, and the backoff of
// crashed containers.
type Starter struct {
	node *Node
	pod  *identity.Pod
	Parts
	maker maker

	crashes   backoff.Backoff
	announced map[string]bool     // containers whose backoff was reported by an event
	pending   map[string]*pending // by container: starts whose outcome is not known
	recreated map[string]int      // by container: number of recreations since the last start
	refusals  map[string]refusal  // by container: the runtime refused to create it
}

// refusal is a container that the runtime refused to create.
type refusal struct {
	hash    string // of the container's spec
	waiting status.Waiting
	until   time.Time
}

// NewStarter returns the Starter of a pod.
func NewStarter(node *Node, pod *identity.Pod, parts Parts) *Starter {
	return &Starter{
		node: node, pod: pod, Parts: parts, announced: map[string]bool{}, pending: map[string]*pending{},
		recreated: map[string]int{}, refusals: map[string]refusal{},
		maker: maker{
			node: node, pod: pod, observer: parts.Observer, images: parts.Images, volumes: parts.Volumes,
			sandbox: parts.Sandbox,
		},
	}
}

// StartAll starts containers in order. A container that must wait does not block the next one. again means that a
// sidecar has started, so that the next plan may start more.
func (s *Starter) StartAll(ctx context.Context, pod *corev1.Pod, list []*corev1.Container) (again bool, err error) {
	started, sidecars := false, false
	for _, c := range list {
		err := s.start(ctx, pod, c)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		started = started || err == nil
		sidecars = sidecars || status.Sidecar(c)
		if err := s.Pace.Blocked(c.Name, err); err != nil {
			return false, err
		}
	}
	return started && sidecars, nil
}

// start creates and starts a container. It returns a pace.Blocked while the container must wait for a backoff or for
// its images. The status in the runtime after the call decides whether the start succeeded, not the error alone.
func (s *Starter) start(ctx context.Context, pod *corev1.Pod, c *corev1.Container) error {
	last := s.Observer.Observed().Latest(c.Name)
	s.resetBackoff(c, last)
	if err := s.backOff(pod, c.Name, last); err != nil {
		return err
	}
	// Delay a container that the runtime recently refused to create. Without this delay, a container with the pull policy
	// Always would be pulled and refused in a loop, because the end of each pull wakes the worker.
	r, ok := s.refusals[c.Name]
	if rest := r.until.Sub(s.node.Clock.Now()); ok && rest > 0 && r.hash == spec.Hash(c) {
		return &pace.Blocked{Retry: rest, Waiting: r.waiting}
	}
	img, err := s.Images.Ensure(ctx, pod, c, func() *cri.PodSandboxConfig { return s.Sandbox.Config(pod) })
	if err != nil {
		return err
	}
	restarts, ended := last != nil && last.State == status.Exited && s.recreated[c.Name] == 0, time.Time{}
	if restarts {
		ended = last.FinishedAt
	}
	id, err := s.create(ctx, pod, c, last, img)
	if err != nil {
		return err
	}
	if restarts {
		s.recordRestart(c.Name, ended)
	}
	s.pending[c.Name] = &pending{id: id}
	startErr := s.node.Runtime.StartContainer(s.pod.Life, id)
	if err := s.Observer.Refresh(ctx, id); err != nil {
		return errors.Join(startErr, err) // Settle handles the start when the runtime responds
	}
	if now := s.Observer.Observed().ByID(id); startErr != nil && (now == nil || now.StartedAt.IsZero()) {
		return s.notStarted(pod, c.Name, id, startErr)
	}
	return s.afterStart(ctx, pod, c, id)
}

// resetBackoff resets the backoff of a container whose image has changed since it ended, because the new image may not
// crash.
func (s *Starter) resetBackoff(c *corev1.Container, last *status.Container) {
	if last != nil && last.State == status.Exited && last.Hash != spec.Hash(c) {
		s.crashes.Forget(c.Name)
	}
}

// backOff delays a container that ended recently.
func (s *Starter) backOff(pod *corev1.Pod, container string, last *status.Container) error {
	if last == nil || last.State != status.Exited || s.recreated[container] > 0 {
		return nil
	}
	rest, delay := s.crashes.Remaining(container, last.FinishedAt, s.node.Clock.Now())
	if rest <= 0 {
		return nil
	}
	name := fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID) // the name in kubelet's messages
	if !s.announced[container] {
		s.announced[container] = true
		s.pod.Event(container, corev1.EventTypeWarning, "BackOff",
			"Back-off restarting failed container %s in pod %s", container, name)
	}
	return &pace.Blocked{Retry: rest, Waiting: status.Waiting{
		Reason:  "CrashLoopBackOff",
		Message: fmt.Sprintf("back-off %v restarting failed container=%s pod=%s", delay, container, name),
	}}
}

// recordRestart records for the backoff that a container that ended at that time restarts.
func (s *Starter) recordRestart(container string, ended time.Time) {
	s.crashes.Attempt(container, ended, s.node.Clock.Now())
	delete(s.announced, container)
}

// create creates the container. Changes of the pod do not interrupt it. It replaces an instance that was created and
// never ran: the start was interrupted, and a restarted containerd may still be cleaning up after it, which would also
// kill a second start of the same ID.
func (s *Starter) create(ctx context.Context, pod *corev1.Pod, c *corev1.Container, last *status.Container,
	img *cri.Image) (string, error) {
	sandbox := s.Observer.Observed().Sandbox().ID
	attempt := s.nextAttempt(pod, c.Name, last)
	if last != nil && last.State == status.Created {
		if err := s.discard(last.ID); err != nil {
			return "", err
		}
	}
	config, err := s.maker.config(ctx, pod, c, attempt, img)
	if err == nil {
		err = os.MkdirAll(filepath.Join(s.node.Logs.Pod(pod), c.Name), 0o755)
	}
	if err != nil {
		return "", s.refused(pod, c.Name, "CreateContainerConfigError", err)
	}
	id, err := s.node.Runtime.CreateContainer(s.pod.Life, sandbox, config, s.Sandbox.Config(pod))
	if s.Pace.Undecided(err) {
		return "", fmt.Errorf("create container: %w", err)
	}
	if err != nil {
		s.Images.Forget(pod, c) // the images may have been removed meanwhile
		b := s.refused(pod, c.Name, whyNotCreated(err), withRemedy(err))
		s.refusals[c.Name] = refusal{spec.Hash(c), b.Waiting, s.node.Clock.Now().Add(b.Retry)}
		return "", b
	}
	delete(s.refusals, c.Name)
	s.Observer.ContainerCreated(status.Container{
		ID: id, Name: c.Name, Attempt: attempt, SandboxID: sandbox, Hash: spec.Hash(c), Image: c.Image,
		MessagePath: s.maker.messagePath(c.Name, attempt), MessagePolicy: string(c.TerminationMessagePolicy),
		Resources: c.Resources.DeepCopy(),
	})
	s.node.Placement.ContainerCreated(id, config)
	s.pod.Event(c.Name, corev1.EventTypeNormal, "Created", "Container created")
	return id, nil
}

// refused writes an event about a container that cannot be created. It returns why the container waits.
func (s *Starter) refused(pod *corev1.Pod, container, reason string, err error) *pace.Blocked {
	text := strings.TrimPrefix(err.Error(), env.ErrConfig.Error()+": ") // the reason contains it
	s.pod.Event(container, corev1.EventTypeWarning, "Failed", "Error: %s", text)
	return s.failed(pod, container, pace.Config, reason, text)
}

// notShared matches containerd's error for a mount propagation that the mount on the host does not allow.
var notShared = regexp.MustCompile(`is mounted on "([^"]+)" but it is not a shared`)

// withRemedy adds to an error of the runtime how the user can fix the cause.
func withRemedy(err error) error {
	if m := notShared.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%w; mountPropagation needs a shared mount on the node: run mount --make-rshared %s there, "+
			"before pods start at each boot", err, m[1])
	}
	return err
}

// whyNotCreated returns the reason in the status of a container that the runtime refused to create. It compares the
// start of the error: containerd (CreateContainer in internal/cri/server of 2.4) adds a prefix to CRI's text.
func whyNotCreated(err error) string {
	failed := crierrors.ErrImageVolumeMountFailed.Error()
	text := strings.TrimPrefix(grpcstatus.Convert(err).Message(), "failed to mount image volume: ")
	if strings.HasPrefix(text, failed+": ") {
		return failed
	}
	return "CreateContainerError"
}

// nextAttempt returns the number of the next instance: it continues from the runtime's last one, or from the stored
// restart count.
func (s *Starter) nextAttempt(pod *corev1.Pod, name string, last *status.Container) uint32 {
	switch {
	case last != nil && last.State == status.Created:
		return last.Attempt
	case last != nil:
		return last.Attempt + 1
	}
	stored := s.Stored(pod)
	for _, list := range [][]corev1.ContainerStatus{stored.InitContainerStatuses, stored.ContainerStatuses} {
		for i := range list {
			switch c := &list[i]; {
			case c.Name != name || c.ContainerID == "":
			case status.Ran(c):
				return uint32(c.RestartCount) + 1
			default: // it was removed before it ran
				return uint32(c.RestartCount)
			}
		}
	}
	return 0
}

// discard removes an instance that never ran.
func (s *Starter) discard(id string) error {
	c := s.Observer.Observed().ByID(id)
	if c == nil {
		return nil
	}
	if err := s.node.Runtime.RemoveContainer(s.pod.Life, id); err != nil && !identity.NotFound(err) {
		return fmt.Errorf("remove container that never ran: %w", err)
	}
	_ = os.Remove(s.maker.messagePath(c.Name, c.Attempt)) // removed with the pod at the latest
	s.Observer.Forget(id)
	return nil
}
