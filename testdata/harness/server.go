package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a monopod and its data folder.
type Server struct {
	Dir string
	Cmd *exec.Cmd
	Log *bytes.Buffer // the output of all its runs; read it only while it does not run
	// Netns is the name of the network namespace of the process; empty: that of the test.
	Netns string

	done chan struct{}
}

// NewServer returns a monopod with the data folder dir. Start runs it.
func NewServer(program, dir string, flags ...string) *Server {
	return &Server{Dir: dir, Log: &bytes.Buffer{}, Cmd: &exec.Cmd{
		Path: program,
		Args: append([]string{"monopod", "serve", "--data-dir", dir, "--listen", "127.0.0.1:0"}, flags...),
	}}
}

// NewFolder returns a new data folder with the sample image. Its path is short, because the path of a Unix socket has
// at most 107 bytes.
func (p Programs) NewFolder() (string, error) {
	dir, err := os.MkdirTemp("", "mp")
	if err != nil {
		return "", err
	}
	images := filepath.Join(dir, "images")
	return dir, errors.Join(os.MkdirAll(images, 0o700), CopyFile(filepath.Join(images, "web.tar"), p.Image()))
}

// CopyFile copies a file through memory.
func CopyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// Start runs the command, also repeatedly.
func (s *Server) Start() {
	// atexit_sleep_ms=0 disables the race detector's pause at each exit: monopod is also the network plugin, which runs
	// several times for each pod.
	s.Cmd = &exec.Cmd{Path: s.Cmd.Path, Args: s.Cmd.Args, Stderr: s.Log, Stdout: s.Log,
		Env:         append(os.Environ(), "GORACE=atexit_sleep_ms=0", "MONOPOD_BIN_DIR="+binDir(s.Cmd.Path)),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	s.done = make(chan struct{})
	program, args := s.Cmd.Path, s.Cmd.Args
	if s.Netns != "" {
		s.Cmd.Path, s.Cmd.Args = nsenter, Inside(s.Netns, append([]string{program}, args[1:]...)...).Args
	}
	err := s.Cmd.Start()
	s.Cmd.Path, s.Cmd.Args = program, args // for the next start
	if err != nil {
		fmt.Fprintln(s.Log, err)
		close(s.done)
		return
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(s.Cmd, s.done)
}

const nsenter = "/usr/bin/nsenter" // of util-linux, which Debian always has

// Inside returns a command that runs in a network namespace.
func Inside(netns string, command ...string) *exec.Cmd {
	return exec.Command(nsenter, append([]string{"--net=/run/netns/" + netns}, command...)...)
}

// binDir returns the folder into which a program unpacks its runtime, once for all tests.
func binDir(program string) string { return filepath.Join(filepath.Dir(program), "bin") }

// Running reports whether the process was started and has not ended.
func (s *Server) Running() bool {
	if s.done == nil {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Raced reports whether the race detector found a race. Call it after the end of the process.
func (s *Server) Raced() bool { return strings.Contains(s.Log.String(), "DATA RACE") }

// End signals the process and waits for its end. It kills the process if it does not end within 20 s.
func (s *Server) End(sig syscall.Signal) {
	if !s.Running() {
		return
	}
	_ = s.Cmd.Process.Signal(sig)
	if !Eventually(20*time.Second, func() bool { return !s.Running() }) {
		_ = s.Cmd.Process.Kill()
		<-s.done
	}
}

// CleanUp ends the process. With containers it also runs monopod reset, which removes all pods.
func (s *Server) CleanUp(containers bool) {
	if s.Cmd == nil {
		return
	}
	s.End(syscall.SIGTERM)
	if containers {
		cmd := exec.Command(s.Cmd.Path, "reset", "--data-dir", s.Dir)
		if s.Netns != "" {
			cmd = Inside(s.Netns, cmd.Args...)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "monopod reset: %v: %s\n", err, out)
		}
	}
}

// HTTP returns a client of the server's Unix socket.
func (s *Server) HTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(s.Dir, "monopod.sock"))
		}}}
}

// Get sends a GET. Without a response the code is 0 and text is the error.
func (s *Server) Get(path string) (code int, text string) {
	resp, err := s.HTTP().Get("http://x" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data)
}

// Revision returns the revision of the last change of any object; empty without a response.
func (s *Server) Revision() string {
	if !s.Running() {
		return ""
	}
	_, text := s.Get("/api/v1/podtemplates?limit=1")
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	_ = json.Unmarshal([]byte(text), &list)
	return list.Metadata.ResourceVersion
}

// Ready waits until /readyz returns 200.
func (s *Server) Ready() error {
	code := 0
	Eventually(30*time.Second, func() bool {
		code, _ = s.Get("/readyz")
		return code == http.StatusOK || !s.Running()
	})
	switch {
	case code == http.StatusOK:
		return nil
	case !s.Running():
		return errors.New("monopod ended")
	}
	return errors.New("monopod is not ready")
}

// NeedsContainerd skips the test if containers cannot run.
func NeedsContainerd(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: containers need root")
	}
	lacks := lacksForRuntime()
	if lacks == nil {
		return // monopod contains the runtime
	}
	for _, program := range []string{"containerd", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed, and cannot be built: %v: apt-get install gcc libseccomp-dev pkgconf",
				program, lacks)
		}
	}
}
