package containerd

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"monopod/agent/network/cni"
)

// bundled is a bundle of a container, for which the front of the shim is called.
type bundled struct {
	t         *testing.T
	front     string
	arg0      string // empty: front
	path      string
	namespace string // of this test alone: its folder is where runc keeps what it knows
	address   string // of containerd
	socket    string // of the sandbox's shim
}

const (
	sandboxID   = "0123456789abcdef"
	containerID = "fedcba9876543210"
)

// shimScript takes the shim's place: where it would stay, it tells the reader of a FIFO how it was executed.
const shimScript = `#!/bin/sh
case "$*" in
*start|*delete) cat; exit 42;;
esac
exec >report
echo "$@"
echo "$PWD $GOMAXPROCS $TTRPC_ADDRESS"
cut -d' ' -f5 /proc/$$/stat | grep -qx $$ && echo "leads its group"
readlink /proc/$$/fd/0 /proc/$$/fd/2 /proc/$$/fd/3
cat /proc/$$/oom_score_adj
`

func newBundled(t *testing.T, id string) *bundled {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: the sockets of shims are below /run/containerd, which needs root")
	}
	dir := t.TempDir()
	b := &bundled{t: t, path: filepath.Join(dir, "tasks", id), namespace: "test-" + uuid.NewString(), address: filepath.Join(dir, ".run", "containerd.sock")}
	real := filepath.Join(dir, "real")
	if err := errors.Join(cni.WriteProgram(real, []byte(shimScript)), os.MkdirAll(filepath.Join(b.path, "rootfs"), 0o700), os.MkdirAll("/run/containerd/s", 0o711)); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.front, err = front(dir, shimName, real); err != nil {
		t.Fatal(err)
	}
	if b.front == real {
		t.Skip("left out: no front for this architecture")
	}
	b.socket = fmt.Sprintf("/run/containerd/s/%x", sha256.Sum256([]byte(b.address+"/"+b.namespace+"/"+sandboxID)))
	t.Cleanup(func() { _ = os.Remove(b.socket) })
	b.write("config.json", `{"ociVersion":"1.0.2","hostname":"}\"annotations\":{","linux":{"annotations":{"io.kubernetes.cri.sandbox-id":"x"}},"mounts":[{"a":["]"]},null],`+
		`"annotations":{"io.kubernetes.cri.container-type":"a\\","io.kubernetes.cri.sandbox-id":"`+sandboxID+`"}}`)
	return b
}

func (b *bundled) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.path, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// call calls the front with the arguments of containerd, in which each odd text is replaced by the next one, and returns what
// it prints, and whether it executed the shim.
func (b *bundled) call(action string, env []string, replaced ...string) (out string, shim bool) {
	b.t.Helper()
	id := filepath.Base(b.path)
	args := "-namespace|" + b.namespace + "|-address|" + b.address + "|-publish-binary|/usr/bin/containerd|-id|" + id + "|"
	if action == "delete" {
		args += "-bundle|" + b.path + "|"
	}
	all := args + action
	if args = strings.NewReplacer(replaced...).Replace(all); len(replaced) > 0 && args == all {
		b.t.Fatalf("%q is not in %s", replaced, args)
	}
	cmd := exec.Command(b.front, strings.Split(args, "|")...)
	cmd.Args[0] = cmp.Or(b.arg0, b.front)
	cmd.Dir, cmd.Stdin = b.path, strings.NewReader("options")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2", "TTRPC_ADDRESS=/t.sock"}, env...)
	text, err := cmd.Output()
	exit := &exec.ExitError{}
	switch {
	case err == nil:
		return string(text), false
	case errors.As(err, &exit) && exit.ExitCode() == asked:
		if action == "start" && string(text) != "options" {
			b.t.Errorf("the shim reads %q", text)
		}
		return "", true
	}
	b.t.Fatalf("%v: %s", err, text)
	return "", false
}

// addressIs checks the file with the address of the shim.
func (b *bundled) addressIs(want string) {
	b.t.Helper()
	if text, err := os.ReadFile(filepath.Join(b.path, "address")); string(text) != want {
		b.t.Errorf("address: %q, %v; want %q", text, err, want)
	}
}

// For a sandbox, the front makes the socket and executes the shim that serves it.
func TestShimFrontStartsSandbox(t *testing.T) {
	t.Parallel()
	b := newBundled(t, sandboxID)
	b.arg0 = shimName // found in PATH
	report := filepath.Join(b.path, "report")
	if err := unix.Mkfifo(report, 0o600); err != nil {
		t.Fatal(err)
	}
	out, shim := b.call("start", []string{"X=1"})
	if out != "unix://"+b.socket || shim {
		t.Fatalf("prints %q, executes the shim: %t; want the address of %s", out, shim, b.socket)
	}
	b.addressIs(out)
	told, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(told), "\n")
	want := []string{
		"-namespace " + b.namespace + " -id " + sandboxID + " -address " + b.address, b.path + " 4 /t.sock", "leads its group",
		"/dev/null", "/dev/null", "socket:", fmt.Sprint(min(score+1, 1000)), "",
	}
	if len(lines) == len(want) {
		lines[5], _, _ = strings.Cut(lines[5], "[")
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("executed as\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if info, err := os.Stat(b.socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
}

// For a container, it finds the socket of the sandbox's shim.
func TestShimFrontFindsShim(t *testing.T) {
	t.Parallel()
	b := newBundled(t, containerID)
	l, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, shim := b.call("start", nil)
	if out != "unix://"+b.socket || shim {
		t.Errorf("prints %q, executes the shim: %t; want the address of %s", out, shim, b.socket)
	}
	b.addressIs(out)
	if _, err := l.Accept(); err != nil {
		t.Error(err)
	}
}

// What the front leaves to do, a process of its own does only where PID 1 reaps it.
func TestShimFrontLeavesNoZombies(t *testing.T) {
	t.Parallel()
	// The front's parent and its parent are not PID 1. PIDs of a new namespace are given in turn.
	const script = `depth=$1; shift
case $depth in 3) "$@" >/dev/null; /bin/sh -c 'echo $$';; *) /bin/sh "$0" $((depth + 1)) "$@";; esac
:`
	for init, want := range map[string]string{"tini": "6\n", "systemd": "6\n", "monopod": "5\n", "s6": "5\n", "systemd-run": "5\n"} {
		b := newBundled(t, containerID)
		dir := t.TempDir()
		if err := errors.Join(os.Symlink("/bin/sh", filepath.Join(dir, init)), os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o600)); err != nil {
			t.Fatal(err)
		}
		unshare := []string{"unshare", "--fork", "--pid", "--mount-proc"}
		if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
			t.Skipf("left out: no PID namespace: %v: %s", err, out)
		}
		l, err := net.Listen("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		cmd := exec.Command(unshare[0], append(unshare[1:], filepath.Join(dir, init), filepath.Join(dir, "script"), "1",
			b.front, "-namespace", b.namespace, "-address", b.address, "-id", containerID, "start")...)
		cmd.Dir, cmd.Env = b.path, []string{"GOMAXPROCS=2", "TTRPC_ADDRESS=/t.sock", "PATH=" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s: the next PID is %q, %v; want %q", init, out, err, want)
		}
		b.addressIs("unix://" + b.socket)
	}
}

// What the front does not know is the shim's to do; nothing of its own is left.
func TestShimFrontLeavesStartsToShim(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env      []string
		replaced []string
		config   string
		before   func(b *bundled) error
	}{
		"core scheduling":        {env: []string{"SCHED_CORE=1"}},
		"no events":              {env: []string{"TTRPC_ADDRESS="}},
		"debugging":              {replaced: []string{"|start", "|-debug|start"}},
		"another action":         {replaced: []string{"|start", "|start|start"}},
		"version":                {replaced: []string{"-namespace", "-v"}},
		"an argument twice":      {replaced: []string{"-publish-binary", "-id"}},
		"a bundle":               {replaced: []string{"-publish-binary", "-bundle"}},
		"no namespace":           {replaced: []string{"-namespace", "-publish-binary", "-publish-binary", "-bundle"}},
		"a namespace with paths": {replaced: []string{"-namespace|", "-namespace|../"}},
		"an address with paths":  {replaced: []string{"/.run/", "/./"}},
		"with an empty part":     {replaced: []string{"/.run/", "//"}},
		"a relative address":     {replaced: []string{"-address|/", "-address|"}},
		"no config":              {config: "?"},
		"not of CRI":             {config: `{"annotations":{"a":"b"}}`},
		"no annotations":         {config: `{"ociVersion":"1.0.2"}`},
		"annotations of another": {config: `{"linux":{"annotations":{"io.kubernetes.cri.sandbox-id":"x"}}}`},
		"with spaces":            {config: `{ "annotations": {"io.kubernetes.cri.sandbox-id": "x"}}`},
		"escapes":                {config: `{"annotations":{"io.kubernetes.cri.sandbox-id":"\u0061"}}`},
		"no end":                 {config: `{"a":"\`},
		"no value":               {config: `{"annotations":{"io.kubernetes.cri.sandbox-id":`},
		"another group":          {config: `{"annotations":{"io.containerd.runc.v2.group":"g","io.kubernetes.cri.sandbox-id":"x"}}`},
		"a socket that nobody serves": {before: func(b *bundled) error {
			l, err := net.Listen("unix", b.socket)
			if err == nil {
				l.(*net.UnixListener).SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		}},
		"a second time": {before: func(b *bundled) error { return os.WriteFile(filepath.Join(b.path, ".address"), nil, 0o600) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundled(t, sandboxID)
			if tt.config != "" {
				b.write("config.json", tt.config)
			}
			if tt.before != nil {
				if err := tt.before(b); err != nil {
					t.Fatal(err)
				}
			}
			if out, shim := b.call("start", tt.env, tt.replaced...); !shim {
				t.Errorf("prints %q", out)
			}
			if _, err := os.Stat(filepath.Join(b.path, "address")); err == nil {
				t.Error("the address is there")
			}
			if _, err := os.Stat(b.socket); err == nil && !strings.Contains(name, "socket") {
				t.Error("the socket is there")
			}
		})
	}
}

// A shim that cannot be executed reports that itself.
func TestShimFrontWithoutShim(t *testing.T) {
	t.Parallel()
	b := newBundled(t, sandboxID)
	if err := os.Chmod(b.front+".program", 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(b.front, "-namespace", b.namespace, "-address", b.address, "-id", sandboxID, "start")
	cmd.Dir, cmd.Env = b.path, []string{"GOMAXPROCS=2", "TTRPC_ADDRESS=/t.sock"}
	var out, says bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &says
	if err := cmd.Run(); err == nil || out.Len() > 0 || !strings.Contains(says.String(), "cannot execute the shim") {
		t.Errorf("%v, prints %q and %q", err, &out, &says)
	}
	if _, err := os.Stat(b.socket); err == nil {
		t.Error("the socket is there")
	}
}

// The front deletes what is gone; what may be there, the shim deletes.
func TestShimFrontDeletes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		without  string
		file     string // and its text
		text     string
		replaced []string
		before   func(b *bundled) error
		want     bool
	}{
		"gone":             {want: true},
		"of crun":          {file: "runtime", text: "/usr/bin/crun", want: true},
		"of another":       {file: "runtime", text: "/usr/bin/runsc"},
		"of none":          {without: "runtime"},
		"relative":         {file: "runtime", text: "runc"},
		"elsewhere":        {file: "options.json", text: `{"binary_name":"/x/runc","root":"/elsewhere"}`},
		"no options":       {without: "options.json"},
		"no process":       {without: "init.pid"},
		"an odd process":   {file: "init.pid", text: "12 34"},
		"without a rootfs": {without: "rootfs", want: true},
		"another bundle":   {replaced: []string{"/tasks/", "/tasks/../tasks/"}},
		"no bundle":        {replaced: []string{"-bundle", "-publish-binary", "-publish-binary", "-address", "-address", "-bundle"}},
		"debugging":        {replaced: []string{"|delete", "|-debug|delete"}},
		"known to runc":    {before: func(b *bundled) error { return os.MkdirAll("/run/containerd/runc/"+b.namespace+"/"+containerID, 0o700) }},
		"its rootfs mounted": {before: func(b *bundled) error {
			return unix.Mount(b.path, filepath.Join(b.path, "rootfs"), "", unix.MS_BIND, "")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundled(t, containerID)
			t.Cleanup(func() {
				_ = unix.Unmount(filepath.Join(b.path, "rootfs"), unix.MNT_DETACH)
				_ = os.RemoveAll("/run/containerd/runc/" + b.namespace)
			})
			b.write("runtime", "/x/oci/runc")
			b.write("options.json", `{"binary_name":"/x/oci/runc"}`)
			b.write("init.pid", "4321")
			if tt.file != "" {
				b.write(tt.file, tt.text)
			}
			if tt.without != "" {
				if err := os.Remove(filepath.Join(b.path, tt.without)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.before != nil {
				if err := tt.before(b); err != nil {
					t.Skipf("left out: %v", err)
				}
			}
			began := time.Now()
			out, shim := b.call("delete", nil, tt.replaced...)
			if shim == tt.want {
				t.Fatalf("executes the shim: %t, want %t", shim, !tt.want)
			}
			if tt.want {
				answers(t, []byte(out), began)
			}
		})
	}
}

// answers checks containerd's answer about a container that was killed.
func answers(t *testing.T, out []byte, began time.Time) {
	t.Helper()
	exit, at := fields(t, out)
	now, _ := fields(t, at)
	if exit[1] != 4321 || exit[2] != 137 || at == nil {
		t.Errorf("%x: process, code: %v", out, exit)
	}
	if ended := time.Unix(int64(now[1]), int64(now[2])); ended.Before(began.Add(-time.Second)) || ended.After(time.Now().Add(time.Second)) || now[2] >= 1e9 {
		t.Errorf("ended %v, called %v", ended, began)
	}
}

// fields returns the numbers of a message of protobuf, and the last message in it.
func fields(t *testing.T, message []byte) (numbers map[protowire.Number]uint64, inner []byte) {
	t.Helper()
	numbers = map[protowire.Number]uint64{}
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatalf("tag: %v in %x", protowire.ParseError(n), message)
		}
		message = message[n:]
		if kind == protowire.BytesType {
			inner, n = protowire.ConsumeBytes(message)
		} else {
			numbers[field], n = protowire.ConsumeVarint(message)
		}
		if n < 0 {
			t.Fatalf("field %d: %v in %x", field, protowire.ParseError(n), message)
		}
		message = message[n:]
	}
	return numbers, inner
}

// The front is used where containerd and the shim speak as it does, and pods run with a program that it knows.
func TestShimFrontIsUsed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		containerd, shim programVersion
		runtime          string
		dir              string
		want             bool
	}{
		"1.6":                 {programVersion{1, 6}, programVersion{1, 6}, runc, "oci", true},
		"1.7 with crun":       {programVersion{1, 7}, programVersion{1, 7}, crun, "oci", true},
		"a newer shim":        {programVersion{1, 6}, programVersion{2, 0}, runc, "oci", false},
		"2.1":                 {programVersion{2, 1}, programVersion{2, 1}, runc, "oci", false},
		"1.5":                 {programVersion{1, 5}, programVersion{1, 5}, runc, "oci", false},
		"an unknown":          {programVersion{1, 6}, programVersion{}, runc, "oci", false},
		"another OCI runtime": {programVersion{1, 6}, programVersion{1, 6}, "youki", "oci", false},
		"a colon":             {programVersion{1, 6}, programVersion{1, 6}, runc, "o:ci", false},
	} {
		dir := filepath.Join(t.TempDir(), tt.dir)
		p := programs{version: tt.containerd, shim: "/x/" + shimName, shimVersion: tt.shim, runtimes: []ociRuntime{{tt.runtime, "/x/" + tt.runtime}, {runc, "/x/runc"}}}
		_, path, err := p.fronted(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, runc)); err != nil {
			t.Skipf("left out: no fronts: %v", err)
		}
		bin := filepath.Join(dir, "bin")
		if (path == bin) != tt.want || !tt.want && path != "" {
			t.Errorf("%s: looks in %q", name, path)
		}
		if _, err := os.Stat(filepath.Join(bin, runc)); err == nil {
			t.Errorf("%s: finds the front of runc in PATH, too", name)
		}
		if link, err := os.Readlink(filepath.Join(bin, shimName+".program")); link != "/x/"+shimName {
			t.Errorf("%s: the shim is %q, %v", name, link, err)
		}
	}
}
