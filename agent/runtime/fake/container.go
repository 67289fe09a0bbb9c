package fake

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
)

// containerService contains the containers and their processes.
type containerService struct {
	gate      *Gate
	events    *events
	images    *images
	sandboxes *sandboxService
	users     bool // ContainerStatus reports the process's user
	stats     func(of *cri.ContainerAttributes) *cri.ContainerStats

	mu         sync.Mutex // guards containers, and what can change in each
	containers map[string]*container
}

// container is one attempt of one container. The fields above state never change,
// except for the resources in config and the meter; containerService.mu guards the others.
type container struct {
	id        string
	config    *cri.ContainerConfig
	sandbox   *sandbox
	image     *storedImage
	logPath   string
	files     *Files
	createdAt time.Time
	meter     meter // has its own lock

	state                 cri.ContainerState
	process               *process // nil: never started
	orphaned              bool     // the process runs although the container failed to start
	startedAt, finishedAt time.Time
	exitCode              int32
	reason, message       string
}

// CreateContainer needs a ready sandbox and an image that was pulled or imported.
func (s *containerService) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig,
	sandbox *cri.PodSandboxConfig) (string, error) {
	return Answer(ctx, s.gate, "CreateContainer", config.GetMetadata().GetName(), func() (string, error) {
		return s.create(sandboxID, config, sandbox)
	})
}

func (s *containerService) create(sandboxID string, config *cri.ContainerConfig,
	sandbox *cri.PodSandboxConfig) (string, error) {
	if config.GetMetadata().GetName() == "" {
		return "", status.Error(codes.InvalidArgument, "a container needs a name")
	}
	c := &container{
		id: newID(), config: proto.CloneOf(config), createdAt: s.gate.Clock.Now(),
		state: cri.ContainerState_CONTAINER_CREATED,
	}
	if dir := sandbox.GetLogDirectory(); dir != "" && config.LogPath != "" {
		c.logPath = filepath.Join(dir, config.LogPath)
	}
	mounts, err := s.images.Mounts(c.config)
	if err != nil {
		return "", err
	}
	if err := s.add(c, sandboxID, mounts); err != nil {
		return "", err
	}
	return c.id, c.files.MakeMountpoints()
}

// add adds a container to its sandbox.
func (s *containerService) add(c *container, sandboxID string, mounts []Mount) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sandbox, err := s.sandboxes.lookup(sandboxID)
	if err != nil {
		return err
	}
	if err := s.sandboxes.ready(sandbox); err != nil {
		return err
	}
	image, ok := s.images.Lookup(c.config.GetImage().GetImage())
	if !ok {
		return status.Errorf(codes.NotFound, "no image %q", c.config.GetImage().GetImage())
	}
	for _, other := range s.containers {
		if other.sandbox == sandbox && proto.Equal(other.config.Metadata, c.config.Metadata) {
			return status.Errorf(codes.AlreadyExists, "container %s has this name and attempt", other.id)
		}
	}
	c.image, c.sandbox = image, sandbox
	c.files = newFiles(c.config, mounts, c.workingDir())
	s.containers[c.id] = c
	return nil
}

// StartContainer runs a created container. If the start fails, the container has exit code 128 and reason StartError,
// as with containerd.
func (s *containerService) StartContainer(ctx context.Context, id string) error {
	err := s.gate.Answer(ctx, "StartContainer", id, func() error { return s.startID(id) })
	if errors.Is(err, ErrTaskExists) {
		return s.taskExists(id)
	}
	return err
}

func (s *containerService) startID(id string) error {
	c, err := s.lookup(id)
	if err != nil {
		return err
	}
	args, err := c.args()
	if err != nil {
		return s.startFailed(c, err)
	}
	log, err := openLog(c.logPath, s.gate.Clock)
	if err != nil {
		return s.startFailed(c, err)
	}
	if err := s.start(c, args, log); err != nil {
		log.Close()
		return err
	}
	return nil
}

func (s *containerService) start(c *container, args []string, log *Log) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.startable(c); err != nil {
		return err
	}
	p := newProcess(s.gate.Context, c, log)
	// The end of the process waits for mu, so that it is recorded after the start.
	if err := s.gate.Spawn("container", func() { s.run(c, p, args) }); err != nil {
		p.kill(err)
		return err
	}
	c.process, c.state, c.startedAt = p, cri.ContainerState_CONTAINER_RUNNING, s.gate.Clock.Now()
	s.events.publish(c.event(runtime.EventContainerStarted, c.startedAt))
	return nil
}

// startable returns FailedPrecondition unless the container is created in a ready
// sandbox. The caller holds mu.
func (s *containerService) startable(c *container) error {
	if c.state != cri.ContainerState_CONTAINER_CREATED {
		return status.Errorf(codes.FailedPrecondition, "container %s is %s", c.id, c.state)
	}
	return s.sandboxes.ready(c.sandbox)
}

func (s *containerService) startFailed(c *container, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.startable(c); err != nil {
		return err
	}
	c.exited(128, "StartError", s.gate.Clock.Now())
	c.message = cause.Error()
	return status.Errorf(codes.Unknown, "start container %s: %v", c.id, cause)
}

// taskExists simulates a runtime that died before it stored the start: the container has failed, its process runs.
func (s *containerService) taskExists(id string) error {
	if err := s.startID(id); err != nil {
		return err
	}
	c, err := s.lookup(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.orphaned = true
	c.exited(128, "StartError", s.gate.Clock.Now())
	c.startedAt = time.Time{}
	c.message = "failed to create containerd task: task " + c.id + ": already exists: unknown"
	return status.Error(codes.Unknown, c.message)
}

// exited records the exit. The caller holds mu.
func (c *container) exited(code int32, reason string, at time.Time) {
	c.state = cri.ContainerState_CONTAINER_EXITED
	c.exitCode, c.reason, c.finishedAt = code, reason, at
}

// StopContainer sends the stop signal of the config or the image (default: SIGTERM) and
// kills after grace, which is rounded up to whole seconds; 0 kills at once.
func (s *containerService) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return s.gate.Answer(ctx, "StopContainer", id, func() error { return s.stop(ctx, id, grace) })
}

func (s *containerService) stop(ctx context.Context, id string, grace time.Duration) error {
	c, err := s.lookup(id)
	if err != nil {
		return nil
	}
	p, running := s.running(c)
	if !running {
		return nil
	}
	if grace > 0 {
		p.signal(c.stopSignal())
		timer := s.gate.Clock.NewTimer((grace + time.Second - 1).Truncate(time.Second))
		defer timer.Stop()
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-timer.C():
		}
	}
	return s.kill(ctx, c)
}

// kill kills the container's process, if it is alive, and waits for its end.
func (s *containerService) kill(ctx context.Context, c *container) error {
	p, alive := s.alive(c)
	if !alive {
		return nil
	}
	p.kill(errKilled)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// RemoveContainer kills the container if it runs.
func (s *containerService) RemoveContainer(ctx context.Context, id string) error {
	return s.gate.Answer(ctx, "RemoveContainer", id, func() error { return s.remove(ctx, id) })
}

func (s *containerService) remove(ctx context.Context, id string) error {
	c, err := s.lookup(id)
	if err != nil {
		return nil
	}
	if err := s.kill(ctx, c); err != nil {
		return err
	}
	s.forget(c)
	return nil
}

// forget removes containers that do not run.
func (s *containerService) forget(containers ...*container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range containers {
		delete(s.containers, c.id)
	}
}

// inside returns the containers of a sandbox.
func (s *containerService) inside(of *sandbox) []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(s.containers)), func(c *container) bool { return c.sandbox != of })
}

// ListContainers returns the oldest first.
func (s *containerService) ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error) {
	if err := s.gate.Begin(ctx, "ListContainers", filter.GetId()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return oldestFirst(s.containers, func(c *container) bool { return c.matches(filter) },
		func(c *container) *cri.Container {
			config := proto.CloneOf(c.config)
			return &cri.Container{
				Id: c.id, PodSandboxId: c.sandbox.id, Metadata: config.Metadata, Image: config.Image,
				ImageRef: c.image.ID, ImageId: c.image.ID, State: c.state, CreatedAt: c.createdAt.UnixNano(),
				Labels: config.Labels, Annotations: config.Annotations,
			}
		}), nil
}

// ContainerStatus returns NotFound for a missing container.
func (s *containerService) ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	if err := s.gate.Begin(ctx, "ContainerStatus", id); err != nil {
		return nil, err
	}
	c, err := s.lookup(id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	config := proto.CloneOf(c.config)
	return &cri.ContainerStatus{
		Id: c.id, Metadata: config.Metadata, State: c.state,
		CreatedAt: c.createdAt.UnixNano(), StartedAt: unixNano(c.startedAt), FinishedAt: unixNano(c.finishedAt),
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
		Image: s.images.Name(c.image, config.Image), ImageRef: s.images.Ref(c.image), ImageId: c.image.ID,
		Labels: config.Labels, Annotations: config.Annotations, Mounts: config.Mounts, LogPath: c.logPath,
		Resources: &cri.ContainerResources{Linux: config.GetLinux().GetResources()},
		User:      s.user(config.GetLinux().GetSecurityContext()),
	}, nil
}

// user returns the user that the process would have; nil if the runtime does not report users.
func (s *containerService) user(sc *cri.LinuxContainerSecurityContext) *cri.ContainerUser {
	if !s.users {
		return nil
	}
	gid := sc.GetRunAsGroup().GetValue()
	return &cri.ContainerUser{Linux: &cri.LinuxContainerUser{
		Uid: sc.GetRunAsUser().GetValue(), Gid: gid, SupplementalGroups: append([]int64{gid}, sc.GetSupplementalGroups()...),
	}}
}

// UpdateContainerResources stores the resources of a container that has not exited.
func (s *containerService) UpdateContainerResources(ctx context.Context, id string,
	resources *cri.LinuxContainerResources) error {
	if err := s.gate.Begin(ctx, "UpdateContainerResources", id); err != nil {
		return err
	}
	c, err := s.lookup(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.state == cri.ContainerState_CONTAINER_EXITED {
		return status.Errorf(codes.FailedPrecondition, "container %s has ended", c.id)
	}
	if c.config.Linux == nil {
		c.config.Linux = &cri.LinuxContainerConfig{}
	}
	has := c.config.Linux.Resources
	if has == nil {
		has = &cri.LinuxContainerResources{}
		c.config.Linux.Resources = has
	}
	proto.Merge(has, resources)
	return nil
}

// ReopenContainerLog needs a running container.
func (s *containerService) ReopenContainerLog(ctx context.Context, id string) error {
	if err := s.gate.Begin(ctx, "ReopenContainerLog", id); err != nil {
		return err
	}
	c, p, err := s.lookupRunning(id)
	if err != nil {
		return err
	}
	if err := p.log.Reopen(); err != nil {
		return status.Errorf(codes.Unknown, "reopen log of container %s: %v", c.id, err)
	}
	return nil
}

// lookup returns a container, or NotFound.
func (s *containerService) lookup(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := find(s.containers, id); ok {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "no container %q", id)
}

// running returns the process of a running container.
func (s *containerService) running(c *container) (p *process, running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.process, c.state == cri.ContainerState_CONTAINER_RUNNING
}

// alive returns the process of a container that runs or is orphaned.
func (s *containerService) alive(c *container) (p *process, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.process, c.orphaned || c.state == cri.ContainerState_CONTAINER_RUNNING
}

func (s *containerService) lookupRunning(id string) (*container, *process, error) {
	c, err := s.lookup(id)
	if err != nil {
		return nil, nil, err
	}
	p, running := s.running(c)
	if !running {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "container %s does not run", c.id)
	}
	return c, p, nil
}

func (c *container) event(what runtime.EventType, at time.Time) runtime.Event {
	return runtime.Event{Type: what, PodUID: c.sandbox.config.Metadata.Uid, SandboxID: c.sandbox.id, ContainerID: c.id,
		At: at}
}

// unixNano returns t in CRI's format; 0 for the zero time.
func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
