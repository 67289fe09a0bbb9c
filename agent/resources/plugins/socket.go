package plugins

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/unixsocket"
)

// BufferSize is the size of gRPC's buffers for each direction of a connection, in bytes. It is small because there are
// only a few messages a day.
const BufferSize = 4 << 10

// Listen listens at path, as unixsocket.Listen does. It creates the folder with access for owner and group.
func Listen(path string) (net.Listener, error) {
	if err := unixsocket.Check(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	return unixsocket.Listen(path)
}

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// maxMessage is the maximum size of a plugin's message, such as a list of devices, in bytes (upstream: 16 MiB).
const maxMessage = 16 << 20

// Open returns a connection to the socket at path, which is established on first use. called runs after each call, with
// its method, start and error; it may be nil.
func Open(path string, dial func(ctx context.Context, path string) (net.Conn, error),
	called func(method string, began time.Time, err error)) (*grpc.ClientConn, error) {
	observe := func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		began := time.Now()
		err := invoke(ctx, method, request, answer, conn, options...)
		if called != nil {
			called(method, began, err)
		}
		return err
	}
	return grpc.NewClient("passthrough:///"+path, grpc.WithAuthority("localhost"), grpc.WithUnaryInterceptor(observe),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, path) }),
		grpc.WithReadBufferSize(BufferSize), grpc.WithWriteBufferSize(BufferSize),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
}

// acceptPause is the time before accept is retried when the process has too many open files.
const acceptPause = time.Second

// Serve serves l until ctx ends, and closes it. A panic of a service fails its request; the guard counts it for the
// part. The gRPC server is created when the first client connects, so that an unused socket takes no memory.
func Serve(ctx context.Context, l net.Listener, g *guard.Guard, part string,
	register func(grpc.ServiceRegistrar)) error {
	closing := context.AfterFunc(ctx, func() { l.Close() })
	defer closing()
	conn, err := acceptFirst(ctx, l)
	if err != nil {
		return err
	}
	if conn == nil {
		return nil
	}
	s := grpc.NewServer(grpc.ReadBufferSize(BufferSize), grpc.WriteBufferSize(BufferSize),
		grpc.UnaryInterceptor(guarded(g, part)))
	register(s)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	err = s.Serve(&preAccepted{Listener: l, conn: conn})
	s.Stop() // waits for running requests
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// guarded returns an interceptor that recovers panics of handlers, because gRPC does not.
func guarded(g *guard.Guard, part string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any,
		err error) {
		err = g.Call(part, func() (err error) { answer, err = handle(ctx, request); return err })
		if p := (*guard.Panic)(nil); errors.As(err, &p) {
			return nil, status.Error(codes.Internal, "the server panicked, see its log")
		}
		return answer, err
	}
}

// acceptFirst waits for the first client; nil: ctx has ended.
func acceptFirst(ctx context.Context, l net.Listener) (net.Conn, error) {
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, net.ErrClosed):
			return nil, err
		}
		if !backoff.Sleep(ctx, clock.RealClock{}, acceptPause) {
			return nil, nil
		}
	}
}

// preAccepted is a listener that returns an already accepted connection first.
type preAccepted struct {
	net.Listener
	once sync.Once
	conn net.Conn
}

func (e *preAccepted) Accept() (net.Conn, error) {
	var conn net.Conn
	e.once.Do(func() { conn = e.conn })
	if conn != nil {
		return conn, nil
	}
	return e.Listener.Accept()
}
