// Package runtime is what an agent asks of a container runtime, whichever it is:
// package cri implements it over containerd, package fake in memory, and runtimetest is
// the contract of both.
package runtime

import (
	"context"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is the part of CRI's RuntimeService and ImageService that the agent
// uses, in CRI's own words and types, and the stream of changes that CRI lacks.
// Errors carry gRPC status codes: NotFound for what is not there; stopping or
// removing that is no error.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	// Status is how the runtime is, with its handlers and features where it tells them
	// (containerd from 2.0 on).
	Status(ctx context.Context) (*cri.StatusResponse, error)

	// RunPodSandbox makes a sandbox with the handler of that name; empty: the default
	// one.
	RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (id string, err error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatus, error)
	ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error)

	CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandbox *cri.PodSandboxConfig) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the stop signal, waits up to grace (whole seconds, as in
	// CRI), then kills. It returns when the container is dead.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
	ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error)
	// UpdateContainerResources changes what a container that runs may use; what is 0
	// stays as it is.
	UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error
	ReopenContainerLog(ctx context.Context, id string) error
	// ListContainerStats is what the containers that run use; Unimplemented where
	// the runtime does not know.
	ListContainerStats(ctx context.Context, filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error)

	// ExecSync runs a command to its end; a non-zero exit code is not an error.
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
	// Exec, Attach and PortForward answer the URL of a streaming server that takes
	// one upgrade.
	Exec(ctx context.Context, req *cri.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *cri.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *cri.PortForwardRequest) (url string, err error)

	ListImages(ctx context.Context) ([]*cri.Image, error)
	// ImageStatus answers nil without an error when the image is not there.
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
	PullImage(ctx context.Context, image string, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (ref string, err error)
	RemoveImage(ctx context.Context, image string) error
	// ImageFsInfo is where images lie and how much they take; Unimplemented where
	// the runtime does not know.
	ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error)
	// ImportImages loads an OCI or docker archive (tar, may be gzip or zstd) from
	// the local disk, pins what it holds and returns the names.
	ImportImages(ctx context.Context, path string) ([]string, error)

	// Events sends what changed until ctx ends: at once, in order per container. A
	// gap ends with one event of type EventResync; relist then. It may begin with one
	// of type EventLost, where the runtime went away.
	Events(ctx context.Context) (<-chan Event, error)

	Close() error
}

// EventType says what happened.
type EventType int

// The types of events.
const (
	EventResync           EventType = iota // events may be missing: list again
	EventContainerStarted                  // it runs
	EventContainerExited                   // it is dead
	EventContainerOOM                      // the kernel killed something in it; an exit may follow
	EventSandboxExited                     // the sandbox is dead
	EventLost                              // nothing is told any more, until EventResync
)

// Event is one change in the runtime.
type Event struct {
	Type        EventType
	PodUID      string // empty where the runtime does not know
	SandboxID   string
	ContainerID string // empty for sandbox events
	ExitCode    int32
	At          time.Time
}
