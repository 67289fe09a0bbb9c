package fake

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
	"monopod/agent/runtime/fake/files"
	"monopod/agent/runtime/fake/output"
	"monopod/apiserver/process/guard"
)

// container is one attempt of one container. What comes before state never
// changes; Runtime.mu guards the rest.
type container struct {
	id        string
	config    *cri.ContainerConfig
	sandbox   *sandbox
	image     *image
	logPath   string
	files     *files.Files
	createdAt time.Time

	state                 cri.ContainerState
	process               *process // nil: never started
	stray                 bool     // it runs though the container could not start
	startedAt, finishedAt time.Time
	exitCode              int32
	reason, message       string
}

// CreateContainer wants a ready sandbox and an image that is there.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandbox *cri.PodSandboxConfig) (string, error) {
	return answer(ctx, r, "CreateContainer", config.GetMetadata().GetName(), func() (string, error) {
		return r.createContainer(sandboxID, config, sandbox)
	})
}

func (r *Runtime) createContainer(sandboxID string, config *cri.ContainerConfig, sandbox *cri.PodSandboxConfig) (string, error) {
	if config.GetMetadata().GetName() == "" {
		return "", status.Error(codes.InvalidArgument, "a container needs a name")
	}
	c := &container{
		id: newID(), config: proto.CloneOf(config), createdAt: r.clock.Now(),
		state: cri.ContainerState_CONTAINER_CREATED,
	}
	if dir := sandbox.GetLogDirectory(); dir != "" && config.LogPath != "" {
		c.logPath = filepath.Join(dir, config.LogPath)
	}
	mounts, err := r.mounts(c.config)
	if err != nil {
		return "", err
	}
	if err := r.add(c, sandboxID, mounts); err != nil {
		return "", err
	}
	return c.id, c.files.MakeMountpoints()
}

// add puts a container into its sandbox.
func (r *Runtime) add(c *container, sandboxID string, mounts []files.Mount) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := find(r.sandboxes, sandboxID)
	if !ok {
		return noSandbox(sandboxID)
	}
	if s.state != cri.PodSandboxState_SANDBOX_READY {
		return status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", s.id)
	}
	if c.image, ok = r.image(c.config.GetImage().GetImage()); !ok {
		return status.Errorf(codes.NotFound, "no image %q", c.config.GetImage().GetImage())
	}
	for _, other := range r.inside(s) {
		if proto.Equal(other.config.Metadata, c.config.Metadata) {
			return status.Errorf(codes.AlreadyExists, "container %s has this name and attempt", other.id)
		}
	}
	c.sandbox, c.files = s, files.New(c.config, mounts, c.workingDir())
	r.containers[c.id] = c
	return nil
}

// StartContainer runs a created container. One that cannot start is dead with
// code 128 and reason StartError, as under containerd.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	err := answerErr(ctx, r, "StartContainer", id, func() error { return r.startContainer(id) })
	if errors.Is(err, ErrTaskExists) {
		return r.taskExists(id)
	}
	return err
}

func (r *Runtime) startContainer(id string) error {
	c, err := r.lookup(id)
	if err != nil {
		return err
	}
	args, err := c.args()
	if err != nil {
		return r.startFailed(c, err)
	}
	log, err := output.Open(c.logPath, r.clock)
	if err != nil {
		return r.startFailed(c, err)
	}
	if err := r.start(c, args, log); err != nil {
		log.Close()
		return err
	}
	return nil
}

func (r *Runtime) start(c *container, args []string, log *output.Log) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.startable(); err != nil {
		return err
	}
	if r.ctx.Err() != nil {
		return status.Error(codes.Unavailable, "the runtime is closed")
	}
	c.process = newProcess(r.ctx, c, log)
	c.state, c.startedAt = cri.ContainerState_CONTAINER_RUNNING, r.clock.Now()
	r.events.publish(c.event(runtime.EventContainerStarted, c.startedAt))
	(*guard.Guard)(nil).Go(&r.tasks, "container", func() { r.run(c, args) })
	return nil
}

func (c *container) startable() error {
	if c.state != cri.ContainerState_CONTAINER_CREATED {
		return status.Errorf(codes.FailedPrecondition, "container %s is %s", c.id, c.state)
	}
	if c.sandbox.state != cri.PodSandboxState_SANDBOX_READY {
		return status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", c.sandbox.id)
	}
	return nil
}

func (r *Runtime) startFailed(c *container, cause error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.startable(); err != nil {
		return err
	}
	c.exited(128, "StartError", r.clock.Now())
	c.message = cause.Error()
	return status.Errorf(codes.Unknown, "start container %s: %v", c.id, cause)
}

// exited writes down the end. The caller holds mu.
func (c *container) exited(code int32, reason string, at time.Time) {
	c.state = cri.ContainerState_CONTAINER_EXITED
	c.exitCode, c.reason, c.finishedAt = code, reason, at
}

// StopContainer sends the config's or the image's stop signal, else SIGTERM;
// with no grace it kills at once. Grace counts in whole seconds, rounded up.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return answerErr(ctx, r, "StopContainer", id, func() error { return r.stopContainer(ctx, id, grace) })
}

func (r *Runtime) stopContainer(ctx context.Context, id string, grace time.Duration) error {
	c, err := r.lookup(id)
	if err != nil {
		return nil
	}
	p, running := r.running(c)
	if !running {
		return nil
	}
	if grace > 0 {
		p.signal(c.stopSignal())
		timer := r.clock.NewTimer((grace + time.Second - 1).Truncate(time.Second))
		defer timer.Stop()
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-timer.C():
		}
	}
	return r.kill(ctx, c)
}

// kill ends a container that runs and waits until it is dead.
func (r *Runtime) kill(ctx context.Context, c *container) error {
	p, alive := r.alive(c)
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

// RemoveContainer kills it if it runs.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	return answerErr(ctx, r, "RemoveContainer", id, func() error { return r.removeContainer(ctx, id) })
}

func (r *Runtime) removeContainer(ctx context.Context, id string) error {
	c, err := r.lookup(id)
	if err != nil {
		return nil
	}
	if err := r.kill(ctx, c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, c.id)
	return nil
}

// ListContainers lists the oldest first.
func (r *Runtime) ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error) {
	if err := r.begin(ctx, "ListContainers", filter.GetId()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.Container
	for _, c := range r.containers {
		if c.matches(filter) {
			config := proto.CloneOf(c.config)
			list = append(list, &cri.Container{
				Id: c.id, PodSandboxId: c.sandbox.id, Metadata: config.Metadata, Image: config.Image,
				ImageRef: c.image.ID, ImageId: c.image.ID, State: c.state, CreatedAt: c.createdAt.UnixNano(),
				Labels: config.Labels, Annotations: config.Annotations,
			})
		}
	}
	slices.SortFunc(list, func(a, b *cri.Container) int { return byAge(a.CreatedAt, b.CreatedAt, a.Id, b.Id) })
	return list, nil
}

// ContainerStatus answers NotFound for what is not there.
func (r *Runtime) ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	if err := r.begin(ctx, "ContainerStatus", id); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := find(r.containers, id)
	if !ok {
		return nil, noContainer(id)
	}
	config := proto.CloneOf(c.config)
	return &cri.ContainerStatus{
		Id: c.id, Metadata: config.Metadata, State: c.state,
		CreatedAt: c.createdAt.UnixNano(), StartedAt: unixNano(c.startedAt), FinishedAt: unixNano(c.finishedAt),
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
		Image: config.Image, ImageRef: c.image.ref(), ImageId: c.image.ID,
		Labels: config.Labels, Annotations: config.Annotations, Mounts: config.Mounts, LogPath: c.logPath,
		Resources: &cri.ContainerResources{Linux: config.GetLinux().GetResources()},
		User:      r.user(config.GetLinux().GetSecurityContext()),
	}, nil
}

// user is who the container's process would be, where the runtime is one that tells.
func (r *Runtime) user(sc *cri.LinuxContainerSecurityContext) *cri.ContainerUser {
	if !r.cfg.Features.GetSupplementalGroupsPolicy() {
		return nil
	}
	gid := sc.GetRunAsGroup().GetValue()
	return &cri.ContainerUser{Linux: &cri.LinuxContainerUser{
		Uid: sc.GetRunAsUser().GetValue(), Gid: gid, SupplementalGroups: append([]int64{gid}, sc.GetSupplementalGroups()...),
	}}
}

// UpdateContainerResources notes them in a container that has not ended.
func (r *Runtime) UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error {
	if err := r.begin(ctx, "UpdateContainerResources", id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := find(r.containers, id)
	if !ok {
		return noContainer(id)
	}
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

// ReopenContainerLog wants a container that runs.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	if err := r.begin(ctx, "ReopenContainerLog", id); err != nil {
		return err
	}
	c, p, err := r.lookupRunning(id)
	if err != nil {
		return err
	}
	if err := p.log.Reopen(); err != nil {
		return status.Errorf(codes.Unknown, "reopen log of container %s: %v", c.id, err)
	}
	return nil
}

func (r *Runtime) lookup(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := find(r.containers, id); ok {
		return c, nil
	}
	return nil, noContainer(id)
}

// running returns the process of a container that is not dead.
func (r *Runtime) running(c *container) (p *process, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.process, c.state == cri.ContainerState_CONTAINER_RUNNING
}

// alive is running, for those who end also what the runtime does not know to run.
func (r *Runtime) alive(c *container) (p *process, alive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.process, c.stray || c.state == cri.ContainerState_CONTAINER_RUNNING
}

func (r *Runtime) lookupRunning(id string) (*container, *process, error) {
	c, err := r.lookup(id)
	if err != nil {
		return nil, nil, err
	}
	p, running := r.running(c)
	if !running {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "container %s does not run", c.id)
	}
	return c, p, nil
}

func (c *container) event(what runtime.EventType, at time.Time) runtime.Event {
	return runtime.Event{Type: what, PodUID: c.sandbox.config.Metadata.Uid, SandboxID: c.sandbox.id, ContainerID: c.id, At: at}
}

// unixNano is 0 for no time, as in CRI.
func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func noContainer(id string) error {
	return status.Error(codes.NotFound, fmt.Sprintf("no container %q", id))
}
