package runtime

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// RequestTimeout is the deadline of a call, in addition to the time that its
	// request asks to wait (upstream: runtimeRequestTimeout).
	RequestTimeout = 2 * time.Minute
	// importTimeout is the deadline of importing an image archive, which may be large on a slow disk.
	importTimeout = 30 * time.Minute
)

// Bounded returns a runtime whose calls have deadlines: a call that is not answered in time fails with Unavailable.
// Pulls have no deadline, because their caller watches the progress, and neither have commands without a timeout.
// observe is called after every call; it may be nil.
func Bounded(r Runtime, observe Observer) Runtime {
	if observe == nil {
		observe = func(string, time.Duration, error) {}
	}
	return bounded{r, observe}
}

// Observer receives each finished call, its duration and its error.
type Observer func(call string, took time.Duration, err error)

type bounded struct {
	Runtime
	observe Observer
}

// within calls f, which must obey its context, and gives up after limit.
func within[T any](ctx context.Context, b bounded, call string, limit time.Duration,
	f func(context.Context) (T, error)) (out T, err error) {
	began := time.Now()
	defer func() { b.observe(call, time.Since(began), err) }()
	below, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err = f(below)
	if err != nil && below.Err() != nil && ctx.Err() == nil {
		return out, status.Errorf(codes.Unavailable, "the container runtime did not answer %s within %v", call, limit)
	}
	return out, err
}

// done is within for calls without a result.
func done(ctx context.Context, b bounded, call string, limit time.Duration, f func(context.Context) error) error {
	_, err := within(ctx, b, call, limit, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

func (b bounded) Version(ctx context.Context) (*cri.VersionResponse, error) {
	return within(ctx, b, "Version", RequestTimeout, b.Runtime.Version)
}

func (b bounded) Status(ctx context.Context) (*cri.StatusResponse, error) {
	return within(ctx, b, "Status", RequestTimeout, b.Runtime.Status)
}

// RunPodSandbox may take twice as long, for the sandbox image (upstream does so, too).
func (b bounded) RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	return within(ctx, b, "RunPodSandbox", 2*RequestTimeout, func(ctx context.Context) (string, error) {
		return b.Runtime.RunPodSandbox(ctx, config, handler)
	})
}

func (b bounded) StopPodSandbox(ctx context.Context, id string) error {
	return done(ctx, b, "StopPodSandbox", RequestTimeout,
		func(ctx context.Context) error { return b.Runtime.StopPodSandbox(ctx, id) })
}

func (b bounded) RemovePodSandbox(ctx context.Context, id string) error {
	return done(ctx, b, "RemovePodSandbox", RequestTimeout,
		func(ctx context.Context) error { return b.Runtime.RemovePodSandbox(ctx, id) })
}

func (b bounded) PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatus, error) {
	return within(ctx, b, "PodSandboxStatus", RequestTimeout, func(ctx context.Context) (*cri.PodSandboxStatus, error) {
		return b.Runtime.PodSandboxStatus(ctx, id)
	})
}

func (b bounded) ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error) {
	return within(ctx, b, "ListPodSandbox", RequestTimeout, func(ctx context.Context) ([]*cri.PodSandbox, error) {
		return b.Runtime.ListPodSandbox(ctx, filter)
	})
}

func (b bounded) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig,
	sandbox *cri.PodSandboxConfig) (string, error) {
	return within(ctx, b, "CreateContainer", RequestTimeout, func(ctx context.Context) (string, error) {
		return b.Runtime.CreateContainer(ctx, sandboxID, config, sandbox)
	})
}

func (b bounded) StartContainer(ctx context.Context, id string) error {
	return done(ctx, b, "StartContainer", RequestTimeout,
		func(ctx context.Context) error { return b.Runtime.StartContainer(ctx, id) })
}

func (b bounded) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return done(ctx, b, "StopContainer", grace+RequestTimeout, func(ctx context.Context) error {
		return b.Runtime.StopContainer(ctx, id, grace)
	})
}

func (b bounded) RemoveContainer(ctx context.Context, id string) error {
	return done(ctx, b, "RemoveContainer", RequestTimeout,
		func(ctx context.Context) error { return b.Runtime.RemoveContainer(ctx, id) })
}

func (b bounded) ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error) {
	return within(ctx, b, "ListContainers", RequestTimeout, func(ctx context.Context) ([]*cri.Container, error) {
		return b.Runtime.ListContainers(ctx, filter)
	})
}

func (b bounded) ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	return within(ctx, b, "ContainerStatus", RequestTimeout, func(ctx context.Context) (*cri.ContainerStatus, error) {
		return b.Runtime.ContainerStatus(ctx, id)
	})
}

func (b bounded) UpdateContainerResources(ctx context.Context, id string,
	resources *cri.LinuxContainerResources) error {
	return done(ctx, b, "UpdateContainerResources", RequestTimeout, func(ctx context.Context) error {
		return b.Runtime.UpdateContainerResources(ctx, id, resources)
	})
}

func (b bounded) ReopenContainerLog(ctx context.Context, id string) error {
	return done(ctx, b, "ReopenContainerLog", RequestTimeout,
		func(ctx context.Context) error { return b.Runtime.ReopenContainerLog(ctx, id) })
}

func (b bounded) ListContainerStats(ctx context.Context,
	filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	return within(ctx, b, "ListContainerStats", RequestTimeout, func(ctx context.Context) ([]*cri.ContainerStats, error) {
		return b.Runtime.ListContainerStats(ctx, filter)
	})
}

// execResult is the result of a command.
type execResult struct {
	stdout, stderr []byte
	exitCode       int32
}

func (b bounded) ExecSync(ctx context.Context, id string, cmd []string,
	timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	if timeout == 0 {
		began := time.Now()
		defer func() { b.observe("ExecSync", time.Since(began), err) }()
		return b.Runtime.ExecSync(ctx, id, cmd, timeout)
	}
	r, err := within(ctx, b, "ExecSync", timeout+RequestTimeout, func(ctx context.Context) (r execResult, err error) {
		r.stdout, r.stderr, r.exitCode, err = b.Runtime.ExecSync(ctx, id, cmd, timeout)
		return r, err
	})
	return r.stdout, r.stderr, r.exitCode, err
}

func (b bounded) Exec(ctx context.Context, req *cri.ExecRequest) (string, error) {
	return within(ctx, b, "Exec", RequestTimeout,
		func(ctx context.Context) (string, error) { return b.Runtime.Exec(ctx, req) })
}

func (b bounded) Attach(ctx context.Context, req *cri.AttachRequest) (string, error) {
	return within(ctx, b, "Attach", RequestTimeout,
		func(ctx context.Context) (string, error) { return b.Runtime.Attach(ctx, req) })
}

func (b bounded) PortForward(ctx context.Context, req *cri.PortForwardRequest) (string, error) {
	return within(ctx, b, "PortForward", RequestTimeout,
		func(ctx context.Context) (string, error) { return b.Runtime.PortForward(ctx, req) })
}

func (b bounded) Execs(ctx context.Context, id string) ([]Process, error) {
	return within(ctx, b, "Execs", RequestTimeout,
		func(ctx context.Context) ([]Process, error) { return b.Runtime.Execs(ctx, id) })
}

func (b bounded) ListImages(ctx context.Context) ([]*cri.Image, error) {
	return within(ctx, b, "ListImages", RequestTimeout, b.Runtime.ListImages)
}

func (b bounded) ImageStatus(ctx context.Context, image string) (*cri.Image, error) {
	return within(ctx, b, "ImageStatus", RequestTimeout,
		func(ctx context.Context) (*cri.Image, error) { return b.Runtime.ImageStatus(ctx, image) })
}

func (b bounded) PullImage(ctx context.Context, image string, auth *cri.AuthConfig,
	sandbox *cri.PodSandboxConfig) (ref string, err error) {
	began := time.Now()
	defer func() { b.observe("PullImage", time.Since(began), err) }()
	return b.Runtime.PullImage(ctx, image, auth, sandbox)
}

func (b bounded) RemoveImage(ctx context.Context, image string) error {
	return done(ctx, b, "RemoveImage", RequestTimeout,
		func(ctx context.Context) error { return b.Runtime.RemoveImage(ctx, image) })
}

func (b bounded) ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error) {
	return within(ctx, b, "ImageFsInfo", RequestTimeout, b.Runtime.ImageFsInfo)
}

func (b bounded) ImportArchive(ctx context.Context, archive io.Reader) ([]string, error) {
	return within(ctx, b, "ImportImages", importTimeout,
		func(ctx context.Context) ([]string, error) { return b.Runtime.ImportArchive(ctx, archive) })
}

func (b bounded) Downloads(ctx context.Context) ([]Download, error) {
	return within(ctx, b, "Downloads", RequestTimeout, b.Runtime.Downloads)
}

func (b bounded) ImportImages(ctx context.Context, path string) ([]string, error) {
	return within(ctx, b, "ImportImages", importTimeout,
		func(ctx context.Context) ([]string, error) { return b.Runtime.ImportImages(ctx, path) })
}
