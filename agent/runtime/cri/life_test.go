package cri_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/images/image"
	"monopod/agent/runtime"
	"monopod/agent/runtime/containerd"
	"monopod/testdata/harness"
)

func (n *node) containerdPID() (pid int) {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.dataDir, "containerd", "containerd.pid"))
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(data), &pid); err != nil {
		n.t.Fatal(err)
	}
	return pid
}

func (n *node) podIP(sandbox string) string {
	n.t.Helper()
	status, err := n.runtime.PodSandboxStatus(n.t.Context(), sandbox)
	if err != nil {
		n.t.Fatal(err)
	}
	return status.GetNetwork().GetIp()
}

// fetch asks the web server in a pod for its page, waiting until it listens.
func (n *node) fetch(sandbox string) {
	n.t.Helper()
	url := "http://" + n.podIP(sandbox) + ":8080/"
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	var last error
	if !harness.Eventually(harness.Enough, func() bool {
		resp, err := client.Get(url)
		if last = err; err != nil {
			return false
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return true
	}) {
		n.t.Errorf("GET %s: %v", url, last)
	}
}

func (n *node) running(container string) bool {
	status, err := n.runtime.ContainerStatus(n.t.Context(), container)
	return err == nil && status.State == api.ContainerState_CONTAINER_RUNNING
}

func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !harness.Eventually(harness.Enough, holds) {
		t.Fatal("waited in vain for " + what)
	}
}

func TestPodsOutliveContainerd(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importSample()
	sandbox, container := n.runWeb("outlives")
	n.fetch(sandbox)

	events, err := n.runtime.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old := n.containerdPID()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, want := range []runtime.EventType{runtime.EventLost, runtime.EventResync} {
		if e := <-events; e.Type != want {
			t.Errorf("of the gap came %+v, want type %d", e, want)
		}
	}
	await(t, "the container", func() bool { return n.running(container) })
	n.fetch(sandbox)
	if n.containerdPID() == old {
		t.Error("the same containerd still runs")
	}
	if err := n.runtime.StopContainer(t.Context(), container, time.Second); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Type != runtime.EventContainerExited || e.ContainerID != container || e.SandboxID != sandbox || e.PodUID != "uid-outlives" {
		t.Errorf("after the stop came %+v", e)
	}
	if n.running(container) {
		t.Error("the status is older than the event")
	}
}

func TestPodsOutliveMonopod(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importSample()
	sandbox, container := n.runWeb("adopted")
	ip := n.podIP(sandbox)
	n.stop()
	n.start()
	if !n.running(container) || n.podIP(sandbox) != ip {
		t.Errorf("the container does not run on, or has another address than %s", ip)
	}
	n.fetch(sandbox)
}

// After kill -9 of monopod its containerd is gone or gives way to a new one.
func TestPodsOutliveKilledMonopod(t *testing.T) {
	t.Parallel()
	needContainerd(t)
	dir, err := os.MkdirTemp("/tmp", "mp")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dataDir: dir}
	n.startElsewhere()
	t.Cleanup(n.discard)
	n.importSample()
	sandbox, container := n.runWeb("left")
	leftover := n.containerdPID()
	n.stop()
	n.start() // the old one may still answer while it ends
	await(t, "a new containerd", func() bool { return n.containerdPID() != leftover })
	n.awaitReady()
	if !n.running(container) {
		t.Error("the container did not survive")
	}
	n.fetch(sandbox)
}

func TestSideBySide(t *testing.T) {
	t.Parallel()
	a, b := startNode(t), startNode(t)
	ips := map[string]bool{}
	for i, n := range []*node{a, b} {
		n.importSample()
		for j := range 2 {
			sandbox, _ := n.runWeb(fmt.Sprintf("side%d%d", i, j))
			n.fetch(sandbox)
			ips[n.podIP(sandbox)] = true
		}
	}
	if len(ips) != 4 {
		t.Errorf("addresses %v, want four", ips)
	}
	list, err := a.runtime.ListPodSandbox(t.Context(), nil)
	if err != nil || len(list) != 2 {
		t.Errorf("%d sandboxes, %v; want only the two of its own", len(list), err)
	}
}

func TestSandboxImage(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	await(t, "the sandbox image", func() bool {
		img, err := n.runtime.ImageStatus(t.Context(), image.PauseRef)
		if err != nil {
			t.Fatal(err)
		}
		return img != nil && img.Pinned
	})
}

// The process of a sandbox is restricted whether runc does that or, while no container can see the process, only the program
// itself.
func TestSandboxesAreConfined(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	own := filters(t, "self")
	if own < 0 {
		t.Skip("left out: before version 5.9 the kernel does not say how many filters a process has")
	}
	run := func(name string, pid api.NamespaceMode, want int) (id string) {
		t.Helper()
		config := n.sandboxConfig(name)
		config.Linux.SecurityContext = &api.LinuxSandboxSecurityContext{
			NamespaceOptions: &api.NamespaceOption{Pid: pid}, Seccomp: &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault},
		}
		id, err := n.runtime.RunPodSandbox(t.Context(), config, "")
		if err != nil {
			t.Fatal(err)
		}
		if config.Linux.SecurityContext.Seccomp.ProfileType != api.SecurityProfile_RuntimeDefault {
			t.Error("the caller's config has changed")
		}
		ctx, sandbox := n.container(id)
		task, err := sandbox.Task(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		if !harness.Eventually(harness.Enough, func() bool { // from its second system call on
			got = filters(t, fmt.Sprint(task.Pid())) - own
			return got == want
		}) {
			t.Errorf("%s: %d filters, want %d", name, got, want)
		}
		return id
	}
	run("apart", api.NamespaceMode_CONTAINER, 1)
	run("shared", api.NamespaceMode_POD, 2)
	host := run("host", api.NamespaceMode_NODE, 2)
	run("beside-host", api.NamespaceMode_CONTAINER, 2)
	n.stop()
	n.start()
	run("after-restart", api.NamespaceMode_CONTAINER, 2)
	if err := errors.Join(n.runtime.StopPodSandbox(t.Context(), host), n.runtime.RemovePodSandbox(t.Context(), host)); err != nil {
		t.Fatal(err)
	}
	run("alone", api.NamespaceMode_CONTAINER, 1)
}

// filters returns how many filters of system calls a process has; -1 if the kernel does not say.
func filters(t *testing.T, process string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(data), "\nSeccomp_filters:\t")
	if !found {
		return -1
	}
	number, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNetworkIsRemovedWithLastPod(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importSample()
	bridge := "/sys/class/net/mp-" + containerd.InstanceID(n.dataDir)
	n.runWeb("last")
	n.stop()
	if _, err := os.Stat(bridge); err != nil {
		t.Errorf("the bridge of a running pod is gone: %v", err)
	}
	n.start()
	if err := n.runtime.RemoveAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.stop()
	if _, err := os.Stat(bridge); err == nil {
		t.Error("the bridge is left without a pod")
	}
	n.start()
}

func TestLongDataDir(t *testing.T) {
	t.Parallel()
	needContainerd(t)
	dir, err := os.MkdirTemp("/tmp", "mp")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dataDir: filepath.Join(dir, strings.Repeat("long", 20), strings.Repeat("path", 20))}
	n.start()
	t.Cleanup(func() { n.discard(); os.RemoveAll(dir) })
	n.importSample()
	sandbox, _ := n.runWeb("far")
	n.fetch(sandbox)
}
