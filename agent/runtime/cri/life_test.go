package cri_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
	"monopod/agent/runtime/containerd"
	"monopod/agent/runtime/oci"
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

// fetch requests a page of the web server in a pod. It waits until the server listens.
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
		t.Fatal("timeout: " + what)
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
			t.Errorf("event about the outage: %+v, want type %d", e, want)
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
	if e := <-events; e.Type != runtime.EventContainerExited || e.ContainerID != container || e.SandboxID != sandbox ||
		e.PodUID != "uid-outlives" {
		t.Errorf("event after the stop: %+v", e)
	}
	if n.running(container) {
		t.Error("the container still runs after the event of its exit")
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
		t.Errorf("the container does not run, or its address is not %s", ip)
	}
	n.fetch(sandbox)
}

// After kill -9 of monopod, its containerd has stopped, or a new one replaces it.
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
		t.Error("the container does not run")
	}
	n.fetch(sandbox)
}

// An earlier version had wrappers for runc and the shim. Its pods continue to run, and can be stopped, without them.
func TestPodsOfEarlierVersion(t *testing.T) {
	needContainerd(t)
	dir, err := os.MkdirTemp("/tmp", "mp")
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	oci := filepath.Join(dir, "containerd", "oci")
	if err := errors.Join(os.MkdirAll(filepath.Join(oci, "bin"), 0o700),
		os.WriteFile(filepath.Join(dir, "containerd", "boot"), boot, 0o600)); err != nil {
		t.Fatal(err)
	}
	fronts := []string{filepath.Join(oci, "runc"), filepath.Join(oci, "bin", "containerd-shim-runc-v2")}
	for _, front := range fronts {
		program, err := exec.LookPath(filepath.Base(front))
		if err != nil {
			t.Skipf("skipped: the earlier version had wrappers only for runc and its shim: %v", err)
		}
		if err := errors.Join(os.Symlink(program, front+".program"),
			os.WriteFile(front, []byte("#!/bin/sh\nexec \"$0.program\" \"$@\"\n"), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	n := &node{t: t, dataDir: dir, oci: fronts[0]}
	t.Setenv("PATH", filepath.Join(oci, "bin")+":"+os.Getenv("PATH"))
	n.start()
	t.Cleanup(n.discard)
	n.importSample()
	sandbox, container := n.runWeb("earlier")
	n.stop()
	t.Setenv("PATH", strings.TrimPrefix(os.Getenv("PATH"), filepath.Join(oci, "bin")+":"))
	n.oci = ""
	n.start()
	if !n.running(container) {
		t.Error("the container does not run")
	}
	n.fetch(sandbox)
	for _, front := range fronts {
		if path, err := os.Readlink(front); err != nil || filepath.Base(path) != filepath.Base(front) {
			t.Errorf("%s: the shim of the pod runs %q, error %v", front, path, err)
		}
	}
	if err := n.runtime.StopContainer(t.Context(), container, time.Second); err != nil {
		t.Error(err)
	}
	if err := errors.Join(n.runtime.StopPodSandbox(t.Context(), sandbox),
		n.runtime.RemovePodSandbox(t.Context(), sandbox)); err != nil {
		t.Error(err)
	}
	for _, id := range []string{sandbox, container} {
		if _, err := os.Stat(filepath.Join("/run/containerd/runc/k8s.io", id)); err == nil {
			t.Errorf("runc still has the state of %s", id)
		}
	}
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
		t.Errorf("%d sandboxes, error %v; want the two of this instance", len(list), err)
	}
}

func TestSandboxImage(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	await(t, "the sandbox image", func() bool {
		img, err := n.runtime.ImageStatus(t.Context(), oci.PauseRef)
		if err != nil {
			t.Fatal(err)
		}
		return img != nil && img.Pinned
	})
}

// The process of a sandbox has the default seccomp filter of the runtime, in every mode of the PID namespace.
func TestSandboxesAreConfined(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for name, pid := range map[string]api.NamespaceMode{"apart": api.NamespaceMode_CONTAINER,
		"shared": api.NamespaceMode_POD, "host": api.NamespaceMode_NODE} {
		config := n.sandboxConfig(name)
		config.Linux.SecurityContext = &api.LinuxSandboxSecurityContext{
			NamespaceOptions: &api.NamespaceOption{Pid: pid},
			Seccomp:          &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault},
		}
		id, err := n.runtime.RunPodSandbox(t.Context(), config, "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, sandbox := n.container(id)
		task, err := sandbox.Task(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", task.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(status), "\nSeccomp:\t2\n") {
			t.Errorf("%s: no seccomp filter:\n%s", name, status)
		}
	}
}

func TestNetworkIsRemovedWithLastPod(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importSample()
	bridge := "/sys/class/net/mp-" + containerd.InstanceID(n.dataDir)
	n.runWeb("last")
	n.stop()
	if _, err := os.Stat(bridge); err != nil {
		t.Errorf("the bridge of a running pod is missing: %v", err)
	}
	n.start()
	if err := n.runtime.RemoveAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.stop()
	if _, err := os.Stat(bridge); err == nil {
		t.Error("the bridge still exists without a pod")
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
