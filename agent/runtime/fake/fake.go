// Package fake is runtime.Runtime in memory, for sandbox mode and tests.
//
// A container is a goroutine that runs the sample program (package
// agent/runtime/fake/program) with the command, environment, mounts and signals of
// its CRI config. Its logs are files in CRI's format; files outside its mounts
// live in memory and die with it.
//
// Images: an imported archive brings its name, entry point and environment;
// PullImage asks registries on loopback and pretends to fetch any other name; such
// an image of nowhere runs the default web
// server whenever its command is one that the sample program does not know. A
// pod of any image is Running in a millisecond. In an imported image an unknown
// command fails to start, as it does in a real one.
//
// An image volume shows the files of an image whose layers are small (1 MiB each at
// most); one of nowhere is empty.
//
// Network: pods get addresses of their own, but no packets. What listens in a
// pod is reached through Dial (for probes), through PortForward, and by other
// containers (web get http://10.88.0.3:8080/); not by curl from the host. With
// Config.Loopback pods get addresses in 127.0.0.0/8, on which their servers
// really listen, so that curl works too.
//
// Nothing is stored on disk: the state exists as long as the Runtime, across restarts
// of the agent above it. Everything runs in a testing/synctest bubble, except Exec,
// Attach and PortForward, whose streams are real connections to a loopback server
// that starts with the first of them.
package fake

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/runtime"
	"monopod/agent/runtime/fake/addresses"
)

// Config of a Runtime; its zero value works.
type Config struct {
	Clock clock.Clock // nil: the real one

	// Latency is how long every call takes.
	Latency time.Duration

	// Fail, if set, is asked before every call and can make it fail. op is the name
	// of the method; id is the sandbox, container or image that it is about,
	// "namespace/name" of the pod for RunPodSandbox, the container's name for
	// CreateContainer, the path for ImportImages. It must not call the Runtime.
	// ErrLost and ErrTaskExists have special effects.
	Fail func(op, id string) error

	// Block, if set, is called before every call, with what Fail is asked; it may wait
	// until ctx ends, as for a runtime that does not answer.
	Block func(ctx context.Context, op, id string)

	// Stats is what a container uses, its attributes included; nil: the runtime
	// has no statistics. It must not call the Runtime.
	Stats func(of *cri.ContainerAttributes) *cri.ContainerStats

	// Handlers are the runtime's, the default one included, and Features what all
	// of them can; nil: the runtime does not tell, as containerd 1.6, and has the
	// default one and runc.
	Handlers []*cri.RuntimeHandler
	Features *cri.RuntimeFeatures

	// Subnet is where the addresses of pods come from. By default it is 10.88.0.0/16,
	// or with Loopback each 127.88.N.0/24 that is needed and no other process has.
	Subnet netip.Prefix

	// Loopback makes the servers in pods listen on real loopback addresses.
	Loopback bool
}

// Runtime is a container runtime in memory.
type Runtime struct {
	cfg    Config
	clock  clock.Clock
	ctx    context.Context // of every process; ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // processes and readers of events; joined only under mu, before ctx ends
	events hub
	server server

	mu         sync.Mutex // guards the maps, and the fields in them that say so
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*image // by ID
	addresses  *addresses.Pool
	at         map[netip.Addr]*sandbox
}

var _ runtime.Runtime = (*Runtime)(nil)

// New returns an empty runtime. Close ends it.
func New(cfg Config) *Runtime {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Runtime{
		cfg: cfg, clock: cfg.Clock, ctx: ctx, cancel: cancel,
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, images: map[string]*image{},
		addresses: addresses.New(cfg.Subnet, cfg.Loopback), at: map[netip.Addr]*sandbox{},
	}
}

// Close kills every container, ends the streams and waits for all of it. Calls
// that come later fail as Unavailable.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.tasks.Wait()
	err := r.server.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(err, r.addresses.Close())
}

// Version answers CRI's v1.
func (r *Runtime) Version(ctx context.Context) (*cri.VersionResponse, error) {
	if err := r.begin(ctx, "Version", ""); err != nil {
		return nil, err
	}
	// Version 0.1.0 is what the kubelet has sent and received since CRI began.
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status reports a ready runtime; use Config.Fail for other results.
func (r *Runtime) Status(ctx context.Context) (*cri.StatusResponse, error) {
	if err := r.begin(ctx, "Status", ""); err != nil {
		return nil, err
	}
	return &cri.StatusResponse{
		Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
			{Type: cri.RuntimeReady, Status: true},
			{Type: cri.NetworkReady, Status: true},
		}},
		RuntimeHandlers: r.cfg.Handlers, Features: r.cfg.Features,
	}, nil
}

// begin is the start of every call that only looks.
func (r *Runtime) begin(ctx context.Context, op, id string) error {
	err := r.enter(ctx, op, id)
	if errors.Is(err, ErrLost) {
		return errBroken
	}
	return err
}

// enter is the start of every call: its latency and its failures.
func (r *Runtime) enter(ctx context.Context, op, id string) error {
	if r.cfg.Block != nil {
		r.cfg.Block(ctx, op, id)
	}
	if r.cfg.Latency > 0 {
		select {
		case <-ctx.Done():
		case <-r.clock.After(r.cfg.Latency):
		}
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if r.ctx.Err() != nil {
		return status.Error(codes.Unavailable, "the runtime is closed")
	}
	if r.cfg.Fail != nil {
		return r.cfg.Fail(op, id)
	}
	return nil
}

// newID is a random name of 64 hexadecimal digits, as containerd gives.
func newID() string {
	id := make([]byte, 32)
	rand.Read(id)
	return hex.EncodeToString(id)
}

// find returns the entry whose ID is or begins with id, if only one does.
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
