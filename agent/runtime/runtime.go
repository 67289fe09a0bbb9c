// Package runtime is the agent's interface to a container runtime. Package cri
// implements it over containerd, package fake in memory, and runtimetest is the
// contract of both.
//
//   - abilities.go: returns features of a runtime that CRI does not report
//   - interrupted.go: distinguishes failed calls from interrupted ones, whose error says nothing about the pod: the
//     runtime died during the call, or an earlier call is still running or has succeeded
package runtime

import (
	"context"
	"io"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Download is a part of an image that is being pulled.
type Download struct {
	Ref         string // identifies the part
	Done, Total int64  // in bytes; Total 0: unknown
}

// Process is a process that Exec or ExecSync started in a container.
type Process struct {
	ID  string // unique, also over time
	PID int    // on the machine
}

// Runtime is the part of CRI's RuntimeService and ImageService that the agent uses,
// in CRI's own words and types, and the stream of changes that CRI lacks. Errors
// carry gRPC status codes: NotFound for a missing object; stopping or removing one is
// not an error.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	// Status returns the runtime's conditions, with its handlers and features if it
	// reports them (containerd 2.0 and later).
	Status(ctx context.Context) (*cri.StatusResponse, error)

	// RunPodSandbox creates and starts a sandbox with the runtime handler; empty: the default one.
	RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (id string, err error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatus, error)
	ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error)

	CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandbox *cri.PodSandboxConfig) (
		id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the stop signal, waits up to grace (whole seconds, as in
	// CRI), then kills. It returns when the container is dead.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
	ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error)
	// UpdateContainerResources changes the limits of a running container; zero fields
	// do not change.
	UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error
	ReopenContainerLog(ctx context.Context, id string) error
	// ListContainerStats returns the usage of running containers; Unimplemented if
	// the runtime does not measure it.
	ListContainerStats(ctx context.Context, filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error)

	// ExecSync runs a command to its end; a non-zero exit code is not an error.
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32,
		err error)
	// Exec, Attach and PortForward return the URL of a streaming server that accepts
	// one upgrade.
	Exec(ctx context.Context, req *cri.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *cri.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *cri.PortForwardRequest) (url string, err error)
	// Execs returns the running processes that Exec and ExecSync started in a container; Unimplemented if the runtime
	// does not know them.
	Execs(ctx context.Context, id string) ([]Process, error)

	ListImages(ctx context.Context) ([]*cri.Image, error)
	// ImageStatus returns nil without an error if the image is missing.
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
	PullImage(ctx context.Context, image string, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (ref string,
		err error)
	RemoveImage(ctx context.Context, image string) error
	// ImageFsInfo returns the location and usage of images; Unimplemented if the runtime does not know them.
	ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error)
	// ImportImages loads an OCI or docker archive (tar, may be gzip or zstd) from the
	// local disk, pins its images and returns their names.
	ImportImages(ctx context.Context, path string) ([]string, error)
	// ImportArchive is ImportImages for an archive that is read from a stream.
	ImportArchive(ctx context.Context, archive io.Reader) ([]string, error)
	// Downloads returns the parts of images that are being pulled; none if the runtime does not report them.
	Downloads(ctx context.Context) ([]Download, error)
	// ExportImages writes images as one OCI archive (tar), which ImportImages accepts;
	// Unimplemented if the runtime does not keep their layers.
	ExportImages(ctx context.Context, names []string, to io.Writer) error

	// Events sends changes until ctx ends, in order for each container. If events may have been missed, EventResync
	// follows, after which the caller relists. If the runtime went away, EventLost precedes it.
	Events(ctx context.Context) (<-chan Event, error)

	Close() error
}

// EventType is the type of a change.
type EventType int

// The types of events.
const (
	EventResync           EventType = iota // events may be missing: list again
	EventContainerStarted                  // it runs
	EventContainerExited                   // it is dead
	EventContainerOOM                      // a process in it was OOM-killed; an exit may follow
	EventSandboxExited                     // the sandbox is dead
	EventLost                              // no events until EventResync
)

// Event is one change in the runtime.
type Event struct {
	Type        EventType
	PodUID      string // empty if unknown
	SandboxID   string
	ContainerID string // empty for sandbox events
	ExitCode    int32
	At          time.Time
}
