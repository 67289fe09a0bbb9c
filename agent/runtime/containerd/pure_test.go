package containerd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]string{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3": "1.6",
		"containerd github.com/containerd/containerd/v2 v2.4.2 abc":                   "2.4",
		"containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da":    "1.7",
		"containerd github.com/containerd/containerd/v2 2.0.5-unknown":                "2.0",
		"crun version 1.9\ncommit: 1":                                                 "1.9",
		"containerd":                                                                  "",
	} {
		v, err := parseVersion(out)
		if got := fmt.Sprintf("%d.%d", v.major, v.minor); got != want && (want != "" || err == nil) {
			t.Errorf("%q: %s, %v; want %s", out, got, err, want)
		}
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	s := configFile{Root: `/a "b"/root`, Socket: "/s", CDI: "/d/cdi", BinDirs: []string{"/bin"}, ConfDir: "/net.d",
		SandboxImage: "p:1",
		Snapshotter:  "native", RestrictOOM: true, Runtimes: []ociRuntime{{"crun", "/x/crun"}, {"runc", "/x/runc"}}}
	for _, tt := range []struct {
		major      int
		with, lack string
	}{
		{1, `sandbox_image = "p:1"`, "pinned_images"},
		{1, `bin_dir = "/bin"`, "runtime_path"},
		{1, `default_runtime_name = "crun"`, "cri.v1"},
		{1, `[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."crun".options]`, "SystemdCgroup = true"},
		{2, `default_runtime_name = "crun"`, `grpc.v1.cri".containerd`},
		{2, `bin_dirs = ["/bin"]`, "sandbox_image"},
		{2, `BinaryName = "/x/runc"`, "runtime_path"},
		{2, `cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", "/d/cdi"]`, "enable_cdi"},
		{2, `root = "/a \"b\"/root"`, "= \n"},
		{1, `temp = "/a \"b\"/root/tmpmounts"`, "/tmp\""},
		{2, `temp = "/a \"b\"/root/tmpmounts"`, "/tmp\""},
	} {
		s.Major = tt.major
		text := s.render()
		for _, want := range []string{tt.with, "restrict_oom_score_adj = true", "disable_apparmor = false",
			`snapshotter = "native"`} {
			if !strings.Contains(text, want) {
				t.Errorf("containerd %d: %q is missing in\n%s", tt.major, want, text)
			}
		}
		if strings.Contains(text, tt.lack) {
			t.Errorf("containerd %d: the config contains %q", tt.major, tt.lack)
		}
	}
}

func TestLayout(t *testing.T) {
	t.Parallel()
	short, long := newLayout("/var/lib/monopod"), newLayout("/"+strings.Repeat("x", 100))
	if short.socket != "/var/lib/monopod/containerd/containerd.sock" {
		t.Errorf("socket %s", short.socket)
	}
	if len(long.socket) > maxSocketPath || long.id == short.id {
		t.Errorf("socket %s, id %s", long.socket, long.id)
	}
	for n := range 120 { // containerd rejects a longer path
		if l := newLayout("/" + strings.Repeat("x", n)); len(l.socket+".ttrpc") > 104 {
			t.Errorf("path of the data folder with %d bytes: socket %s", n+1, l.socket)
		}
	}
	if InstanceID("/a/b/") != InstanceID("/a/b") {
		t.Error("two instance IDs for one folder")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": "", Auto: "", own: "", "path:/opt/bin": "", "/x.sock": "/x.sock", "unix:///x.sock": "/x.sock",
		"bundeled": "--containerd must be auto", "path:bin": "--containerd=path:DIR must be an absolute path",
	} {
		o := Options{Containerd: value}
		got := o.Socket()
		if err := o.Check(); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	l := &lineLog{log: zap.New(core)}
	for _, chunk := range []string{
		`time="x" level=warning msg="it says \"no\"" id=1` + "\n" + `time="x" level=error ms`, "g=short\npanic: oh\n",
		`E1121 12:29:48.602327   26446 runtime.go:31] "Unhandled Error" err="no websocket"` + "\n", "no end",
	} {
		if n, err := l.Write([]byte(chunk)); n != len(chunk) || err != nil {
			t.Fatal(n, err)
		}
	}
	var got []string
	for _, e := range logs.All() {
		got = append(got, e.Level.String()+": "+e.ContextMap()["text"].(string))
	}
	if want := `[debug: it says "no" id=1 warn: short error: panic: oh debug: "Unhandled Error" err="no websocket"]`; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestReadPID(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := writePID(file, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p, runs := readPID(file)
	if !runs || p.pid != cmd.Process.Pid {
		t.Errorf("process %+v, runs %t", p, runs)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, "%d 1", p.pid), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, runs := readPID(file); runs {
		t.Error("readPID accepted another process with the same PID")
	}
	cmd.Process.Kill()
	cmd.Wait()
	if p.runs() {
		t.Error("a killed process counts as running")
	}
}

func TestChildEnv(t *testing.T) {
	t.Parallel()
	if got := childEnv([]string{"A=b", "NOTIFY_SOCKET=/run/x", "LISTEN_FDS=1", "PATH=/x:/y"}); fmt.Sprint(
		got) != "[A=b PATH=/x:/y]" {
		t.Errorf("got %v", got)
	}
}
