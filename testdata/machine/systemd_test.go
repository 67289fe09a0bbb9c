package machine_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/testdata/harness"
)

// machine is a separate systemd with its logind, started by testdata/systemd.sh, and the monopod that it runs.
type machine struct {
	*server
	programs harness.Programs
	root     string // folder of systemd.sh
	cmd      *exec.Cmd
	over     chan struct{} // closed when the machine is off
	out      *bytes.Buffer // read it only after over is closed
}

// TestSystemd installs the unit of docs/service.md in a real systemd, and tests the graceful shutdown with a real
// logind.
func TestSystemd(t *testing.T) {
	needsSystemd(t)
	programs := harness.Build(t)
	t.Parallel()
	m := newMachine(t, programs)
	m.boot(t)
	const unit = "/etc/systemd/system/monopod.service"
	if said, err := m.inside("systemd-analyze", "verify", unit).CombinedOutput(); err != nil ||
		bytes.Contains(said, []byte(unit)) {
		t.Errorf("the unit of docs/service.md: %v: %s", err, said)
	}
	m.run(t, "systemctl", "enable", "--now", "monopod")
	if code, text := m.Get("/readyz"); code != http.StatusOK {
		t.Errorf("systemctl returned before monopod was ready: %d %s", code, text)
	}
	m.create(t, "deaf", "", 20*time.Second)
	m.create(t, "vital", "system-node-critical", time.Second)
	deaf, vital := m.await(t, "deaf", isReady), m.await(t, "vital", isReady)

	m.run(t, "systemctl", "kill", "--signal=KILL", "--kill-who=main", "monopod")
	m.until(t, "monopod runs again", func() bool {
		return m.run(t, "systemctl", "show", "monopod",
			"--property=ActiveState,NRestarts") == "NRestarts=1\nActiveState=active\n"
	})
	for _, before := range []*corev1.Pod{deaf, vital} {
		now := m.await(t, before.Name, isReady)
		was, is := before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
		if is.ContainerID != was.ContainerID || is.RestartCount != 0 {
			t.Errorf("pod %s did not survive the kill of monopod: %s", before.Name, describe(now))
		}
	}
	m.until(t, "monopod has a delay inhibitor", func() bool {
		return regexp.MustCompile(`monopod .* shutdown .* delay`).MatchString(
			m.run(t, "systemd-inhibit", "--list", "--no-legend"))
	})
	m.calledOff(t)
	m.create(t, "late", "", time.Second)
	m.create(t, "late-vital", "system-node-critical", time.Second)
	m.await(t, "late", isReady)
	m.await(t, "late-vital", isReady)
	m.run(t, "systemctl", "poweroff")
	m.awaitOff(t)
	m.checkEnd(t)
}

// calledOff starts a shutdown and cancels it. monopod detects this after the pods have ended, and becomes ready again.
func (m *machine) calledOff(t *testing.T) {
	t.Helper()
	m.run(t, "systemctl", "poweroff")
	m.until(t, "the node is not ready during the shutdown", func() bool { return !m.nodeReady() })
	m.run(t, "systemctl", "mask", "--runtime", "poweroff.target")
	// The shutdown waits for this pod.
	m.insist(t, http.MethodDelete, podPath+"/deaf", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	m.await(t, "vital", isTerminated)
	m.until(t, "the node is ready again", m.nodeReady)
	m.run(t, "systemctl", "unmask", "--runtime", "poweroff.target")
}

// checkEnd reads with another monopod how the pods ended.
func (m *machine) checkEnd(t *testing.T) {
	t.Helper()
	m.server = &server{Server: harness.NewServer(m.programs.Monopod(harness.Plain), m.Dir, "--runtime=fake",
		"--node-name=node1")}
	m.begin(t)
	defer m.End(syscall.SIGTERM)
	ended := map[string]time.Time{}
	for _, name := range []string{"late", "late-vital"} {
		p := m.pod(t, name)
		if !isTerminated(p) || p.Status.ContainerStatuses[0].State.Terminated == nil {
			t.Fatalf("the machine did not wait for %s: %s", name, describe(p))
		}
		ended[name] = p.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Time
	}
	if ended["late-vital"].Before(ended["late"].Add(time.Second)) {
		t.Errorf("the critical pod did not wait for the other one: %v", ended)
	}
	m.until(t, "the end time of the shutdown is in the metrics", func() bool {
		_, text := m.Get("/metrics")
		return regexp.MustCompile(`(?m)^kubelet_graceful_shutdown_end_time_seconds [1-9]`).MatchString(text)
	})
}

func isTerminated(p *corev1.Pod) bool {
	return p != nil && p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Terminated"
}

// create creates a pod that ignores SIGTERM, so it runs until the end of its grace period.
func (m *machine) create(t *testing.T, name, class string, grace time.Duration) {
	t.Helper()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		PriorityClassName: class, TerminationGracePeriodSeconds: new(int64(grace.Seconds())),
		Containers: []corev1.Container{{Name: "c", Image: "monopod.local/web:1", Args: []string{"-ignore-term", "serve"}}},
	}}
	m.insist(t, http.MethodPost, podPath, pod)
}

func needsSystemd(t *testing.T) {
	harness.NeedsContainerd(t)
	for program, pkg := range map[string]string{"systemctl": "systemd", "/lib/systemd/systemd": "systemd",
		"/lib/systemd/systemd-logind": "systemd",
		"dbus-daemon":                 "dbus", "unshare": "util-linux", "setpriv": "util-linux", "ip": "iproute2"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed: apt-get install %s", program, pkg)
		}
	}
}

// newMachine returns a machine that is off, with the unit of docs/service.md and the settings of logind of
// docs/shutdown.md.
func newMachine(t *testing.T, programs harness.Programs) *machine {
	t.Helper()
	root, err := os.MkdirTemp("", "mpsd") // a short path, because the path of a Unix socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755,size=1g"); err != nil {
		t.Skip("skipped: cannot mount a file system: ", err)
	}
	m := &machine{server: &server{Server: &harness.Server{Dir: filepath.Join(root, "data")}}, programs: programs,
		root: root}
	t.Cleanup(func() { m.remove(t) })
	var docs []byte
	for _, page := range []string{"docs/service.md", "docs/shutdown.md"} {
		text, err := os.ReadFile(programs.Source(page))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, text...)
	}
	blocks := regexp.MustCompile("(?s)```ini\n(.*?)```").FindAllSubmatch(docs, -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/service.md and shutdown.md have %d ini blocks, want 2: the unit and the settings of logind", len(blocks))
	}
	if err := os.MkdirAll(filepath.Join(m.Dir, "images"), 0o700); err != nil {
		t.Fatal(err)
	}
	for to, content := range map[string][]byte{
		"units/monopod.service": blocks[0][1], "logind.conf": blocks[1][1],
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, to), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(root, "monopod")
	if err := errors.Join(harness.CopyFile(program, programs.Monopod(harness.Plain)), os.Chmod(program, 0o755),
		harness.CopyFile(filepath.Join(m.Dir, "images", "web.tar"), programs.Image())); err != nil {
		t.Fatal(err)
	}
	return m
}

// boot starts the machine and waits for systemd. It skips the test if systemd cannot start here.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	m.out, m.over = &bytes.Buffer{}, make(chan struct{})
	m.cmd = exec.Command("sh", m.programs.Source("testdata/systemd.sh"), "begin", m.root)
	m.cmd.Stdout = m.out
	m.cmd.Stderr = m.out
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	m.cmd.WaitDelay = time.Second
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = m.cmd.Wait()
		close(m.over)
	}()
	if !harness.Eventually(harness.Enough, func() bool { return m.booted(t) }) {
		_ = m.cmd.Process.Kill()
		<-m.over
		t.Skipf("skipped: systemd does not start in namespaces on this machine: %s", m.out)
	}
}

func (m *machine) booted(t *testing.T) bool {
	t.Helper()
	select {
	case <-m.over:
		if _, err := os.Stat(filepath.Join(m.root, "booted")); err != nil {
			t.Skipf("skipped: this machine cannot run systemd in namespaces: %s", m.out)
		}
		t.Fatalf("systemd ended: %s", m.out)
	default:
	}
	state, _ := m.inside("systemctl", "is-system-running").Output()
	return string(state) == "running\n" || string(state) == "degraded\n" // degraded: a unit of the host failed
}

// inside returns a command that runs on the machine.
func (m *machine) inside(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", firstChild(m.cmd.Process.Pid), "-m", "-p", "-u", "-i", "-n", "-C",
		"-r", "-w"}, args...)...)
}

// firstChild returns the PID of a process' only child; empty: no child.
func firstChild(pid int) string {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	return strings.TrimSpace(string(children))
}

func (m *machine) run(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := m.inside(args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

func (m *machine) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !harness.Eventually(harness.Enough, ok) {
		t.Fatalf("timeout: %s", what)
	}
}

func (m *machine) awaitOff(t *testing.T) {
	t.Helper()
	m.until(t, "the machine is off", func() bool {
		select {
		case <-m.over:
			return true
		default:
			return false
		}
	})
}

// remove stops the machine and removes its files.
func (m *machine) remove(t *testing.T) {
	if m.cmd != nil {
		_ = m.cmd.Process.Kill() // also ends all processes of the machine
		<-m.over
	}
	made, _ := os.ReadFile(filepath.Join(m.root, "state", "made"))
	for _, group := range strings.Fields(string(made)) {
		m.until(t, group+" is empty", func() bool {
			_ = exec.Command("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
			_, err := os.Stat(group)
			return os.IsNotExist(err)
		})
	}
	m.until(t, m.root+" is not in use", func() bool { return unix.Unmount(m.root, 0) == nil })
	if err := os.Remove(m.root); err != nil {
		t.Error(err)
	}
}
