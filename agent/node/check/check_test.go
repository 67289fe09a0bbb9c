package check

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/agent/host"
)

// fit returns the facts of a machine that passes every check.
func fit() Facts {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	return Facts{
		Containers: true, Child: true, DataDir: "/data", Privileged: true, Kernel: "6.1.0-18-amd64",
		Cgroups: Cgroups{2, []string{"cpu", "memory", "pids"}}, Seccomp: true, Stalls: true,
		Clock: Clock{Now: now, Built: now.Add(-time.Hour), Synchronized: true},
		Disk: host.Amount{
			Total: 10 << 30,
			Free:  5 << 30,
		}, Inodes: host.Amount{Total: 1000, Free: 900}, Memory: host.Amount{Total: 1 << 30, Free: 1 << 29},
		Ports: []Port{
			{Flag: "listen", Address: "127.0.0.1:6443"},
		}, Containerd: Program{Version: "containerd 2.1"}, Runc: Program{Version: "runc 1.3"},
	}
}

func TestPassingMachine(t *testing.T) {
	t.Parallel()
	results := Of(fit())
	for _, r := range results {
		if r.Verdict != OK || r.Found == "" || r.Remedy != "" {
			t.Errorf("unexpected result: %+v", r)
		}
	}
	if len(results) != 20 || Worst(results) != OK {
		t.Errorf("%d results with the worst verdict %s, want 20 and OK", len(results), Worst(results))
	}
}

// The containerd that monopod starts needs only crun.
func TestCrunAlone(t *testing.T) {
	t.Parallel()
	f := fit()
	f.Runc = Program{Err: errors.New("runc is not installed")}
	if results := Of(f); Worst(results) != OK {
		t.Errorf("results without runc: %+v", results)
	}
}

// Each case changes one fact. Only the named check fails, with a remedy.
func TestWhatIsMissing(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change  func(*Facts)
		name    string
		verdict Verdict
		found   string // part of Result.Found
		remedy  string
	}{
		"an old kernel": {func(f *Facts) { f.Kernel = "4.18.0" }, "kernel", Warning, "Linux 4.18.0", "upgrade"},
		"no kernel":     {func(f *Facts) { f.Kernel = "" }, "kernel", Warning, "4.19", "upgrade"},
		"little memory": {func(f *Facts) { f.Memory.Free = 90 << 20 }, "memory", Warning, "90 MiB of 1.0 GiB available",
			"--eviction-hard"},
		"unknown memory": {func(f *Facts) { f.MemoryErr = errors.New("no /proc") }, "memory", Warning, "no /proc", "mount"},
		"a full disk": {func(f *Facts) { f.Disk.Free = 50 << 20 }, "disk", Missing, "50 MiB of 10 GiB free on /data",
			"--data-dir"},
		"an almost full disk": {func(f *Facts) { f.Disk.Free = 900 << 20 }, "disk", Warning, "below 10 %", "--eviction-hard"},
		"no inodes":           {func(f *Facts) { f.Inodes.Free = 9 }, "disk", Warning, "9 of 1000 inodes", "remove files"},
		"no disk":             {func(f *Facts) { f.DiskErr = unix.EIO }, "disk", Missing, "input/output error", "--data-dir"},
		"a clock in the past": {func(f *Facts) { f.Clock.Now = time.Unix(0, 0) }, "clock", Warning,
			"1970-01-01 00:00 UTC, which is before", "set the clock"},
		"a clock on its own": {func(f *Facts) { f.Clock.Synchronized = false }, "clock", Warning, "not synchronized",
			"timedatectl"},
		"a port in use": {func(f *Facts) { f.Ports[0].Err = unix.EADDRINUSE }, "port", Missing,
			"cannot listen on 127.0.0.1:6443: address already in use", "--listen"},
		"no cgroups": {func(f *Facts) { f.Cgroups = Cgroups{} }, "cgroups", Missing, "none", "mount -t cgroup2"},
		"no modprobe": {func(f *Facts) { f.SetUp = errors.New("load veth.ko: exec format error") }, "setup", Warning,
			"load veth.ko", "kernel"},
		"a Raspberry Pi": {func(f *Facts) { f.Cgroups = Cgroups{2, []string{"cpu", "pids"}} }, "cgroups", Warning,
			"version 2 without memory", "cgroup_enable=memory"},
		"no pids": {func(f *Facts) { f.Cgroups = Cgroups{1, []string{"cpu", "memory"}} }, "cgroups", Warning,
			"version 1 without pids", "kernel"},
		"no overlay": {func(f *Facts) { f.Overlay = unix.ENODEV }, "overlay", Warning, "/data (no such device)",
			"modprobe overlay"},
		"no bridge": {func(f *Facts) { f.Bridge = unix.EOPNOTSUPP }, "network", Missing, "operation not supported",
			"modprobe bridge veth"},
		"no nftables": {func(f *Facts) { f.Nftables = unix.EPROTONOSUPPORT }, "nftables", Warning,
			"protocol not supported", "modprobe nf_tables"},
		"no hosts":   {func(f *Facts) { f.Hosts = unix.ENOENT }, "hosts", Warning, "no /etc/hosts", "> /etc/hosts"},
		"no seccomp": {func(f *Facts) { f.Seccomp = false }, "seccomp", Warning, "none", "CONFIG_SECCOMP_FILTER"},
		"no id-mapped mounts": {func(f *Facts) { f.Users = unix.EINVAL }, "usernamespaces", Warning,
			"/data (invalid argument)", "Linux 6.3"},
		"no PSI": {func(f *Facts) { f.Stalls = false }, "pressure", Warning, "does not measure", "psi=1"},
		"swap on cgroup v1": {func(f *Facts) { f.Swap, f.Cgroups.Version = 1<<30, 1 }, "swap", Warning, "1.0 GiB",
			"cgroup v2"},
		"an old containerd": {func(f *Facts) { f.Containerd.Version = "containerd 1.6.20~ds1 1.6.20" }, "imagevolumes",
			Warning, "cannot mount images", "upgrade"},
		"no containerd": {func(f *Facts) { f.Containerd = Program{Err: errors.New("containerd is not installed")} },
			"containerd", Missing, "not installed", "apt-get install"},
		"no runc": {func(f *Facts) {
			f.Runc, f.CrunErr = Program{Err: errors.New("runc is not installed")}, exec.ErrNotFound
		}, "runc", Missing, "not installed", "apt-get install"},
		"containerd down": {func(f *Facts) {
			f.Child = false
			f.Socket = "/run/c.sock"
			f.SocketError = unix.ECONNREFUSED
		}, "containerd", Missing, "/run/c.sock: connection refused", "systemctl start"},
	} {
		f := fit()
		c.change(&f)
		results := Of(f)
		if Worst(results) != c.verdict {
			t.Errorf("%s: the worst verdict is %s, want %s", what, Worst(results), c.verdict)
		}
		for _, r := range results {
			switch {
			case r.Name != c.name && r.Verdict != OK:
				t.Errorf("%s: another check fails: %+v", what, r)
			case r.Name == c.name && (r.Verdict != c.verdict || !strings.Contains(r.Found, c.found) ||
				!strings.Contains(r.Remedy, c.remedy)):
				t.Errorf("%s: unexpected result: %+v", what, r)
			}
		}
	}
}

// Without privileges, Of omits checks that need them. Only containers need privileges.
func TestUnprivilegedUser(t *testing.T) {
	t.Parallel()
	f := fit()
	f.UID, f.Privileged = 1000, false
	results := Of(f)
	if Worst(results) != Missing || len(results) != 9 {
		t.Errorf("results with containers: %+v", results)
	}
	f.Containers = false
	if results := Of(f); Worst(results) != OK || len(results) != 5 {
		t.Errorf("results without containers: %+v", results)
	}
}

func TestCgroupsOfMachines(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		files []string
		text  string
		want  Cgroups
	}{
		"v2": {[]string{"cgroup.controllers"}, "cpuset cpu memory\n", Cgroups{2, []string{"cpuset", "cpu", "memory"}}},
		"v1": {[]string{"cpu/cgroup.procs", "pids/cgroup.procs"}, "", Cgroups{1, []string{"cpu", "pids"}}},
		"hybrid": {[]string{"cpu/cgroup.procs", "unified/cgroup.controllers"}, "memory\n",
			Cgroups{1, []string{"cpu", "memory"}}},
		"none": {nil, "", Cgroups{}},
	} {
		root := t.TempDir()
		for _, file := range c.files {
			path := filepath.Join(root, "sys/fs/cgroup", file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(c.text),
				0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroups(root); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// Collect finds a port in use on this machine, and leaves no files, folders or links.
func TestCollect(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	cfg := Config{
		DataDir: filepath.Join(dir, "not", "yet"),
		Runtime: "containerd",
		Listen:  map[string]string{"listen": l.Addr().String(), "kubelet-listen": "127.0.0.1:0"},
	}
	f := Collect(t.Context(), cfg)
	if len(f.Ports) != 2 || !errors.Is(f.Ports[0].Err, unix.EADDRINUSE) || f.Ports[0].Ours || f.Ports[1].Err != nil {
		t.Errorf("ports: %+v", f.Ports)
	}
	if f.Kernel == "" || f.Disk.Total == 0 || f.Memory.Free == 0 || f.Cgroups.Version == 0 || f.DiskErr != nil ||
		f.MemoryErr != nil ||
		!f.Child {
		t.Errorf("facts: %+v", f)
	}
	if f.Privileged && (f.Bridge != nil || f.Nftables != nil || f.Overlay != nil || f.Users != nil) {
		t.Errorf("bridge: %v, nftables: %v, overlay: %v, user namespaces: %v", f.Bridge, f.Nftables, f.Overlay, f.Users)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("files left: %v, error %v", left, err)
	}
	if links, err := net.InterfaceByName("check0"); err == nil {
		t.Errorf("link left: %+v", links)
	}
}
