// Package fake is runtime.Runtime in memory, for sandbox mode and tests.
//
// A container is a goroutine that runs the sample program (package
// agent/runtime/fake/program) with the command, environment, mounts and signals of
// its CRI config. Its logs are files in CRI's format; files outside its mounts
// live in memory and die with it.
//
// Images: an imported archive has a name, an entry point and an environment.
// PullImage pulls from registries on loopback; for any other name it creates a
// placeholder image, which runs the web server if the sample program does not know the
// command. So a pod of any image is Running in a millisecond. In an imported image an
// unknown command fails to start, as with a real runtime.
//
// An image volume shows the files of an image whose layers have at most 1 MiB each; a
// placeholder image is empty.
//
// Network: pods have addresses, but there are no packets. Dial (for probes), PortForward
// and other containers (web get http://10.88.0.3:8080/) reach a server in a pod; curl on
// the host does not. With Config.Loopback pods have addresses in 127.0.0.0/8, on which
// their servers really listen, so that curl works, too.
//
// Nothing is stored on disk: the state exists as long as the Runtime, across restarts
// of the agent above it. Everything runs in a testing/synctest bubble, except Exec,
// Attach and PortForward, whose streams are real connections to a loopback server
// that starts with the first of them.
//
//   - archive.go: reads images from archives and registries, with their small layers only
//   - files.go: the file system of a container of the fake runtime
//   - gate.go: the latency and the simulated faults of every call, and the end of the runtime
//   - images.go: the images of the runtime in memory
//   - log.go: writes the output of the fake runtime's containers to logs and to attached clients
//   - network.go: the network of the fake runtime: the addresses of its sandboxes and the servers that listen on them
package fake

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/runtime"
)

// Config of a Runtime; its zero value works.
type Config struct {
	Clock clock.Clock // nil: the system's

	// Latency is how long every call takes.
	Latency time.Duration

	// Fail, if set, runs before every call; the call returns its error. op is the name
	// of the method; id is the ID of the sandbox, container or image,
	// "namespace/name" of the pod for RunPodSandbox, the container's name for
	// CreateContainer, the path for ImportImages. It must not call the Runtime.
	// ErrLost and ErrTaskExists have special effects.
	Fail func(op, id string) error

	// Block, if set, runs before Fail with the same arguments; it may wait until ctx
	// ends, to simulate a runtime that does not answer.
	Block func(ctx context.Context, op, id string)

	// Stats returns the usage of a container; nil: only containers whose program simulates the use of CPU or memory have
	// statistics. It must not call the Runtime.
	Stats func(of *cri.ContainerAttributes) *cri.ContainerStats

	// Handlers and Features are reported by Status; Handlers includes the default one.
	// nil: not reported, as by containerd 1.6; the handlers are the default one and runc.
	Handlers []*cri.RuntimeHandler
	Features *cri.RuntimeFeatures

	// Subnet contains the addresses of pods. Default: 10.88.0.0/16, or with Loopback as
	// many 127.88.N.0/24 as are needed and not used by another process.
	Subnet netip.Prefix

	// Loopback makes the servers in pods listen on real loopback addresses.
	Loopback bool
}

// Runtime is a container runtime in memory. Each of its parts guards its own state; locks are taken in the order
// containers, sandboxes, images, network.
type Runtime struct {
	*events
	*imageService
	*sandboxService
	*containerService
	*streamService

	gate     *Gate
	network  *Network
	handlers []*cri.RuntimeHandler
	features *cri.RuntimeFeatures
}

// imageService is an alias, so that the field of the embedded type is not named images.
type imageService = images

var _ runtime.Runtime = (*Runtime)(nil)

// New returns an empty runtime. Close ends it.
func New(cfg Config) *Runtime {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	g := &Gate{Clock: cfg.Clock, latency: cfg.Latency, block: cfg.Block, fail: cfg.Fail}
	g.Context, g.cancel = context.WithCancel(context.Background())
	e := &events{gate: g, readers: map[*reader]struct{}{}}
	n := newNetwork(cfg.Subnet, cfg.Loopback)
	stored := &images{gate: g, images: map[string]*storedImage{}}
	sandboxes := &sandboxService{gate: g, events: e, network: n, handlers: cfg.Handlers, sandboxes: map[string]*sandbox{}}
	containers := &containerService{
		gate: g, events: e, images: stored, sandboxes: sandboxes, containers: map[string]*container{},
		users: cfg.Features.GetSupplementalGroupsPolicy(), stats: cfg.Stats,
	}
	return &Runtime{
		events: e, imageService: stored, sandboxService: sandboxes, containerService: containers,
		streamService: &streamService{gate: g, sandboxes: sandboxes, containers: containers},
		gate:          g, network: n, handlers: cfg.Handlers, features: cfg.Features,
	}
}

// Close kills every container, ends the streams and waits for all of them. Later calls
// return Unavailable.
func (r *Runtime) Close() error {
	r.gate.Close()
	return errors.Join(r.streamService.server.close(), r.network.Close())
}

// StopPodSandbox kills the sandbox's containers and frees its address.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	return r.gate.Answer(ctx, "StopPodSandbox", id, func() error { return r.stopSandbox(ctx, id) })
}

// stopSandbox closes the sandbox before it kills the containers, so that no new one starts.
func (r *Runtime) stopSandbox(ctx context.Context, id string) error {
	s, err := r.sandboxService.lookup(id)
	if err != nil {
		return nil
	}
	r.sandboxService.close(s)
	for _, c := range r.containerService.inside(s) {
		if err := r.containerService.kill(ctx, c); err != nil {
			return err
		}
	}
	r.sandboxService.end(s)
	return nil
}

// RemovePodSandbox stops the sandbox, and removes it with its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	return r.gate.Answer(ctx, "RemovePodSandbox", id, func() error {
		if err := r.stopSandbox(ctx, id); err != nil {
			return err
		}
		if s, err := r.sandboxService.lookup(id); err == nil {
			r.containerService.forget(r.containerService.inside(s)...)
			r.sandboxService.remove(s)
		}
		return nil
	})
}

// Dial connects to a server in a pod, as from the node.
func (r *Runtime) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return r.network.Dial(ctx, network, address)
}

// Holds reports whether a pod has the address.
func (r *Runtime) Holds(ip netip.Addr) bool { return r.network.Holds(ip) }

// Version reports CRI v1.
func (r *Runtime) Version(ctx context.Context) (*cri.VersionResponse, error) {
	if err := r.gate.Begin(ctx, "Version", ""); err != nil {
		return nil, err
	}
	// Every version of kubelet and CRI has sent and received 0.1.0.
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"},
		nil
}

// Status reports a ready runtime; use Config.Fail for other results.
func (r *Runtime) Status(ctx context.Context) (*cri.StatusResponse, error) {
	if err := r.gate.Begin(ctx, "Status", ""); err != nil {
		return nil, err
	}
	return &cri.StatusResponse{
		Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
			{Type: cri.RuntimeReady, Status: true},
			{Type: cri.NetworkReady, Status: true},
		}},
		RuntimeHandlers: r.handlers, Features: r.features,
	}, nil
}

// newID returns 64 random hexadecimal digits, as containerd does.
func newID() string {
	id := make([]byte, 32)
	rand.Read(id)
	return hex.EncodeToString(id)
}

// find returns the entry with the ID, or the only one whose ID begins with it.
func find[T any](all map[string]T, id string) (found T, ok bool) {
	if found, ok = all[id]; ok || id == "" {
		return found, ok
	}
	for full, entry := range all {
		if strings.HasPrefix(full, id) {
			if ok {
				return *new(T), false
			}
			found, ok = entry, true
		}
	}
	return found, ok
}
