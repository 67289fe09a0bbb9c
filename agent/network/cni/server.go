package cni

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
)

// The wire format; the stub has the same numbers. All integers are in the machine's byte order.
//
//	request: magic, size of head, size of config; head; config
//	head:    plugin NUL (CNI_NAME=value NUL)…
//	answer:  magic, exit code, size of output; output
const (
	magic      = 0x31504e4d
	headerSize = 12
	maxRequest = 128 << 10
	maxOutput  = 64 << 10
)

const (
	maxCalls       = 16 // at once; others wait in the socket's queue
	requestTimeout = 2 * time.Second
	answerTimeout  = 2 * time.Second
	acceptPause    = 100 * time.Millisecond // after a failure, for instance too many open files
)

// Server answers the stub in the network namespace in which Listen was called.
type Server struct {
	network  Network
	log      *zap.Logger
	admit    Admit
	listener *net.UnixListener
	host     netns.NsHandle
	inHost   bool // host is the process's namespace: threads are in it unless they are locked
}

// Listen opens the socket, which only root can use. Calls wait until Serve, which also closes the socket. Every ADD
// calls admit, unless it is nil.
func (n Network) Listen(log *zap.Logger, admit Admit) (*Server, error) {
	if err := os.Remove(n.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// The path leads through the open folder, because the path of a socket has a maximum length.
	dir, err := os.Open(n.serverDir())
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{
		Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(n.socket())),
	})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // Serve removes it by its own path
	if err := os.Chmod(n.socket(), 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s := &Server{network: n, log: log, admit: admit, listener: listener}
	if s.host, err = netns.Get(); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if process, err := netns.GetFromPid(os.Getpid()); err == nil {
		s.inHost = process.Equal(s.host)
		process.Close()
	}
	return s, nil
}

// Serve answers until ctx ends. It then waits for calls in progress, and closes and removes the socket.
func (s *Server) Serve(ctx context.Context) {
	defer s.host.Close()
	stop := context.AfterFunc(ctx, func() { s.listener.Close() })
	defer func() { stop(); s.listener.Close(); os.Remove(s.network.socket()) }()
	var calls guard.Group
	calls.SetLimit(maxCalls)
	for ctx.Err() == nil {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("failed to accept a call of the network plugin", zap.Error(err))
				backoff.Sleep(ctx, clock.RealClock{}, acceptPause)
			}
			continue
		}
		calls.Do(func() error {
			defer conn.Close()
			if err := guard.Call(func() error { return s.answer(conn) }); err != nil {
				s.log.Warn("failed to answer a call of the network plugin", zap.Error(err))
			}
			return nil
		})
	}
	if err := calls.Wait(); err != nil {
		s.log.Error("failed to wait for the calls of the network plugin", zap.Error(err))
	}
}

// answer executes one call. The stub executes it itself if the connection ends without an answer.
func (s *Server) answer(conn *net.UnixConn) error {
	if err := fromRoot(conn); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	c, err := readCall(conn)
	if err != nil {
		return err
	}
	c.admit = s.admit
	return s.onHost(func() error {
		return c.run(func() bool { return waits(conn) }, func(a answer) error { return writeAnswer(conn, a) })
	})
}

// onHost calls f in the server's network namespace. Unless that is the process's, f runs in a locked thread, which is
// not reused if it is in another namespace before or after f.
func (s *Server) onHost(f func() error) error {
	if s.inHost {
		return f()
	}
	runtime.LockOSThread()
	inHost, err := s.threadInHost()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	if !inHost {
		if err := netns.Set(s.host); err != nil {
			return fmt.Errorf("enter the host's network namespace: %w", err)
		}
		return f()
	}
	defer func() {
		if inHost, err := s.threadInHost(); inHost && err == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// threadInHost reports whether the thread is in the server's network namespace.
func (s *Server) threadInHost() (bool, error) {
	now, err := netns.Get()
	if err != nil {
		return false, err
	}
	defer now.Close()
	return now.Equal(s.host), nil
}

// fromRoot returns an error unless the client is root.
func fromRoot(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var perr error
	if err := raw.Control(func(fd uintptr) {
		peer, perr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if perr == nil && peer.Uid != 0 {
		perr = fmt.Errorf("user %d may not call the network plugin", peer.Uid)
	}
	return perr
}

// waits reports whether the stub still waits for its answer.
func waits(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	waiting := false
	err = raw.Control(func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		waiting = errors.Is(err, unix.EAGAIN)
	})
	return waiting && err == nil
}

// readCall reads a request of at most maxRequest bytes.
func readCall(r io.Reader) (call, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return call{}, fmt.Errorf("read request: %w", err)
	}
	head, config := binary.NativeEndian.Uint32(header[4:]), binary.NativeEndian.Uint32(header[8:])
	if m := binary.NativeEndian.Uint32(header[:]); m != magic || uint64(head)+uint64(config) > maxRequest {
		return call{}, fmt.Errorf("invalid request: magic %#x, %d and %d bytes", m, head, config)
	}
	data := make([]byte, head+config)
	if _, err := io.ReadFull(r, data); err != nil {
		return call{}, fmt.Errorf("read request: %w", err)
	}
	parts := strings.Split(strings.TrimSuffix(string(data[:head]), "\x00"), "\x00")
	c := call{plugin: parts[0], env: make(map[string]string, len(parts)), config: data[head:]}
	if verbs(c.plugin) == nil {
		return call{}, fmt.Errorf("invalid request: unknown plugin %.50q", c.plugin)
	}
	for _, v := range parts[1:] {
		name, value, found := strings.Cut(v, "=")
		if !found || !strings.HasPrefix(name, "CNI_") {
			return call{}, fmt.Errorf("invalid request: %.50q is not a variable of CNI", v)
		}
		c.env[name] = value
	}
	return c, nil
}

func writeAnswer(conn net.Conn, a answer) error {
	if len(a.output) > maxOutput {
		return fmt.Errorf("the plugin's output of %d bytes is too large", len(a.output))
	}
	data := make([]byte, headerSize, headerSize+len(a.output))
	binary.NativeEndian.PutUint32(data, magic)
	binary.NativeEndian.PutUint32(data[4:], a.code)
	binary.NativeEndian.PutUint32(data[8:], uint32(len(a.output)))
	if err := conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	_, err := conn.Write(append(data, a.output...))
	return err
}
