package cri_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host/mount"
	"monopod/agent/host/oom"
	"monopod/agent/runtime/containerd"
	"monopod/agent/runtime/cri"
	"monopod/testdata/harness"
	"monopod/testdata/web/image"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(keepChild(dir))
	}
	goleak.VerifyTestMain(m)
}

// node is a containerd of one test.
type node struct {
	t       testing.TB
	dataDir string
	oci     string // value of --oci-runtime; empty: of the environment variable
	child   *containerd.Child
	runtime *cri.Runtime
	halt    func() // stops the child and waits for it
}

// needContainerd skips a test if real containers cannot run.
func needContainerd(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: real containers need root")
	}
	if _, err := exec.LookPath("containerd"); err != nil {
		t.Skip("skipped: real containers need containerd in PATH")
	}
}

// startNode runs a containerd with a new data folder. At the end of the test, it removes all pods, mounts and links.
func startNode(t testing.TB) *node {
	t.Helper()
	needContainerd(t)
	dir, err := os.MkdirTemp("/tmp", "m p") // the kernel escapes the space as \040
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dataDir: dir}
	n.start()
	t.Cleanup(n.discard)
	return n
}

func (n *node) start() {
	n.t.Helper()
	log := zaptest.NewLogger(n.t, zaptest.Level(zap.WarnLevel))
	child, err := containerd.New(
		containerd.Config{DataDir: n.dataDir, Log: log, Executable: plugin(n.t),
			Options: containerd.Options{OCIRuntime: cmp.Or(n.oci, os.Getenv(ociRuntime))}})
	if err != nil {
		n.t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		if err := child.Run(ctx); err != nil {
			n.t.Error(err)
		}
	})
	n.halt = func() { cancel(); wg.Wait() }
	n.connect(child, log)
}

func (n *node) connect(child *containerd.Child, log *zap.Logger) {
	n.t.Helper()
	r, err := cri.New(
		cri.Config{Socket: child.Socket(), Snapshotter: child.Snapshotter(), StateDir: child.StateDir(),
			Kernel: readKernel(n.t), Log: log})
	if err != nil {
		n.t.Fatal(err)
	}
	n.child, n.runtime = child, r
	n.awaitReady()
}

// readKernel reads the kernel log until the test ends. It returns nil without permission to read the log.
func readKernel(t testing.TB) *oom.Log {
	t.Helper()
	kernel, err := oom.Open("/dev/kmsg")
	if err != nil {
		t.Logf("only containerd reports OOM kills: %v", err)
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Go(func() {
		if err := kernel.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); reader.Wait() })
	return kernel
}

// startElsewhere is start in another process, which halt kills.
func (n *node) startElsewhere() {
	n.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), childDir+"="+n.dataDir, childPlugin+"="+plugin(n.t)), os.Stderr
	child, err := containerd.New(containerd.Config{DataDir: n.dataDir, Log: zap.NewNop(), Executable: plugin(n.t)})
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.halt = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	n.connect(child, zap.NewNop())
}

// childDir is the environment variable that makes the test binary run a containerd with this data folder. childPlugin
// is the variable with its network plugin.
const (
	childDir    = "MONOPOD_TEST_CHILD_DIR"
	childPlugin = "MONOPOD_TEST_CHILD_PLUGIN"
)

// plugin returns the program that containerd runs as network plugin: monopod without the race detector, which would
// triple the time of the four calls for each pod.
func plugin(t testing.TB) string { return harness.Build(t).Monopod(harness.Plain) }

func keepChild(dataDir string) int {
	child, err := containerd.New(
		containerd.Config{DataDir: dataDir, Log: zap.NewNop(), Executable: os.Getenv(childPlugin)})
	if err == nil {
		err = child.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func (n *node) awaitReady() {
	n.t.Helper()
	var last error
	if !harness.Eventually(harness.Enough, func() bool {
		resp, err := n.runtime.Status(context.Background())
		status := resp.GetStatus()
		last = err
		return err == nil && status.Conditions[0].Status && status.Conditions[1].Status
	}) {
		n.t.Fatal("containerd does not become ready: ", last)
	}
}

// stop stops containerd as monopod does. Pods keep running.
func (n *node) stop() {
	if err := n.runtime.Close(); err != nil {
		n.t.Error(err)
	}
	n.halt()
}

func (n *node) discard() {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Bound)
	defer cancel()
	if err := n.runtime.RemoveAll(ctx); err != nil {
		n.t.Error(err)
	}
	n.stop()
	if err := n.child.Discard(); err != nil {
		n.t.Error(err)
	}
	if err := os.RemoveAll(n.dataDir); err != nil {
		n.t.Error(err)
	}
	n.removeCgroups()
	n.checkNothingLeft()
}

// removeCgroups removes the parent cgroups that runc creates and leaves in each hierarchy.
func (n *node) removeCgroups() {
	name := "monopod-" + containerd.InstanceID(n.dataDir)
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			n.t.Error(err)
		}
		for _, dir := range dirs {
			if err := os.Remove(dir); err != nil {
				n.t.Error(err)
			}
		}
	}
}

// checkNothingLeft checks that no process and no mount uses the data folder.
func (n *node) checkNothingLeft() {
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		n.t.Error(err)
	}
	for _, p := range procs {
		if data, err := os.ReadFile(p); err == nil && bytes.Contains(data, []byte(n.dataDir+"/")) {
			n.t.Errorf("process left: %s: %s", p, bytes.ReplaceAll(data, []byte{0}, []byte{' '}))
		}
	}
	if mounts, err := mount.Below(n.dataDir); err != nil || len(mounts) > 0 {
		n.t.Errorf("mounts left: %q, error %v", mounts, err)
	}
}

// sample builds the sample program once, and returns an archive with its image.
var sample = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sample")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/web", "monopod/testdata/web")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(dir + "/web")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = image.Write(&out, image.Name, program)
	return out.Bytes(), err
})

func (n *node) importSample() {
	n.t.Helper()
	archive, err := sample()
	if err != nil {
		n.t.Fatal(err)
	}
	file := filepath.Join(n.t.TempDir(), "web.tar")
	if err := os.WriteFile(file, archive, 0o600); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.runtime.ImportImages(n.t.Context(), file); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) sandboxConfig(name string) *api.PodSandboxConfig {
	return &api.PodSandboxConfig{
		Metadata:     &api.PodSandboxMetadata{Name: name, Uid: "uid-" + name, Namespace: "default"},
		Hostname:     name,
		LogDirectory: n.t.TempDir(),
		DnsConfig:    &api.DNSConfig{},
		Linux:        &api.LinuxPodSandboxConfig{CgroupParent: "/monopod-" + containerd.InstanceID(n.dataDir)},
	}
}

func webConfig(args ...string) *api.ContainerConfig {
	return &api.ContainerConfig{
		Metadata: &api.ContainerMetadata{Name: "main"}, Image: &api.ImageSpec{Image: image.Name},
		Args: args, LogPath: "main.log", Linux: &api.LinuxContainerConfig{},
	}
}

// runWeb runs a pod with the web server, and returns the IDs of its sandbox and container.
func (n *node) runWeb(name string, args ...string) (sandbox, container string) {
	n.t.Helper()
	ctx := n.t.Context()
	config := n.sandboxConfig(name)
	sandbox, err := n.runtime.RunPodSandbox(ctx, config, "")
	if err != nil {
		n.t.Fatal(err)
	}
	container, err = n.runtime.CreateContainer(ctx, sandbox, webConfig(args...), config)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.runtime.StartContainer(ctx, container); err != nil {
		n.t.Fatal(err)
	}
	return sandbox, container
}
