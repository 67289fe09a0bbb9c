package fake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
	"monopod/agent/runtime/fake/program"
	"monopod/apiserver/kit/guard"
)

// Causes with which a process is killed.
var (
	errKilled = errors.New("killed")
	errOOM    = errors.New("out of memory")
)

// process is the process of a container.
type process struct {
	ctx      context.Context // of everything that runs in the container
	kill     context.CancelCauseFunc
	done     chan struct{} // closed when the exit is recorded
	signals  chan os.Signal
	log      *Log
	out, err *Tee
	stdin    io.Reader // nil unless the config asks for one
	typed    *io.PipeWriter
}

func newProcess(ctx context.Context, c *container, log *Log) *process {
	p := &process{done: make(chan struct{}), signals: make(chan os.Signal, 8), log: log}
	p.ctx, p.kill = context.WithCancelCause(ctx)
	p.out = NewTee(log.Stream("stdout"))
	p.err = NewTee(log.Stream("stderr"))
	if c.config.Tty {
		p.err = p.out
	}
	if c.config.Stdin {
		p.stdin, p.typed = io.Pipe()
	}
	return p
}

// signal delivers a signal, or drops it if many are pending, as a kernel does.
func (p *process) signal(sig os.Signal) {
	if sig == syscall.SIGKILL {
		p.kill(errKilled)
	}
	select {
	case p.signals <- sig:
	default:
	}
}

// run runs the container to its end.
func (s *containerService) run(c *container, p *process, args []string) {
	code := program.Killed
	if err := guard.Call(func() error {
		code = program.Run(p.ctx, s.program(c, args, p.stdin, p.out, p.err, p.signals))
		return nil
	}); err != nil {
		fmt.Fprintln(p.err, err) // like a process that crashed
	}
	cause := context.Cause(p.ctx)
	p.kill(nil) // also ends every exec
	if p.typed != nil {
		p.typed.Close()
	}
	p.out.Close()
	p.err.Close()
	p.log.Close()
	s.ended(c, int32(code), cause)
	close(p.done)
}

// ended records the exit of a process and publishes its event.
func (s *containerService) ended(c *container, code int32, cause error) {
	reason := "Completed"
	switch {
	case cause != nil && errors.Is(cause, errOOM):
		code, reason = program.Killed, "OOMKilled"
	case cause != nil:
		code, reason = program.Killed, "Error"
	case code != 0:
		reason = "Error"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.gate.Clock.Now()
	if reason == "OOMKilled" {
		s.events.publish(c.event(runtime.EventContainerOOM, now))
	}
	if !c.orphaned { // otherwise the container has exited already
		c.exited(code, reason, now)
	}
	event := c.event(runtime.EventContainerExited, now)
	event.ExitCode = code
	s.events.publish(event)
}

// program returns the environment of a process in the container.
func (s *containerService) program(c *container, args []string, in io.Reader, out, errs io.Writer,
	signals <-chan os.Signal) program.Process {
	hostname := c.sandbox.config.Hostname
	return program.Process{
		Args: args, Hostname: hostname, Stdin: in, Stdout: out, Stderr: errs, Signals: signals, Clock: s.gate.Clock,
		Env:    mergeEnv(c.image.Config.Env, []string{"HOSTNAME=" + hostname}, keyValues(c.config.Envs)),
		System: &machine{Files: c.files, containers: s, container: c},
	}
}

// args returns the command of the container's config and image. It fails if the sample
// program does not know the command.
func (c *container) args() ([]string, error) {
	words := slices.Concat(c.config.Command, c.config.Args)
	if len(c.config.Command) == 0 {
		given := c.config.Args
		if len(given) == 0 {
			given = c.image.Config.Cmd
		}
		words = slices.Concat(c.image.Config.Entrypoint, given)
	}
	if c.image.placeholder {
		if code := c.sandbox.config.Annotations[ExitCode]; code != "" {
			words = []string{"exit", code}
		}
		return placeholderCommand(words, c.config.Args), nil
	}
	if len(words) == 0 || !program.Knows(words[0]) {
		return nil, fmt.Errorf("exec: %q: no such file or directory", strings.Join(words, " "))
	}
	return words, nil
}

// ExitCode is a pod annotation: containers of placeholder images exit at once with its value as exit code.
const ExitCode = "monopod.io/fake-exit-code"

// placeholderCommand returns the command of a container of a placeholder image: the command of the pod if the sample
// program understands it, else the web server.
func placeholderCommand(words, args []string) []string {
	for _, given := range [][]string{words, args} { // args: kubectl run --image=busybox -- sleep 5
		if script := scripted(given); script != nil {
			return script
		}
		if program.Understands(given) {
			return given
		}
	}
	return []string{"/web"}
}

func (c *container) workingDir() string {
	return cmp.Or(c.config.WorkingDir, c.image.Config.WorkingDir, "/")
}

func (c *container) stopSignal() os.Signal {
	name := c.image.Config.StopSignal
	if s := c.config.StopSignal; s != cri.Signal_SIGNAL_RUNTIME_DEFAULT {
		name = strings.TrimPrefix(s.String(), "SIGNAL_")
	}
	return cmp.Or(unix.SignalNum(name), syscall.SIGTERM)
}

// mergeEnv joins environments. A key has its last value at its first position.
func mergeEnv(parts ...[]string) (merged []string) {
	at := map[string]int{}
	for _, part := range parts {
		for _, kv := range part {
			key, _, _ := strings.Cut(kv, "=")
			if i, ok := at[key]; ok {
				merged[i] = kv
				continue
			}
			at[key] = len(merged)
			merged = append(merged, kv)
		}
	}
	return merged
}

func keyValues(envs []*cri.KeyValue) (env []string) {
	for _, kv := range envs {
		env = append(env, kv.Key+"="+string(kv.Value))
	}
	return env
}

// machine is the System of the program in a container.
type machine struct {
	*Files
	containers *containerService
	container  *container
}

var _ program.System = (*machine)(nil)

func (m *machine) Listen(network, address string) (net.Listener, error) {
	return m.container.sandbox.endpoint.Listen(network, address)
}

func (m *machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return m.container.sandbox.endpoint.Dial(ctx, network, address)
}

// Load only counts the CPU in the statistics.
func (m *machine) Load(millicores int64) (func(), error) {
	return m.container.meter.add(m.containers.gate.Clock, millicores*1e6, 0), nil
}

// Allocate only counts the memory in the statistics. It kills the container with errOOM if bytes exceed its limit.
func (m *machine) Allocate(bytes int64) (func(), error) {
	limit := m.container.config.GetLinux().GetResources().GetMemoryLimitInBytes()
	if p, running := m.containers.running(m.container); running && limit > 0 && bytes > limit {
		p.kill(errOOM)
	}
	return m.container.meter.add(m.containers.gate.Clock, 0, bytes), nil
}
