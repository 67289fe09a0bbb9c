package containerd

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

// On a machine that cannot run containers, possible returns an error of one line with a remedy.
func TestPossible(t *testing.T) {
	t.Parallel()
	type lacks struct {
		user       int
		capability int // 0: CAP_CHOWN, which possible does not check
		program    string
		oci        string // --oci-runtime
	}
	for said, l := range map[string]lacks{
		"use sudo":                 {user: 1000},
		"run it with --privileged": {capability: unix.CAP_NET_ADMIN},
		"cannot start containerd: not in PATH; install":                   {program: "containerd"},
		"cannot start containers: not in PATH; install":                   {program: "runc crun"},
		"--oci-runtime: cannot start containers: not in PATH; install it": {program: "youki", oci: "youki"},
	} {
		err := machine{
			user:          l.user,
			hasCapability: func(c int) bool { return c != l.capability },
			find: func(p string) error {
				if slices.Contains(strings.Fields(l.program), p) {
					return errors.New("not in PATH")
				}
				return nil
			},
		}.possible(Options{OCIRuntime: l.oci})
		if err == nil || !strings.Contains(err.Error(), said) || !strings.Contains(err.Error(), "--runtime=fake") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v", said, err)
		}
	}
}

// With a configured socket, no program is required.
func TestPossibleWithASocket(t *testing.T) {
	t.Parallel()
	m := machine{hasCapability: func(int) bool { return true }, find: func(string) error { return errors.New("none") }}
	if err := m.possible(Options{Containerd: "/a.sock"}); err != nil {
		t.Error(err)
	}
}

// fastClock advances by a second with every reading.
type fastClock struct{ *testclock.FakeClock }

var _ clock.Clock = fastClock{}

func (c fastClock) Since(t time.Time) time.Duration {
	c.Step(time.Second)
	return c.FakeClock.Since(t)
}

func (c fastClock) After(time.Duration) <-chan time.Time {
	at := make(chan time.Time, 1)
	at <- c.Now()
	return at
}

func newFastClock() fastClock {
	return fastClock{testclock.NewFakeClock(time.Unix(1e9, 0))}
}

type versions struct {
	api.UnimplementedRuntimeServiceServer
}

func (versions) Version(context.Context, *api.VersionRequest) (*api.VersionResponse, error) {
	return &api.VersionResponse{}, nil
}

// serveCRI runs a gRPC server on a socket, with or without CRI.
func serveCRI(t *testing.T, with bool) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	if with {
		api.RegisterRuntimeServiceServer(s, versions{})
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return socket
}

func TestAwait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		socket func(t *testing.T) string
		want   string
		warned int
	}{
		"answers": {func(t *testing.T) string { return serveCRI(t, true) }, "", 0},
		"no CRI": {func(t *testing.T) string { return serveCRI(t, false) },
			"does not serve CRI: unknown service runtime.v1.RuntimeService; take \"cri\" out of disabled_plugins", 0},
		"dead": {func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }, "no such file or directory", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zapcore.InfoLevel)
			err := Await(t.Context(), c.socket(t), newFastClock(), zap.New(core))
			if logs.Len() != c.warned {
				t.Errorf("logged %v", logs.All())
			}
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), "--containerd: ") || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "--runtime=fake") {
				t.Errorf("got %v", err)
			}
		})
	}
}
