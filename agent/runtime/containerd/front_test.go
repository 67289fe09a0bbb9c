package containerd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/agent/network/cni"
	"monopod/testdata/harness"
)

// frontFlags are those in the head of base.h.
const frontFlags = "-Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables " +
	"-fno-pie -no-pie -fno-tree-loop-distribute-patterns -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s"

func TestFrontIsBuiltFromItsSource(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{runc: "front/runc.c", shimName: "front/shim.c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.Freestanding(t, frontFlags, source, 8000, func(arch string) []byte { return fronts[name][arch] })
		})
	}
}

// asked is the exit code of the program that takes runc's place in tests.
const asked = 42

// fronted is a container in the state of which the front looks.
type fronted struct {
	t       *testing.T
	program string // the front
	root    string // of runc's state
	cgroups string
	init    *exec.Cmd
	began   string
}

// newFronted returns a container whose first process is a program that runs until it gets a signal.
func newFronted(t *testing.T) *fronted {
	t.Helper()
	dir := t.TempDir()
	runc := filepath.Join(dir, "real")
	if err := cni.WriteProgram(runc, fmt.Appendf(nil, "#!/bin/sh\nexit %d\n", asked)); err != nil {
		t.Fatal(err)
	}
	p, _, err := programs{runtimes: []ociRuntime{{"crun", "/x/crun"}, {"runc", runc}}}.fronted(filepath.Join(dir, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	runtimes := p.runtimes
	if runtimes[1].path == runc {
		t.Skipf("no front for %s, or the folder %s has noexec", runtime.GOARCH, dir)
	}
	if runtimes[0].path != "/x/crun" {
		t.Errorf("crun is %s", runtimes[0].path)
	}
	f := &fronted{t: t, program: runtimes[1].path, root: filepath.Join(dir, "root"), cgroups: filepath.Join(dir, "cg")}
	f.init = exec.Command("sleep", "1000")
	if err := f.init.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.dies)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.init.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	f.began = strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[19]
	return f
}

// dies ends the first process.
func (f *fronted) dies() {
	if f.init.ProcessState == nil {
		_ = f.init.Process.Kill()
		_ = f.init.Wait()
	}
}

// has writes state.json, in which each odd text is replaced by the next one.
func (f *fronted) has(replaced ...string) {
	f.t.Helper()
	for _, dir := range []string{"id", "cg/freezer/id", "cg/memory/id"} {
		if err := os.MkdirAll(filepath.Join(f.root, "..", strings.Replace("root/"+dir, "root/cg", "cg", 1)), 0o755); err != nil {
			f.t.Fatal(err)
		}
	}
	text := fmt.Sprintf(`{"id":"id","init_process_pid":%d,"init_process_start":%s,"created":"2026-01-02T03:04:05Z","config":{"labels":["a=\"init_process_pid\":1,"],`+
		`"namespaces":[{"type":"NEWNET","path":"/n"},{"type":"NEWPID","path":""}],"cgroups":{"freezer":"","Systemd":false},`+
		`"Hooks":{"poststart":null,"poststop":null}},"rootless":false,"cgroup_paths":{"freezer":"%[3]s/freezer/id","memory":"%[3]s/memory/id","pids":"%[3]s/pids/id"},`+
		`"namespace_paths":{},"intel_rdt_path":""}`, f.init.Process.Pid, f.began, f.cgroups)
	changed := strings.NewReplacer(replaced...).Replace(text)
	if len(replaced) > 0 && changed == text {
		f.t.Fatalf("%q is not in %s", replaced, text)
	}
	if err := os.WriteFile(filepath.Join(f.root, "id", "state.json"), []byte(changed), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// calls calls the front, and returns whether it did the work itself.
func (f *fronted) calls(args ...string) bool {
	f.t.Helper()
	cmd := exec.Command(f.program, append([]string{"--root", f.root, "--log", "/nowhere/log.json", "--log-format", "json"}, args...)...)
	out, err := cmd.CombinedOutput()
	if len(out) > 0 {
		f.t.Errorf("%q says %s", args, out)
	}
	exit := &exec.ExitError{}
	switch {
	case err == nil:
		return true
	case errors.As(err, &exit) && exit.ExitCode() == asked:
		return false
	}
	f.t.Fatalf("%q: %v", args, err)
	return false
}

// left returns what is in the container's folder, and how many cgroups it has.
func (f *fronted) left() (names []string, cgroups int) {
	f.t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.root, "id"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	for _, controller := range []string{"freezer", "memory"} {
		if _, err := os.Stat(filepath.Join(f.cgroups, controller, "id")); err == nil {
			cgroups++
		}
	}
	return names, cgroups
}

// The front deletes a dead container only if that is the removal of its cgroups and its folder.
func TestFrontDeletes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		replaced []string
		file     string // in the container's folder or, with a folder, in a cgroup
		lives    bool
		want     bool
	}{
		"dead":                          {want: true},
		"alive":                         {lives: true},
		"the number is another process": {replaced: []string{`_start":`, `_start":1`}, lives: true, want: true},
		"hooks":                         {replaced: []string{`"poststop":null`, `"poststop":[{}]`}},
		"systemd's cgroup":              {replaced: []string{`"Systemd":false`, `"Systemd":true`}},
		"systemd's cgroup, newer":       {replaced: []string{`"Systemd":false`, `"systemd":true`}},
		"nothing that is empty":         {replaced: []string{`,"path":""`, "", `,"Systemd":false`, "", `,"Hooks":{"poststart":null,"poststop":null}`, "", `,"intel_rdt_path":""`, ""}, want: true},
		"hooks, none that is empty":     {replaced: []string{`"Hooks":{"poststart":null,"poststop":null}`, `"hooks":{"poststart":[{}]}`}},
		"PID namespace of a pod":        {replaced: []string{`"NEWPID","path":""`, `"NEWPID","path":"/proc/1/ns/pid"`}},
		"the host's PID namespace":      {replaced: []string{`"NEWPID"`, `"NEWIPC"`}},
		"resctrl":                       {replaced: []string{`"intel_rdt_path":""`, `"intel_rdt_path":"/sys/fs/resctrl/id"`}},
		"never started":                 {file: "exec.fifo"},
		"a cgroup in its cgroup":        {file: "../../cg/memory/id/child"},
		"a path with escapes":           {replaced: []string{`/memory/id"`, `/memory\u002fid"`}},
		"a path that is relative":       {replaced: []string{`"pids":"/`, `"pids":"`}},
		"no process":                    {replaced: []string{`"init_process_pid":`, `"init_process_pid":-`}},
		"other JSON":                    {replaced: []string{`{"id":"id",`, `{ "id": "id",`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFronted(t)
			f.has(tt.replaced...)
			if tt.file != "" {
				if err := os.Mkdir(filepath.Join(f.root, "id", tt.file), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if !tt.lives {
				f.dies()
			}
			if got := f.calls("delete", "id"); got != tt.want {
				t.Errorf("done: %t, want %t", got, tt.want)
			}
			names, cgroups := f.left()
			if tt.want && (names != nil || cgroups != 0) || !tt.want && len(names) == 0 {
				t.Errorf("left %q and %d cgroups", names, cgroups)
			}
			if tt.lives && f.init.Process.Signal(syscall.Signal(0)) != nil {
				t.Error("the process is dead")
			}
		})
	}
}

// Called by its name, as a program in PATH is, the front finds runc next to itself and not in the folder in which it is called.
func TestFrontCalledByName(t *testing.T) {
	t.Parallel()
	f := newFronted(t)
	cmd := exec.Command(f.program, "--version")
	cmd.Args[0], cmd.Dir = runc, t.TempDir()
	if err := cni.WriteProgram(filepath.Join(cmd.Dir, runc+".program"), []byte("#!/bin/sh\nexit 1\n")); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != asked {
		t.Errorf("%v: %s", err, out)
	}
}

// Without a container there is nothing to do, if that is no error.
func TestFrontDeletesNothing(t *testing.T) {
	t.Parallel()
	f := newFronted(t)
	for want, args := range map[bool][]string{true: {"delete", "--force", "id"}, false: {"delete", "id"}} {
		if got := f.calls(args...); got != want {
			t.Errorf("%q: done: %t", args, got)
		}
	}
}

func TestFrontKills(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args     []string
		replaced []string
		freezer  string
		dead     bool
		want     bool
		signal   unix.Signal // that the process got
	}{
		"a signal":                      {args: []string{"kill", "id", "15"}, want: true, signal: unix.SIGTERM},
		"the last one":                  {args: []string{"kill", "id", "9"}, freezer: "THAWED\n", want: true, signal: unix.SIGKILL},
		"frozen":                        {args: []string{"kill", "id", "9"}, freezer: "FROZEN\n"},
		"version 2":                     {args: []string{"kill", "id", "9"}, replaced: []string{`"freezer":"/`, `"":"/`}, want: true, signal: unix.SIGKILL},
		"by name":                       {args: []string{"kill", "id", "TERM"}},
		"no such signal":                {args: []string{"kill", "id", "65"}},
		"none":                          {args: []string{"kill", "id"}},
		"two":                           {args: []string{"kill", "id", "15", "15"}},
		"dead":                          {args: []string{"kill", "id", "15"}, dead: true},
		"the number is another process": {args: []string{"kill", "id", "15"}, replaced: []string{`_start":`, `_start":1`}},
		"PID namespace of a pod":        {args: []string{"kill", "id", "15"}, replaced: []string{`"NEWPID","path":""`, `"NEWPID","path":"/p"`}},
		"all of a dead one":             {args: []string{"kill", "--all", "id", "9"}, dead: true, want: true},
		"all of one that lives":         {args: []string{"kill", "--all", "id", "9"}},
		"all of a pod's namespace":      {args: []string{"kill", "--all", "id", "9"}, dead: true, replaced: []string{`"NEWPID","path":""`, `"NEWPID","path":"/p"`}},
		"no container":                  {args: []string{"kill", "other", "9"}},
		"a path":                        {args: []string{"kill", "../root/id", "15"}},
		"another option":                {args: []string{"kill", "--force", "id", "15"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFronted(t)
			f.has(tt.replaced...)
			if err := os.WriteFile(filepath.Join(f.cgroups, "freezer/id/freezer.state"), []byte(tt.freezer), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.dead {
				f.dies()
			}
			if got := f.calls(tt.args...); got != tt.want {
				t.Errorf("done: %t, want %t", got, tt.want)
			}
			if tt.signal != 0 {
				_ = f.init.Wait()
				if got := f.init.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != tt.signal {
					t.Errorf("ended by %v, want %v", got, tt.signal)
				}
			} else if !tt.dead && f.init.Process.Signal(syscall.Signal(0)) != nil {
				t.Error("the process is dead")
			}
		})
	}
}

// The first process waits until its FIFO is read.
func TestFrontStarts(t *testing.T) {
	t.Parallel()
	f := newFronted(t)
	f.has()
	fifo := filepath.Join(f.root, "id", "exec.fifo")
	if err := unix.Mkfifo(fifo, 0o622); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(fifo, []byte("0"), 0) }()
	if !f.calls("start", "id") {
		t.Error("runc is called")
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	if names, _ := f.left(); len(names) != 1 {
		t.Errorf("left %q", names)
	}
}

// What the front cannot start, runc reports.
func TestFrontLeavesFailedStartsToRunc(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fifo bool
		dies string // when
	}{
		"started before":       {},
		"dead":                 {true, "before"},
		"dies while it waits":  {true, "during"},
		"dies after it opened": {true, "opened"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFronted(t)
			f.has()
			fifo := filepath.Join(f.root, "id", "exec.fifo")
			if tt.fifo {
				if err := unix.Mkfifo(fifo, 0o622); err != nil {
					t.Fatal(err)
				}
			}
			switch tt.dies {
			case "before":
				f.dies()
			case "during", "opened":
				go func() {
					w, _ := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the front
					if tt.dies == "opened" {
						w.Close()
					}
					_ = f.init.Process.Kill()
					_, _ = f.init.Process.Wait()
					w.Close()
				}()
			}
			if f.calls("start", "id") {
				t.Error("done")
			}
		})
	}
}

// Other commands and options are runc's.
func TestFrontExecutesRunc(t *testing.T) {
	t.Parallel()
	f := newFronted(t)
	f.has()
	for _, args := range [][]string{
		{"--debug", "kill", "id", "15"}, {"--systemd-cgroup", "kill", "id", "15"}, {"create", "--bundle", "/b", "id"}, {"state", "id"}, {"pause", "id"},
		{"start"}, {"start", "id", "more"}, {"start", ""}, {"delete", "--force"}, {"delete", "."}, {},
	} {
		if f.calls(args...) {
			t.Errorf("%q: runc is not called", args)
		}
	}
	for env, want := range map[string]int{"NOTIFY_SOCKET=/s": asked, "X=1": 0} {
		cmd := exec.Command(f.program, "--root", f.root, "kill", "id", "18")
		cmd.Env = []string{env}
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != want {
			t.Errorf("with %s: %v, want %d", env, err, want)
		}
	}
	if err := os.Remove(f.program + ".program"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(f.program, "--version").CombinedOutput()
	if err == nil || !strings.Contains(cmp.Or(string(out), "nothing"), "cannot execute runc") {
		t.Errorf("without runc: %v, %s", err, out)
	}
}
