package fake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"monopod/agent/runtime"
	"monopod/agent/runtime/fake/program"
	"monopod/apiserver/kit/guard"
)

// ExecSync runs a command in a container. It kills the command and returns
// DeadlineExceeded after timeout (0: no limit).
func (s *containerService) ExecSync(ctx context.Context, id string, cmd []string,
	timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	if err := s.gate.Begin(ctx, "ExecSync", id); err != nil {
		return nil, nil, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var limit <-chan time.Time
	if timeout > 0 {
		timer := s.gate.Clock.NewTimer(timeout)
		defer timer.Stop()
		limit = timer.C()
	}
	var out, errs bytes.Buffer
	var code int
	ended := guard.Spawn(func() (err error) {
		code, err = s.exec(ctx, id, cmd, nil, &out, &errs)
		return err
	})
	select {
	case err := <-ended:
		return out.Bytes(), errs.Bytes(), int32(code), err
	case <-limit:
		cancel()
		guard.Raise(<-ended)
		return nil, nil, 0, status.Errorf(codes.DeadlineExceeded, "command took longer than %s", timeout)
	}
}

// exec runs a command in a container until the command, the container or ctx ends.
func (s *containerService) exec(ctx context.Context, id string, cmd []string, in io.Reader, out,
	errs io.Writer) (int, error) {
	c, p, err := s.lookupRunning(id)
	if err != nil {
		return 0, err
	}
	if len(cmd) == 0 || !program.Knows(cmd[0]) {
		return 0, status.Errorf(codes.Unknown, "exec %q: executable file not found", cmd)
	}
	inside, cancel := context.WithCancel(p.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	code := program.Run(inside, s.program(c, cmd, in, out, errs, nil))
	if err := ctx.Err(); err != nil {
		return 0, status.FromContextError(err).Err()
	}
	return code, nil
}

// streamService returns the URLs of the streaming server and owns the server.
type streamService struct {
	gate       *Gate
	sandboxes  *sandboxService
	containers *containerService
	server     server
}

// Exec returns a URL that runs the command once.
func (s *streamService) Exec(ctx context.Context, req *cri.ExecRequest) (string, error) {
	return s.stream(ctx, "Exec", req.GetContainerId(), func(server streaming.Server) (string, error) {
		if _, _, err := s.containers.lookupRunning(req.GetContainerId()); err != nil {
			return "", err
		}
		resp, err := server.GetExec(req)
		return resp.GetUrl(), err
	})
}

// Execs implements runtime.Runtime: there are no processes.
func (s *streamService) Execs(context.Context, string) ([]runtime.Process, error) {
	return nil, status.Error(codes.Unimplemented, "no processes run in containers")
}

// Attach returns a URL for the streams of the container.
func (s *streamService) Attach(ctx context.Context, req *cri.AttachRequest) (string, error) {
	return s.stream(ctx, "Attach", req.GetContainerId(), func(server streaming.Server) (string, error) {
		if _, _, err := s.containers.lookupRunning(req.GetContainerId()); err != nil {
			return "", err
		}
		resp, err := server.GetAttach(req)
		return resp.GetUrl(), err
	})
}

// PortForward returns a URL for ports of the sandbox.
func (s *streamService) PortForward(ctx context.Context, req *cri.PortForwardRequest) (string, error) {
	return s.stream(ctx, "PortForward", req.GetPodSandboxId(), func(server streaming.Server) (string, error) {
		if _, err := s.readySandbox(req.GetPodSandboxId()); err != nil {
			return "", err
		}
		resp, err := server.GetPortForward(req)
		return resp.GetUrl(), err
	})
}

func (s *streamService) stream(ctx context.Context, op, id string,
	get func(streaming.Server) (string, error)) (string, error) {
	if err := s.gate.Begin(ctx, op, id); err != nil {
		return "", err
	}
	server, err := s.server.start(streams{s})
	if err != nil {
		return "", err
	}
	return get(server)
}

func (s *streamService) readySandbox(id string) (*sandbox, error) {
	found, err := s.sandboxes.lookup(id)
	if err != nil {
		return nil, err
	}
	return found, s.sandboxes.ready(found)
}

// streams are the handlers of the streaming server.
type streams struct{ *streamService }

var _ streaming.Runtime = streams{}

func (s streams) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool,
	_ <-chan remotecommand.TerminalSize) error {
	stdout, stderr := outputs(out, errs, tty)
	code, err := s.containers.exec(ctx, id, cmd, in, stdout, stderr)
	if err != nil || code == 0 {
		return err
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
}

// outputs replaces the streams that the client did not request by io.Discard. A terminal has only stdout, with a
// carriage return at the end of each line.
func outputs(out, errs io.Writer, tty bool) (stdout, stderr io.Writer) {
	if stdout = io.Discard; out != nil {
		stdout = out
	}
	if tty {
		stdout = terminal{stdout}
		return stdout, stdout
	}
	if stderr = io.Discard; errs != nil {
		stderr = errs
	}
	return stdout, stderr
}

type terminal struct{ io.Writer }

func (t terminal) Write(p []byte) (int, error) {
	_, err := t.Writer.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n")))
	return len(p), err
}

// Attach returns when the container ends or the client disconnects.
func (s streams) Attach(ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool,
	_ <-chan remotecommand.TerminalSize) error {
	c, p, err := s.containers.lookupRunning(id)
	if err != nil {
		return err
	}
	stdout, stderr := outputs(out, errs, tty)
	toOut, detach := p.out.Attach(stdout)
	defer detach()
	if p.err != p.out {
		_, detach := p.err.Attach(stderr)
		defer detach()
	}
	if in != nil && p.typed != nil {
		(*guard.Guard)(nil).Spawn("stdin", func() {
			io.Copy(p.typed, in)
			if c.config.StdinOnce {
				p.typed.Close()
			}
		})
	}
	select {
	case <-p.done:
	case <-toOut.Gone:
	case <-ctx.Done():
	}
	return nil
}

// PortForward copies until both sides have ended. It returns an error only if the port cannot be reached: kubectl takes
// any other error for the loss of the pod and ends all of its connections.
func (s streams) PortForward(ctx context.Context, id string, number int32, stream io.ReadWriteCloser) error {
	sandbox, err := s.readySandbox(id)
	if err != nil {
		return err
	}
	conn, err := sandbox.endpoint.Dial(ctx, "tcp", fmt.Sprintf("localhost:%d", number))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(s.gate.Context, func() { conn.Close() })()
	sent := guard.Spawn(func() error {
		io.Copy(conn, stream)
		closeWrite(conn)
		return nil
	})
	io.Copy(stream, conn)
	stream.Close()
	guard.Raise(<-sent)
	return nil
}

// closeWrite closes the client's side of a connection. The rest of the server's answer arrives, except through a pipe,
// which has no half-closed state.
func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the connection may be closed already
		return
	}
	conn.Close()
}
