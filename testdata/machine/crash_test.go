package machine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/runtime/containerd"
	"monopod/testdata/harness"
)

// Environment variables for longer runs.
const (
	// agentKills is the number of kills in TestMonopodKilled; default 5.
	agentKills = "MONOPOD_KILLS"
	// containerdKills is the number of kills in TestContainerdKilled; default 4. The pause before each restart grows up to
	// 3 s.
	containerdKills = "MONOPOD_CONTAINERD_KILLS"
)

// steady maps the names of pods that must not change during the test to their instances.
type steady map[string]string

func (s *server) steady(t *testing.T) steady {
	t.Helper()
	ready, _ := shapes()
	pods := steady{}
	for i, spec := range ready[:4] {
		pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("steady-%d", i)}, Spec: spec}
		s.insist(t, http.MethodPost, podPath, pod)
		pods[pod.Name] = ""
	}
	for name := range pods {
		pods[name] = instances(s.await(t, name, isReady))
	}
	return pods
}

// instances formats a pod's address and its containers with their restart counts.
func instances(p *corev1.Pod) string {
	if p == nil {
		return "gone"
	}
	out := p.Status.PodIP
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, c := range list {
			out += fmt.Sprintf(" %s=%s#%d", c.Name, c.ContainerID, c.RestartCount)
		}
	}
	return out
}

// untouched checks that the pods are ready and have the same instances.
func (p steady) untouched(t *testing.T, s *server) {
	t.Helper()
	for name, was := range p {
		pod := s.await(t, name, isReady)
		if now := instances(pod); now != was {
			t.Errorf("%s: %s, was %s", name, now, was)
		}
	}
}

func (p steady) remove(t *testing.T, s *server) {
	t.Helper()
	for name := range p {
		s.insist(t, http.MethodDelete, podPath+"/"+name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
	}
	for name := range p {
		s.await(t, name, isGone)
	}
}

// underChurn creates and deletes pods while it calls kill repeatedly. After each kill the node must become ready and
// the steady pods must be unchanged; at the end nothing may be left.
func underChurn(t *testing.T, s *server, rounds int, kill func()) {
	t.Helper()
	s.churn(t, 1, atATime)
	idle := s.images(t)
	pods := s.steady(t)
	s.crashes = true
	var others sync.WaitGroup
	over := make(chan struct{})
	others.Go(func() {
		for seed := uint64(2); !t.Failed(); seed++ {
			select {
			case <-over:
				return
			default:
				s.churn(t, seed, 2*atATime)
			}
		}
	})
	for round := range rounds {
		time.Sleep(time.Duration(100+rand.IntN(900)) * time.Millisecond)
		began := time.Now()
		kill()
		if !harness.Eventually(harness.Enough, s.nodeReady) {
			t.Errorf("the node is not ready after kill %d", round)
		}
		pods.untouched(t, s)
		t.Logf("kill %d: ready after %v", round, time.Since(began).Round(time.Millisecond))
		if t.Failed() {
			break
		}
	}
	close(over)
	others.Wait()
	pods.remove(t, s)
	s.settled(t, idle)
}

// TestMonopodKilled kills monopod at random moments while pods are created and deleted. The next process must complete
// interrupted work.
func TestMonopodKilled(t *testing.T) {
	t.Parallel()
	s := open(t)
	underChurn(t, s, asked(t, agentKills, 5), func() {
		s.End(syscall.SIGKILL)
		s.begin(t)
	})
}

// TestContainerdKilled kills monopod's containerd at random moments while pods are created and deleted. monopod must
// restart it and complete interrupted work, and running containers must keep running.
func TestContainerdKilled(t *testing.T) {
	t.Parallel()
	s := open(t)
	underChurn(t, s, asked(t, containerdKills, 4), func() {
		pid := s.containerd(t)
		if pid == 0 {
			t.Fatal("containerd is not running")
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if !harness.Eventually(harness.Enough, func() bool { now := s.containerd(t); return now != 0 && now != pid }) {
			t.Fatal("monopod did not restart containerd")
		}
	})
}

// containerd returns the PID of monopod's containerd, from its PID file; 0: no file.
func (s *server) containerd(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, "containerd", "containerd.pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestRebooted simulates a reboot: it kills all processes, removes mounts and links, and changes the boot ID in all
// records.
func TestRebooted(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.churn(t, 1, atATime)
	idle := s.images(t)
	pods := s.steady(t)
	_, others := shapes()
	for name, spec := range map[string]corev1.PodSpec{"finished": others[2], "ends": others[0]} {
		spec.Containers[0].Args = map[string][]string{"finished": {"exit", "0"}, "ends": {"-ignore-term"}}[name]
		pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: spec}
		s.insist(t, http.MethodPost, podPath, pod)
	}
	s.await(t, "finished", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	s.await(t, "ends", isReady)
	s.insist(t, http.MethodDelete, podPath+"/ends", metav1.DeleteOptions{GracePeriodSeconds: new(int64(60))})

	s.End(syscall.SIGKILL)
	s.turnOff(t)
	began := time.Now()
	s.begin(t)
	for name, was := range pods {
		pod := s.await(t, name, func(p *corev1.Pod) bool {
			return isReady(p) && !strings.Contains(was, p.Status.ContainerStatuses[0].ContainerID)
		})
		if n := pod.Status.ContainerStatuses[0].RestartCount; n != 1 {
			t.Errorf("%s was restarted %d times", name, n)
		}
	}
	s.await(t, "ends", isGone)
	t.Logf("all pods recovered %v after the start", time.Since(began).Round(time.Millisecond))
	if p := s.pod(t, "finished"); p.Status.Phase != corev1.PodSucceeded ||
		p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("finished: %s", describe(p))
	}
	pods["finished"] = ""
	pods.remove(t, s)
	s.settled(t, idle)
}

// turnOff removes what does not survive a reboot. Call it after the end of monopod.
func (s *server) turnOff(t *testing.T) {
	t.Helper()
	var inv inventory
	if !harness.Eventually(harness.Enough, func() bool { // repeat, because a process may start another one before its end
		inv = inventory{}
		if err := s.takeProcesses(inv); err != nil {
			t.Fatal(err)
		}
		if pid := s.containerd(t); pid != 0 && procExists(pid) {
			inv["process"] = append(inv["process"], strconv.Itoa(pid))
		}
		for _, p := range inv["process"] {
			pid, _ := strconv.Atoi(strings.Fields(p)[0])
			if pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return len(inv["process"]) == 0
	}) {
		t.Fatalf("these processes do not end: %v", inv)
	}
	id := containerd.InstanceID(s.Dir)
	if err := s.takeMounts(inv); err != nil {
		t.Fatal(err)
	}
	for _, dir := range slices.Backward(inv["mount"]) {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	cut := 0
	bundles, _ := filepath.Glob(s.Dir + "/containerd/state/io.containerd.runtime.v2.task/k8s.io/*")
	for _, bundle := range bundles {
		_ = os.RemoveAll(filepath.Join("/run/containerd/runc/k8s.io", filepath.Base(bundle)))
		_ = os.Remove(s.shimSocket(filepath.Base(bundle)))
		results, _ := filepath.Glob("/run/cni/results/*-" + filepath.Base(bundle) + "-*")
		if results == nil { // the folder of a containerd that is not bundled
			results, _ = filepath.Glob("/var/lib/cni/results/*-" + filepath.Base(bundle) + "-*")
		}
		for _, file := range results { // the files are written without fsync, so they may be empty after a reboot
			if err := os.Truncate(file, 0); err != nil {
				t.Fatal(err)
			}
			cut++
		}
	}
	if cut == 0 {
		t.Fatal("found no CNI result files")
	}
	if bridge, err := netlink.LinkByName("mp-" + id); err == nil {
		_ = netlink.LinkDel(bridge)
	}
	if conn, err := nftables.New(); err == nil {
		for _, name := range []string{"monopod-" + id, "monopod-" + id + "-services"} {
			table := conn.AddTable(&nftables.Table{Name: name, Family: nftables.TableFamilyIPv4})
			conn.DelTable(table)
		}
		_ = conn.Flush()
	}
	s.anotherBoot(t)
}

func procExists(pid int) bool { return syscall.Kill(pid, 0) == nil }

// anotherBoot replaces the boot ID in all records.
func (s *server) anotherBoot(t *testing.T) {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(s.Dir + "/cni/ips/*")
	for _, file := range append(files, filepath.Join(s.Dir, "containerd", "boot")) {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, bytes.TrimSpace(boot)) {
			t.Fatalf("%s: %v: %s", file, err, text)
		}
		text = bytes.ReplaceAll(text, bytes.TrimSpace(boot), []byte("11111111-2222-3333-4444-555555555555"))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
