// Package containers starts, probes and stops the containers of one pod.
//
//   - Starter: starts in progress and their outcome, and crash backoff (start.go,
//     outcome.go, restartall.go).
//   - maker: the config of a container, and its files (make.go, files.go).
//   - Stopper, Hooks, Probes.
package containers

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/logs"
	"monopod/agent/pod/probe"
	"monopod/agent/podapi/security"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Runtime is the part of the container runtime that this package uses.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandbox *cri.PodSandboxConfig) (
		id string, err error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
}

// Placement provides exclusive CPUs, memory of NUMA nodes and devices.
type Placement interface {
	// Allotment returns the exclusive resources of a container.
	Allotment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (spec.Allotment, error)
	// ContainerCreated records the config with which a container was created.
	ContainerCreated(id string, config *cri.ContainerConfig)
	// Started records that a container runs.
	Started(ctx context.Context, pod types.UID, c *status.Container)
}

// Config is the part of the node's configuration that containers depend on.
type Config struct {
	Instance   string // of the agent
	Domain     string // of the cluster
	Server     netip.AddrPort
	HostIPs    func() []string
	Memory     spec.Memory // of the machine
	PageSizes  []int64     // of huge pages, where there are cgroups
	SeccompDir string
	// CDIDirs are the folders of CDI specifications, for a runtime that does not read them itself.
	CDIDirs []string
	// SeccompDefault applies the runtime's profile to containers without one.
	SeccompDefault bool
	Machine        security.Host
}

// Node contains the dependencies that the containers of all pods of a node share.
type Node struct {
	Config
	Client    client.Client
	Runtime   Runtime
	Clock     clock.WithTicker
	Guard     *guard.Guard
	Caller    probe.Caller
	Probes    *probe.Metrics
	Logs      *logs.Dir
	Placement Placement
	// Started is called with the type of each container that was started.
	Started func(kind string)
	// Failed is called with the type of each container that failed to be created or started, and the reason.
	Failed func(kind, reason string)
	// Running is called for each container that was found running.
	Running func()
}
