// Package containers starts, probes and stops the containers of one pod.
//
//   - Starter: which starts are under way, what became of them, the back-off of those
//     that crash (start.go, outcome.go, anew.go).
//   - maker: the config of a container, and the files that it gets (make.go, files.go).
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

	"monopod/agent/admission/security"
	"monopod/agent/logs/logdir"
	"monopod/agent/pod/probe"
	"monopod/agent/pod/status"
	"monopod/agent/resources/topology"
	"monopod/apiserver/client"
	"monopod/apiserver/process/guard"
)

// Runtime is what the runtime is asked for.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandbox *cri.PodSandboxConfig) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
}

// Placement gives containers exclusive CPUs, memory of NUMA nodes and devices.
type Placement interface {
	// Allotment is what a container was given.
	Allotment(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (topology.Allotment, error)
	// Made notes that a container was made with a config.
	Made(id string, config *cri.ContainerConfig)
	// Started notes that a container runs.
	Started(ctx context.Context, pod types.UID, c *status.Container)
}

// Config is the part of the node's configuration that containers show.
type Config struct {
	Instance   string // of the agent
	Domain     string // of the cluster
	Server     netip.AddrPort
	HostIPs    []string
	Memory     int64   // of the machine
	PageSizes  []int64 // of huge pages, where there are cgroups
	SeccompDir string
	// SeccompDefault: containers that name no profile get the runtime's.
	SeccompDefault bool
	Machine        security.Host
}

// Node is what the containers of all pods of a node have in common.
type Node struct {
	Config
	Client    client.Client
	Runtime   Runtime
	Clock     clock.WithTicker
	Guard     *guard.Guard
	Caller    probe.Caller
	Probes    *probe.Metrics
	Logs      *logdir.Dir
	Placement Placement
	// Started hears of each container that was started; Running of each that was found
	// to run, too.
	Started, Running func()
}
