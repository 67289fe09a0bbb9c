// Package cri implements runtime.Runtime over containerd: one gRPC connection for
// CRI, and for containerd's own services for events and image import. It supports
// containerd 1.6 and 2.x.
//
// Runtime needs only a socket; package containerd finds or starts the containerd behind it.
//
//   - shim.go: finds and ends containerd's shims: the processes that keep the containers of one pod
package cri

import (
	"context"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/host/oom"
	"monopod/agent/runtime"
	"monopod/apiserver/kit/guard"
)

const (
	// Namespace is the containerd namespace of CRI.
	Namespace = "k8s.io"
	// maxMessage is kubelet's limit for an answer of the runtime.
	maxMessage = 16 << 20
	// lag is how long CRI may take to learn of an exit after its event; measured 20
	// to 70 ms, and seconds for a killed shim.
	lag = 300 * time.Millisecond
)

// Config of a Runtime. Log is required.
type Config struct {
	Socket      string // its path
	Snapshotter string // for imported images; empty: what CRI says it uses, else overlayfs
	// StateDir is the folder in which our own containerd has the containers; pods
	// with user namespaces must be able to traverse it. Empty: another containerd.
	StateDir string
	// Kernel reports OOM kills, some of which containerd misses; nil: only containerd
	// reports them. Whoever opened it runs it.
	Kernel *oom.Log
	Log    *zap.Logger
	Guard  *guard.Guard // of the goroutines of Events; nil: their panics are only recovered
}

// Runtime is a connection to containerd. It is safe for concurrent use. Its methods
// fail with Unavailable while containerd is down, and it reconnects automatically.
type Runtime struct {
	*imageService
	config  Config
	conn    *grpc.ClientConn
	client  *containerd.Client
	pods    cri.RuntimeServiceClient
	known   known
	life    context.Context // ends with Close
	end     context.CancelFunc
	streams sync.WaitGroup // one for each running Events
	remains remains
}

var _ runtime.Runtime = (*Runtime)(nil)

// New returns a Runtime that connects on first use, so it does not wait for
// containerd.
func New(config Config) (*Runtime, error) {
	conn, err := Dial(config.Socket)
	if err != nil {
		return nil, err
	}
	client, err := containerd.NewWithConn(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	pods := cri.NewRuntimeServiceClient(conn)
	images := &imageService{configured: config.Snapshotter, client: client, pods: pods,
		images:  cri.NewImageServiceClient(conn),
		flusher: flusher{dir: config.StateDir, sync: syncFS, log: config.Log, guard: config.Guard}}
	return &Runtime{imageService: images, config: config, conn: conn, client: client, pods: pods, life: life, end: end,
		remains: remains{clock: clock.RealClock{}, log: config.Log, guard: config.Guard}}, nil
}

// Dial returns a connection to a containerd's socket, which is established on first use. It
// retries after 5 ms, because gRPC's second is longer than containerd takes to start.
func Dial(socket string) (*grpc.ClientConn, error) {
	// A node is not ready before its runtime answers, and an attempt costs less than 0.1 ms.
	retry := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 20 * time.Millisecond}
	return grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	)
}

// Close ends every stream of events and the connection.
func (r *Runtime) Close() error {
	r.end()
	err := r.conn.Close()
	r.streams.Wait()
	r.remains.wg.Wait()
	r.flusher.wg.Wait()
	return err
}

// InNamespace is ctx for containerd's own services; CRI needs no namespace.
func InNamespace(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, Namespace)
}

// present returns err, or nil for NotFound.
func present(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// Version is CRI's.
func (r *Runtime) Version(ctx context.Context) (*cri.VersionResponse, error) {
	return r.pods.Version(ctx, &cri.VersionRequest{})
}

// Status is CRI's. The first call that finds the runtime ready also begins to import the
// sandbox image, so that neither the first pod nor the node's readiness waits for it. A
// runtime that cannot import it is not ready.
func (r *Runtime) Status(ctx context.Context) (*cri.StatusResponse, error) {
	resp, err := r.pods.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return nil, err
	}
	if Condition(resp.Status, cri.RuntimeReady) {
		if err := r.pause.soon(func(do func()) { r.config.Guard.Go(&r.streams, "sandbox image", do) },
			func() error { return r.ensurePause(r.life) }); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// Condition reports whether a condition of the status holds; false if it is missing.
func Condition(s *cri.RuntimeStatus, name string) bool {
	for _, c := range s.GetConditions() {
		if c.Type == name {
			return c.Status
		}
	}
	return false
}

// once retries a function until it has succeeded.
type once struct {
	mu   sync.Mutex // held while the function runs: others wait for its outcome
	done bool
	// failed is the error of the last time.
	failed error
}

func (o *once) do(f func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return nil
	}
	o.failed = f()
	o.done = o.failed == nil
	return o.failed
}

// soon starts f, which calls do, unless it runs or has succeeded. It returns how it ended the last time.
func (o *once) soon(start func(func()), f func() error) error {
	if !o.mu.TryLock() { // it runs
		return nil
	}
	defer o.mu.Unlock()
	if !o.done {
		start(func() { _ = f() }) // the next call returns the error
	}
	return o.failed
}
