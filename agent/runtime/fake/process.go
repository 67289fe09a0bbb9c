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
	"monopod/agent/runtime/fake/files"
	"monopod/agent/runtime/fake/output"
	"monopod/agent/runtime/fake/program"
	"monopod/apiserver/process/guard"
)

// Why a process was ended from outside.
var (
	errKilled = errors.New("killed")
	errOOM    = errors.New("out of memory")
)

// process is the running part of a container.
type process struct {
	ctx      context.Context // of everything that runs in the container
	kill     context.CancelCauseFunc
	done     chan struct{} // closed once the end is written down
	signals  chan os.Signal
	log      *output.Log
	out, err *output.Tee
	stdin    io.Reader // nil unless the config asks for one
	typed    *io.PipeWriter
}

func newProcess(ctx context.Context, c *container, log *output.Log) *process {
	p := &process{done: make(chan struct{}), signals: make(chan os.Signal, 8), log: log}
	p.ctx, p.kill = context.WithCancelCause(ctx)
	p.out = output.NewTee(log.Stream("stdout"))
	p.err = output.NewTee(log.Stream("stderr"))
	if c.config.Tty {
		p.err = p.out
	}
	if c.config.Stdin {
		p.stdin, p.typed = io.Pipe()
	}
	return p
}

// signal delivers a signal, or loses it when many are waiting, as a kernel does.
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
func (r *Runtime) run(c *container, args []string) {
	p := c.process
	code := program.Killed
	if err := guard.Call(func() error {
		code = program.Run(p.ctx, r.program(c, args, p.stdin, p.out, p.err, p.signals))
		return nil
	}); err != nil {
		fmt.Fprintln(p.err, err) // as a process that crashed
	}
	cause := context.Cause(p.ctx)
	p.kill(nil) // what was executed in it dies with it
	if p.typed != nil {
		p.typed.Close()
	}
	p.out.Close()
	p.err.Close()
	p.log.Close()
	r.ended(c, int32(code), cause)
	close(p.done)
}

// ended writes down how a process ended, and tells.
func (r *Runtime) ended(c *container, code int32, cause error) {
	reason := "Completed"
	switch {
	case cause != nil && errors.Is(cause, errOOM):
		code, reason = program.Killed, "OOMKilled"
	case cause != nil:
		code, reason = program.Killed, "Error"
	case code != 0:
		reason = "Error"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if reason == "OOMKilled" {
		r.events.publish(c.event(runtime.EventContainerOOM, now))
	}
	if !c.stray { // else it ended before it began
		c.exited(code, reason, now)
	}
	event := c.event(runtime.EventContainerExited, now)
	event.ExitCode = code
	r.events.publish(event)
}

// program is the world as a process in the container sees it.
func (r *Runtime) program(c *container, args []string, in io.Reader, out, errs io.Writer, signals <-chan os.Signal) program.Process {
	hostname := c.sandbox.config.Hostname
	return program.Process{
		Args: args, Hostname: hostname, Stdin: in, Stdout: out, Stderr: errs, Signals: signals, Clock: r.clock,
		Env:    mergeEnv(c.image.Config.Env, []string{"HOSTNAME=" + hostname}, keyValues(c.config.Envs)),
		System: &machine{Files: c.files, runtime: r, container: c},
	}
}

// args is the command that the container's config and image make together.
func (c *container) args() ([]string, error) {
	words := slices.Concat(c.config.Command, c.config.Args)
	if len(c.config.Command) == 0 {
		given := c.config.Args
		if len(given) == 0 {
			given = c.image.Config.Cmd
		}
		words = slices.Concat(c.image.Config.Entrypoint, given)
	}
	if c.image.pretended {
		return pretend(words, c.config.Args), nil
	}
	if len(words) == 0 || !program.Knows(words[0]) {
		return nil, fmt.Errorf("exec: %q: no such file or directory", strings.Join(words, " "))
	}
	return words, nil
}

// pretend chooses what an image that was never fetched does: the command if the
// sample program understands it, else the web server.
func pretend(words, args []string) []string {
	if program.Understands(words) {
		return words
	}
	if program.Understands(args) { // kubectl run --image=busybox -- sleep 5
		return args
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

// mergeEnv joins environments: the last value of a key, where its first was.
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

// machine is the system under a container.
type machine struct {
	*files.Files
	runtime   *Runtime
	container *container
}

var _ program.System = (*machine)(nil)

func (m *machine) Listen(network, address string) (net.Listener, error) {
	return m.runtime.listen(m.container.sandbox, network, address)
}

func (m *machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return m.runtime.dial(ctx, m.container.sandbox, network, address)
}

// Allocate takes no memory; it kills the container when it asks for more than
// its limit.
func (m *machine) Allocate(bytes int64) (func(), error) {
	limit := m.container.config.GetLinux().GetResources().GetMemoryLimitInBytes()
	if p, running := m.runtime.running(m.container); running && limit > 0 && bytes > limit {
		p.kill(errOOM)
	}
	return func() {}, nil
}
