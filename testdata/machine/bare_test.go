package machine_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/agent/runtime/containerd"
	"monopod/testdata/harness"
)

// TestBareMachine runs pods on a machine that contains only the program (testdata/bare.sh), with an image from a file.
// It tests a Service by name and from another machine, a volume that survives the end of all processes, logs, exec,
// check and reset.
func TestBareMachine(t *testing.T) {
	m := newBare(t)
	m.begin(t)
	m.serve(t)
	m.kubectl(t, "apply", "-f", m.programs.Source("testdata/bare.yaml"))
	m.works(t)
	m.kubectl(t, "exec", "client", "--", "/web", "write", "/kept/file", "what was written")
	m.kill(t)
	m.begin(t)
	m.serve(t)
	m.works(t)
	if out := m.kubectl(t, "exec", "client", "--", "/web", "cat", "/kept/file"); out != "what was written\n" {
		t.Errorf("after the restart of the machine the volume contains %q", out)
	}
	if out, err := m.inside("/monopod", "check", "--data-dir", m.data()).CombinedOutput(); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
	m.end(t)
	if out, err := m.inside("/monopod", "reset", "--data-dir", m.data()).CombinedOutput(); err != nil {
		t.Fatalf("reset: %v\n%s", err, out)
	}
	m.nothingLeft(t)
	for line := range strings.Lines(m.logged()) {
		if strings.Contains(line, `"level":"error"`) {
			t.Errorf("logged: %s", line)
		}
	}
}

// bare is the machine of testdata/bare.sh, and another machine that is connected to it.
type bare struct {
	programs harness.Programs
	dir      string
	log      *os.File // output of monopod
	machine  *exec.Cmd
	monopod  *exec.Cmd
	ended    chan error // receives the result of monopod
	other    *exec.Cmd  // keeps the network namespace of the other machine
}

// data returns the path of the data folder on the machine.
func (m *bare) data() string { return "/" + filepath.Base(m.dir) }

func newBare(t *testing.T) *bare {
	t.Helper()
	harness.NeedsContainerd(t)
	for _, program := range []string{"unshare", "nsenter", "pgrep", "ip", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %v", err)
		}
	}
	dir, err := os.MkdirTemp("", "mpbare")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	m := &bare{programs: harness.Build(t), dir: dir, log: log}
	m.programs.BuildClients(t)
	images := filepath.Join(dir, "data", "images")
	if err := errors.Join(os.MkdirAll(images, 0o755), harness.CopyFile(filepath.Join(images, "web.tar"),
		m.programs.Image())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if m.machine != nil {
			m.kill(t)
		}
		if t.Failed() {
			t.Log(m.logged())
		}
		log.Close()
		os.RemoveAll(dir)
	})
	return m
}

// logged returns the output of monopod.
func (m *bare) logged() string {
	text, _ := os.ReadFile(m.log.Name())
	return string(text)
}

// begin starts both machines, and connects them with a veth pair.
func (m *bare) begin(t *testing.T) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	said := func() string { text, _ := os.ReadFile(out.Name()); return string(text) }
	m.machine = exec.Command("sh", m.programs.Source("testdata/bare.sh"), "begin", m.dir,
		m.programs.Monopod(harness.Plain))
	m.machine.Stdout, m.machine.Stderr = out, out
	m.other = exec.Command("unshare", "--net", "sleep", "1000")
	for _, cmd := range []*exec.Cmd{m.machine, m.other} {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	begun := filepath.Join(m.dir, "begun")
	if !harness.Eventually(harness.Enough, func() bool { return os.Remove(begun) == nil || said() != "" }) ||
		said() != "" {
		t.Skipf("skipped: the bare machine does not start here: %s", said())
	}
	run := func(pid int, command string) {
		t.Helper()
		args := append([]string{"-t", fmt.Sprint(pid), "-n"}, strings.Fields(command)...)
		if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", command, err, out)
		}
	}
	here, there := m.machine.Process.Pid, m.other.Process.Pid
	run(here, fmt.Sprintf("ip link add cable type veth peer name cable netns %d", there))
	for pid, address := range map[int]string{here: "192.0.2.1/24", there: "192.0.2.2/24"} {
		run(pid, "ip address add "+address+" dev cable")
		run(pid, "ip link set cable up")
	}
}

// inside returns a command on the machine, with an empty environment.
func (m *bare) inside(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", firstChild(m.machine.Process.Pid), "-m", "-n", "-p", "-u", "-i"},
		args...)...)
	cmd.Env = []string{}
	return cmd
}

func (m *bare) serve(t *testing.T) {
	t.Helper()
	m.monopod = m.inside("/monopod", "serve", "--data-dir", m.data(), "--eviction-hard=memory.available<1Mi")
	m.monopod.Stdout, m.monopod.Stderr = m.log, m.log
	if err := m.monopod.Start(); err != nil {
		t.Fatal(err)
	}
	m.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(m.monopod, m.ended)
	api := harness.Server{Dir: filepath.Join(m.dir, "data")}
	ready := func() bool {
		code, _ := api.Get("/readyz")
		return code == http.StatusOK || len(m.ended) > 0
	}
	if !harness.Eventually(harness.Enough, ready) || len(m.ended) > 0 {
		t.Fatal("monopod is not ready")
	}
}

// command returns a kubectl command in the network of the machine.
func (m *bare) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", fmt.Sprint(m.machine.Process.Pid), "-n",
		m.programs.Path("kubectl"), "--kubeconfig", filepath.Join(m.dir, "data", "admin.kubeconfig")}, args...)...)
}

// kubectl runs kubectl and returns its output.
func (m *bare) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := m.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// works waits until the workloads of testdata/bare.yaml work. It retries requests, because after a crash the status of
// a pod may be outdated.
func (m *bare) works(t *testing.T) {
	t.Helper()
	m.kubectl(t, "rollout", "status", "deployment/web", "--timeout=2m")
	m.kubectl(t, "wait", "pod/client", "--for=condition=Ready", "--timeout=2m")
	answers := func(what string, command func() *exec.Cmd) {
		t.Helper()
		var out []byte
		if !harness.Eventually(harness.Enough, func() (ok bool) {
			var err error
			out, err = command().CombinedOutput()
			return err == nil && len(out) > 0
		}) {
			t.Errorf("%s does not answer: %s", what, out)
		}
	}
	answers("the name of the Service", func() *exec.Cmd {
		return m.command("exec", "client", "--", "/web", "get", "http://web.default.svc.cluster.local", "5s")
	})
	answers("the port of the node", func() *exec.Cmd {
		return exec.Command("nsenter", "-t", fmt.Sprint(m.other.Process.Pid), "-n", m.programs.Path("web"), "get",
			"http://192.0.2.1:30080", "5s")
	})
	if out := m.kubectl(t, "logs", "client"); !strings.HasPrefix(out, "begins\n") {
		t.Errorf("the log of the client: %q", out)
	}
}

// end stops monopod, but not the machine.
func (m *bare) end(t *testing.T) {
	t.Helper()
	if err := exec.Command("kill", firstChild(m.monopod.Process.Pid)).Run(); err != nil {
		t.Error(err)
	}
	if err := <-m.ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// kill ends both machines with all of their processes, with SIGKILL.
func (m *bare) kill(t *testing.T) {
	t.Helper()
	_ = exec.Command("kill", "-9", firstChild(m.machine.Process.Pid)).Run()
	_ = m.other.Process.Kill()
	_, _ = m.machine.Wait(), m.other.Wait()
	m.machine = nil
}

// nothingLeft checks that reset left no process, mount, bridge, nftables rule, file in /run or cgroup.
func (m *bare) nothingLeft(t *testing.T) {
	t.Helper()
	init := firstChild(m.machine.Process.Pid)
	for command, want := range map[string]string{
		"nsenter -t INIT -n ip -o link show type bridge": "",
		"nsenter -t INIT -n nft list ruleset":            "",
		"pgrep --ns INIT --nslist pid -l mono|cont|runc": "",
		"find RUN -not -type d":                          "",
		"grep DATA/ /proc/INIT/mounts":                   "",
	} {
		words := strings.Fields(strings.NewReplacer("INIT", init, "DATA", m.data(), "RUN",
			filepath.Join(m.dir, "run")).Replace(command))
		if out, _ := exec.Command(words[0], words[1:]...).CombinedOutput(); string(out) != want {
			t.Errorf("after reset, %s prints %s, want %q", words, out, want)
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/monopod-" + containerd.InstanceID(m.data()) + "*")
	if err != nil || len(groups) > 0 {
		t.Errorf("after reset there are cgroups: %v %v", groups, err)
	}
}
