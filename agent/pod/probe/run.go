// Package probe probes containers.
//
//   - Caller runs the handler of a probe or a hook once.
//   - Manager runs the probes of running containers periodically, applies thresholds and reports changed results.
package probe

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Execer runs a command in a container.
type Execer interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32,
		err error)
}

// Caller connects to containers.
type Caller struct {
	Exec Execer
	Dial func(ctx context.Context, network, address string) (net.Conn, error) // nil: the machine's network
}

func (c Caller) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Dial != nil {
		return c.Dial(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// Target is the container of a handler.
type Target struct {
	ContainerID string
	Host        string // the pod's address
	Ports       []corev1.ContainerPort
}

// UnknownError means that a handler failed to run. A probe with this error counts neither as success nor as failure.
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string { return e.Err.Error() }
func (e *UnknownError) Unwrap() error { return e.Err }

// execSlack is the additional time in which the runtime must report that a command timed out (upstream: 2 min).
const execSlack = 2 * time.Minute

// Do runs a probe's handler once. A warning is only returned with a success, for an event. The error is the text of an
// event.
func (c Caller) Do(ctx context.Context, h *corev1.ProbeHandler, t Target,
	timeout time.Duration) (warning string, err error) {
	if h.Exec != nil {
		return "", c.command(ctx, t.ContainerID, h.Exec.Command, timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case h.HTTPGet != nil:
		return c.http(ctx, h.HTTPGet, t)
	case h.TCPSocket != nil:
		return "", c.tcp(ctx, h.TCPSocket, t)
	case h.GRPC != nil:
		return "", c.health(ctx, h.GRPC, t, timeout)
	}
	return "", &UnknownError{errors.New("missing probe handler")}
}

// command runs a command. For an exit code other than 0, the error is the command's output.
func (c Caller) command(ctx context.Context, id string, cmd []string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout+execSlack)
	defer cancel()
	stdout, stderr, code, err := c.Exec.ExecSync(ctx, id, cmd, timeout)
	if status.Code(err) == codes.DeadlineExceeded {
		return fmt.Errorf("command timed out: %q timed out after %v", strings.Join(cmd, " "), timeout)
	}
	if err != nil {
		return &UnknownError{err}
	}
	if code != 0 {
		return errors.New(clip(append(stdout, stderr...)))
	}
	return nil
}

// maxOutput limits the output of a command and the body of an HTTP response, in bytes (upstream: 10 KiB).
const maxOutput = 10 << 10

func clip(b []byte) string {
	return string(bytes.ToValidUTF8(b[:min(len(b), maxOutput)], nil))
}

// Port returns the number of a port, which p names or contains.
func Port(p intstr.IntOrString, ports []corev1.ContainerPort) (int, error) {
	n := p.IntValue()
	if p.Type == intstr.String {
		i := slices.IndexFunc(ports, func(port corev1.ContainerPort) bool { return port.Name == p.StrVal })
		if i >= 0 {
			n = int(ports[i].ContainerPort)
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("invalid port: %s", p.String())
	}
	return n, nil
}

func (c Caller) tcp(ctx context.Context, a *corev1.TCPSocketAction, t Target) error {
	port, err := Port(a.Port, t.Ports)
	if err != nil {
		return &UnknownError{err}
	}
	conn, err := c.dial(ctx, "tcp", net.JoinHostPort(cmp.Or(a.Host, t.Host), strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// health checks with the gRPC health protocol. The errors are upstream's.
func (c Caller) health(ctx context.Context, a *corev1.GRPCAction, t Target, timeout time.Duration) error {
	addr := net.JoinHostPort(t.Host, strconv.Itoa(int(a.Port)))
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return c.dial(ctx, "tcp", addr) }))
	if err != nil {
		return err
	}
	defer conn.Close()
	service := ""
	if a.Service != nil {
		service = *a.Service
	}
	if !connected(ctx, conn) {
		return fmt.Errorf("timeout: failed to connect service %q within %v: %w", addr, timeout, context.DeadlineExceeded)
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	switch s := status.Convert(err); {
	case err == nil:
	case s.Code() == codes.Unimplemented:
		return fmt.Errorf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s",
			s.Message())
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("timeout: health rpc did not complete within %v", timeout)
	default:
		return fmt.Errorf("error: health rpc probe failed: %w", err)
	}
	if resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("service unhealthy (responded with %q)", resp.Status.String())
	}
	return nil
}

// connected waits until the connection is ready. It returns false if ctx ends first.
func connected(ctx context.Context, conn *grpc.ClientConn) bool {
	conn.Connect()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return true
		}
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}
