// Package runtimetest is the contract of runtime.Runtime: tests of the behavior that the agent relies on. The fake and
// containerd both pass it.
package runtimetest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
)

// Env is a runtime to test, with its environment.
type Env struct {
	Runtime runtime.Runtime

	// Image is the name of the sample image (testdata/web/image), which the runtime has.
	Image string

	// LogDir is a folder on this host that the runtime can write to.
	LogDir string

	// Adjust, if set, changes the config of every sandbox, for instance its cgroup parent.
	Adjust func(*cri.PodSandboxConfig)

	// WithoutMemoryLimits is the reason why this machine cannot limit memory; empty if it can.
	WithoutMemoryLimits string
}

// patience is the time limit for effects that should be immediate.
const patience = 2 * time.Minute

// Run runs the suite on runtimes that open returns; open registers their cleanup. The tests run in parallel, and remove
// all their pods and images.
func Run(t *testing.T, open func(t *testing.T) Env) {
	env := open(t)
	for _, tc := range []struct {
		name string
		test func(*testing.T, Env)
	}{
		{"Ready", testReady},
		{"SandboxLife", testSandboxLife},
		{"SandboxTwice", testSandboxTwice},
		{"SandboxHandlers", testHandlers},
		{"SandboxList", testSandboxList},
		{"SandboxEndsContainers", testSandboxEndsContainers},
		{"ContainerLife", testContainerLife},
		{"ContainerList", testContainerList},
		{"Attempts", testAttempts},
		{"ExitCodes", testExitCodes},
		{"StartFails", testStartFails},
		{"OOM", testOOM},
		{"StopHonoured", testStopHonoured},
		{"StopSlow", testStopSlow},
		{"StopIgnored", testStopIgnored},
		{"StopWithoutGrace", testStopWithoutGrace},
		{"NotFound", testNotFound},
		{"Process", testProcess},
		{"Mounts", testMounts},
		{"ImageMounts", testImageMounts},
		{"Logs", testLogs},
		{"LogReopen", testLogReopen},
		{"ExecSync", testExecSync},
		{"ExecSyncTimeout", testExecSyncTimeout},
		{"Exec", testExec},
		{"Attach", testAttach},
		{"PortForward", testPortForward},
		{"Events", testEvents},
		{"Images", testImages},
		{"Pull", testPull},
		{"PullBroken", testPullBroken},
		{"Stats", testStats},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.test(t, env)
		})
	}
}

// pod is a sandbox for one test.
type pod struct {
	*testing.T
	Env
	config *cri.PodSandboxConfig
	id     string
}

// newPod runs a sandbox with a unique name, and removes it at the end of the test.
func newPod(t *testing.T, env Env) *pod {
	t.Helper()
	p := &pod{T: t, Env: env, config: env.sandboxConfig(t)}
	id, err := env.Runtime.RunPodSandbox(t.Context(), p.config, "")
	if err != nil {
		t.Fatalf("run sandbox: %v", err)
	}
	p.id = id
	t.Cleanup(func() { env.remove(t, id) })
	return p
}

func (e Env) remove(t *testing.T, sandboxID string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.Runtime.StopPodSandbox(ctx, sandboxID); err != nil {
		t.Errorf("stop sandbox: %v", err)
	}
	if err := e.Runtime.RemovePodSandbox(ctx, sandboxID); err != nil {
		t.Errorf("remove sandbox: %v", err)
	}
}

func (e Env) sandboxConfig(t *testing.T) *cri.PodSandboxConfig {
	t.Helper()
	uid := uuid.NewString()
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: "pod-" + uid[:8], Uid: uid, Namespace: "runtimetest"},
		Hostname:     "pod-" + uid[:8],
		LogDirectory: filepath.Join(e.LogDir, uid),
		DnsConfig:    &cri.DNSConfig{},
		Labels:       map[string]string{"uid": uid, "app": "web"},
		Annotations:  map[string]string{"monopod.dev/note": "two words, \"quoted\""},
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
		}},
	}
	if e.Adjust != nil {
		e.Adjust(config)
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		t.Fatal(err)
	}
	return config
}

// container returns a config of a container that runs the sample program with these arguments.
func (p *pod) container(args ...string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main"},
		Image:    &cri.ImageSpec{Image: p.Image},
		Args:     args,
		LogPath:  "main.log",
		Labels:   map[string]string{"uid": p.config.Metadata.Uid, "container": "main"},
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			NamespaceOptions: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}
}

func (p *pod) create(config *cri.ContainerConfig) (id string) {
	p.Helper()
	id, err := p.Runtime.CreateContainer(p.Context(), p.id, config, p.config)
	if err != nil {
		p.Fatalf("create container: %v", err)
	}
	return id
}

// run creates and starts a container.
func (p *pod) run(config *cri.ContainerConfig) (id string) {
	p.Helper()
	id = p.create(config)
	if err := p.Runtime.StartContainer(p.Context(), id); err != nil {
		p.Fatalf("start container: %v", err)
	}
	return id
}

// serve runs the web server and waits until it listens, because it handles signals only then. Port 0 avoids conflicts
// on the host network.
func (p *pod) serve(flags ...string) (id string) {
	p.Helper()
	id = p.run(p.container(append([]string{"-listen", ":0"}, flags...)...))
	p.awaitLog("listens on")
	return id
}

func (p *pod) status(id string) *cri.ContainerStatus {
	p.Helper()
	s, err := p.Runtime.ContainerStatus(p.Context(), id)
	if err != nil {
		p.Fatalf("container status: %v", err)
	}
	return s
}

// awaitExit waits until a container has exited.
func (p *pod) awaitExit(id string) (s *cri.ContainerStatus) {
	p.Helper()
	await(p.T, "the container's exit", func() bool {
		s = p.status(id)
		return s.State == cri.ContainerState_CONTAINER_EXITED
	})
	return s
}

func (p *pod) logFile() string { return filepath.Join(p.config.LogDirectory, "main.log") }

// log returns the log of the container main.
func (p *pod) log() string {
	p.Helper()
	data, err := os.ReadFile(p.logFile())
	if err != nil {
		p.Fatal(err)
	}
	return string(data)
}

func (p *pod) awaitLog(text string) {
	p.Helper()
	await(p.T, "the log to say "+text, func() bool {
		data, err := os.ReadFile(p.logFile())
		return err == nil && strings.Contains(string(data), text)
	})
}

// execute runs a command of the sample program in a container.
func (p *pod) execute(id string, args ...string) (stdout, stderr string, code int32) {
	p.Helper()
	out, errs, code, err := p.Runtime.ExecSync(p.Context(), id, append([]string{"/web"}, args...), patience)
	if err != nil {
		p.Fatalf("exec %q: %v", args, err)
	}
	return string(out), string(errs), code
}

// await polls until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout after %v: %s", patience, what)
		}
	}
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: code %v, want %v (%v)", what, got, want, err)
	}
}
