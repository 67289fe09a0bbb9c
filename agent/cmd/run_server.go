package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/local"
)

// instance is a monopod in a folder of its own.
type instance struct {
	program string
	dir     string // contains the data folder and the log
	runtime string
	process *os.Process
	ended   chan struct{} // closed when the process has ended
	state   string        // how it ended
}

func (i *instance) data() string       { return filepath.Join(i.dir, "data") }
func (i *instance) log() string        { return filepath.Join(i.dir, "monopod.log") }
func (i *instance) kubeconfig() string { return filepath.Join(i.data(), "admin.kubeconfig") }

// prepare creates the data folder.
func (i *instance) prepare() error {
	if err := os.MkdirAll(i.data(), 0o700); err != nil {
		return err
	}
	return os.Chmod(i.data(), 0o711) // pods with other users traverse it
}

// start starts serve. If this process is killed, the kernel also terminates serve.
func (i *instance) start(flags ...string) error {
	log, err := os.Create(i.log())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(i.program,
		append([]string{"serve", "--data-dir", i.data(), "--listen=127.0.0.1:0", "--runtime", i.runtime}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	// In its own process group, serve does not get Ctrl-C, which is for the user's command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	i.ended = make(chan struct{})
	died := guard.Spawn(func() error {
		runtime.LockOSThread() // Pdeathsig is sent when the thread ends
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return nil
		}
		_ = cmd.Wait() // ProcessState contains the result
		i.state = cmd.ProcessState.String()
		close(i.ended)
		return nil
	})
	select {
	case err = <-started:
	case err = <-died:
	}
	if err != nil {
		return err
	}
	i.process = cmd.Process
	return nil
}

// readyPoll is the interval of readiness checks.
const readyPoll = 10 * time.Millisecond

// ready waits until the API and the node are ready.
func (i *instance) ready(ctx context.Context) error {
	server := local.At(i.data())
	for {
		_, err := server.Read(ctx, "/readyz")
		if err == nil {
			err = nodeReady(ctx, server)
		}
		if err == nil {
			return nil
		}
		select {
		case <-i.ended:
			return errors.New("monopod did not start" + i.lastLines())
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("monopod is not ready in time (--ready-timeout): %w%s", err, i.lastLines())
			}
			return ctx.Err()
		case <-time.After(readyPoll):
		}
	}
}

func nodeReady(ctx context.Context, server *local.Server) error {
	var nodes corev1.NodeList
	if err := server.JSON(ctx, "/api/v1/nodes", &nodes); err != nil {
		return err
	}
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
			if c.Type == corev1.NodeReady {
				return fmt.Errorf("the node is not ready: %s", c.Message)
			}
		}
	}
	return errors.New("the node is not registered yet")
}

// shownLog is the maximum size of the log in an error, in bytes.
const shownLog = 2 << 10

// lastLines returns the last lines of the log, to be added to an error.
func (i *instance) lastLines() string {
	data, _ := os.ReadFile(i.log()) // a missing log is empty
	if len(data) > shownLog {
		data = data[len(data)-shownLog:]
		_, rest, _ := strings.Cut(string(data), "\n")
		data = []byte(rest)
	}
	if len(data) == 0 {
		return ""
	}
	if line, ok := strings.CutPrefix(string(data), "monopod: "); ok && strings.Count(line, "\n") == 1 {
		return ": " + strings.TrimSpace(line) // an error of serve, which ends before it logs anything
	}
	return ", the end of its log:\n" + strings.TrimSpace(string(data))
}

// stopTime is the time after which serve is killed.
const stopTime = 30 * time.Second

// stop stops serve and the pods that serve leaves running; it keeps the files.
func (i *instance) stop() error {
	if i.process == nil {
		return nil
	}
	_ = i.process.Signal(syscall.SIGTERM) // fails if serve has ended
	select {
	case <-i.ended:
	case <-time.After(stopTime):
		_ = i.process.Kill()
		<-i.ended
	}
	if i.runtime != "containerd" {
		return nil
	}
	if _, err := os.Stat(i.kubeconfig()); err != nil { // serve has not started any pods
		return nil
	}
	cmd := exec.Command(i.program, "reset", "--data-dir", i.data())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot stop the pods of %s: %w: %s; run monopod reset --data-dir %[1]s", i.data(), err,
			strings.TrimSpace(string(out)))
	}
	return nil
}
