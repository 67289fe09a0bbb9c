// Package cri implements runtime.Runtime over containerd: one gRPC connection for
// CRI, and for containerd's own services for events and image import. It supports
// containerd 1.6 and 2.x.
//
// Runtime needs only a socket; package containerd finds or starts the containerd behind it.
//
//   - shim.go: finds and kills containerd's shims: the parent processes of a pod's containers
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
	// exitLag is how long CRI may take to report an exit after its event. Measured were 20 to 70 ms, and seconds for a
	// killed shim.
	exitLag = 300 * time.Millisecond
)

// Config of a Runtime. Log is required.
type Config struct {
	Socket      string // path
	Snapshotter string // for imported images; empty: the one that CRI reports, else overlayfs
	// StateDir is the folder of the running containers of monopod's own containerd; pods with user namespaces must be
	// able to traverse it. Empty: another containerd is used.
	StateDir string
	// Users returns why the kernel cannot run pods with user namespaces, which containerd reports as a feature anyway;
	// nil: not checked. It is called once.
	Users func() error
	// Kernel reports OOM kills, some of which containerd misses. The caller runs it. nil: only containerd reports them.
	Kernel *oom.Log
	Log    *zap.Logger
	Guard  *guard.Guard // of the goroutines of Events; nil: their panics are only recovered
}

// Runtime is a connection to containerd. It is safe for concurrent use. Its methods
// fail with Unavailable while containerd is down, and it reconnects automatically.
type Runtime struct {
	*imageService
	config     Config
	conn       *grpc.ClientConn
	client     *containerd.Client
	pods       cri.RuntimeServiceClient
	owners     owners
	life       context.Context // ends with Close
	end        context.CancelFunc
	streams    sync.WaitGroup // one for each running Events
	noUsers    func() bool    // Users returned an error
	shimReaper shimReaper
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
	images := &imageService{configuredSnapshotter: config.Snapshotter, client: client, pods: pods,
		images:  cri.NewImageServiceClient(conn),
		flusher: flusher{dir: config.StateDir, sync: syncFS, log: config.Log, guard: config.Guard}}
	return &Runtime{imageService: images, config: config, conn: conn, client: client, pods: pods, life: life, end: end,
		noUsers:    sync.OnceValue(func() bool { return config.Users != nil && config.Users() != nil }),
		shimReaper: shimReaper{clock: clock.RealClock{}, log: config.Log, guard: config.Guard}}, nil
}

// Dial returns a connection to containerd's socket. It connects on first use and retries after 5 ms, because gRPC's
// default of a second is longer than containerd takes to start.
func Dial(socket string) (*grpc.ClientConn, error) {
	// An attempt costs less than 0.1 ms, and the node is not ready until one succeeds.
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
	r.shimReaper.wg.Wait()
	r.flusher.wg.Wait()
	return err
}

// InNamespace returns a context for containerd's own services; CRI needs no namespace.
func InNamespace(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, Namespace)
}

// ignoreNotFound returns err, or nil if it is NotFound.
func ignoreNotFound(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// Version is CRI's.
func (r *Runtime) Version(ctx context.Context) (*cri.VersionResponse, error) {
	return r.pods.Version(ctx, &cri.VersionRequest{})
}

// Status is CRI's. The first call that finds the runtime ready also begins to import the sandbox image, so that the
// first pod does not wait for it. It fails if the import failed.
func (r *Runtime) Status(ctx context.Context) (*cri.StatusResponse, error) {
	resp, err := r.pods.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return nil, err
	}
	for _, h := range resp.RuntimeHandlers {
		if h.GetFeatures().GetUserNamespaces() && r.noUsers() {
			h.Features.UserNamespaces = false
		}
	}
	if Condition(resp.Status, cri.RuntimeReady) {
		if err := r.pause.start(func(do func()) { r.config.Guard.Go(&r.streams, "sandbox image", do) },
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

// once calls a function until it has succeeded once.
type once struct {
	mu   sync.Mutex // held while the function runs: others wait for its outcome
	done bool
	// lastErr is the error of the last time.
	lastErr error
}

func (o *once) do(f func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return nil
	}
	o.lastErr = f()
	o.done = o.lastErr == nil
	return o.lastErr
}

// start starts f, which calls do, in the background, unless f is running or has succeeded. It returns the error of the
// last call.
func (o *once) start(start func(func()), f func() error) error {
	if !o.mu.TryLock() { // f is running
		return nil
	}
	defer o.mu.Unlock()
	if !o.done {
		start(func() { _ = f() }) // the next call returns the error
	}
	return o.lastErr
}
