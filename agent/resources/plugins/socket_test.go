package plugins

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod/apiserver/kit/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func short(t *testing.T) string {
	dir, err := os.MkdirTemp("", "mps") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "below", "s.sock")
}

func TestServe(t *testing.T) {
	t.Parallel()
	path := short(t)
	for range 2 { // the second Listen finds the socket of the first
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if i, err := os.Stat(path); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("socket: %v %v", i, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done, made := make(chan error, 1), make(chan struct{}, 2)
		go func() { done <- Serve(ctx, l, nil, "test", func(grpc.ServiceRegistrar) { made <- struct{}{} }) }()
		select {
		case <-made:
			t.Error("Serve registered the services before the first connection")
		default:
		}
		for range 2 {
			conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			err = conn.Invoke(t.Context(), "/none/None", nil, nil)
			if code := status.Code(err); code != codes.Internal && code != codes.Unimplemented {
				t.Errorf("call of an unknown method: %v", err)
			}
			conn.Close()
		}
		cancel()
		if err := <-done; err != nil || len(made) > 1 {
			t.Errorf("Serve returned %v, registered the services %d times", err, len(made))
		}
	}
}

// frail is a service that panics.
type frail struct {
	api.UnimplementedPodResourcesListerServer
}

func (frail) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	panic("boom")
}

// A panic of a service fails one request. The process continues, and its health check reports the panic.
func TestPanicFailsRequest(t *testing.T) {
	t.Parallel()
	path := short(t)
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	g := guard.Logging(zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	over := guard.Spawn(func() error {
		return Serve(ctx, l, g, "frail", func(r grpc.ServiceRegistrar) { api.RegisterPodResourcesListerServer(r, frail{}) })
	})
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		_, err = api.NewPodResourcesListerClient(conn).List(t.Context(), &api.ListPodResourcesRequest{})
		if status.Code(err) != codes.Internal || g.Check() == nil || g.Check().Error() != "frail: panic: boom" {
			t.Errorf("error %v, health %v", err, g.Check())
		}
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestNoClientConnects(t *testing.T) {
	t.Parallel()
	l, err := Listen(short(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Serve(ctx, l, nil, "test", nil); err != nil {
		t.Error(err)
	}
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	if _, err := Listen("/" + strings.Repeat("x", 107)); err == nil ||
		!strings.Contains(err.Error(), "choose a shorter --data-dir") {
		t.Error(err)
	}
}
