package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"monopod/apiserver/kit/local"
)

// TestMain lets the test binary be a fake monopod.
func TestMain(m *testing.M) {
	if version := os.Getenv("FAKE_MONOPOD"); version != "" {
		if err := pretend(version, os.Getenv("FAKE_MODE"), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pretend is the fake monopod. The mode selects its failure.
func pretend(version, mode string, args []string) error {
	dir := filepath.Join(os.Getenv("FAKE_ROOT"), "data")
	state := filepath.Join(dir, "state")
	switch args[0] {
	case "version":
		fmt.Printf(`{"monopodVersion": {"gitVersion": %q}}`, version)
	case "config":
		if mode == "refuses" || strings.Contains(strings.Join(args, " "), "--wrong") {
			return fmt.Errorf("unknown flag: --wrong")
		}
	case "snapshot":
		if args[1] == "restore" {
			return os.Remove(state)
		}
		fmt.Println("snap-1")
	case "reset":
		return os.WriteFile(filepath.Join(dir, "reset"), nil, 0o600)
	case "serve":
		if text, err := os.ReadFile(state); err == nil && string(text) != version {
			return fmt.Errorf("the state belongs to %s", text)
		}
		if mode == "changes" { // changes the state so that a previous version cannot read it
			if err := os.WriteFile(state, []byte(version), 0o600); err != nil {
				return err
			}
		}
		if mode == "dies" || mode == "changes" {
			return fmt.Errorf("exits at the start")
		}
		return pretendToServe(dir, version, mode)
	}
	return nil
}

func pretendToServe(dir, version, mode string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	_ = os.Remove(local.Socket(dir))
	l, err := net.Listen("unix", local.Socket(dir))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/monopod/status":
			fmt.Fprintf(w, `{"version": %q, "pid": %d, "state": {"kind": "file"}}`, version, os.Getpid())
		case "/monopod/certs":
			io.WriteString(w, "[]")
		case "/readyz":
			if mode == "sick" {
				w.WriteHeader(http.StatusInternalServerError)
				io.WriteString(w, "[-]state failed: it is sick\nreadyz check failed\n")
				return
			}
			io.WriteString(w, "[+]state ok\nreadyz check passed\n")
			if mode == "flaky" {
				os.Exit(1)
			}
		case "/api/v1/nodes":
			io.WriteString(w,
				`{"items": [{"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}`)
		default:
			io.WriteString(w, "{}")
		}
	})}
	go func() { <-ctx.Done(); server.Close() }()
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// systemctl starts the command of the unit, and records its arguments.
const systemctl = `#!/bin/sh
cd "$(dirname "$0")"
echo "$1" >>calls
case $1 in
is-active) [ -f pid ] && kill -0 "$(cat pid)" 2>/dev/null ;;
stop | restart)
	if [ -f pid ]; then
		kill "$(cat pid)" 2>/dev/null
		while kill -0 "$(cat pid)" 2>/dev/null; do sleep 0.02; done
		rm pid
	fi
	[ "$1" = stop ] && exit 0
	command=$(sed -n 's/^ExecStart=//p' etc/systemd/system/monopod.service)
	rm -f data/monopod.sock
	FAKE_ROOT=$PWD setsid $PWD$command </dev/null >/dev/null 2>&1 &
	echo $! >pid
	while kill -0 $! 2>/dev/null; do # until the service has started
		[ -S data/monopod.sock ] && exit 0
		sleep 0.02
	done
	echo failed because the control process exited
	exit 1
	;;
esac
`

// box is a machine in a folder, with a fake systemctl.
type box struct {
	*installer
	t   *testing.T
	out bytes.Buffer
}

func newBox(t *testing.T) *box {
	root, err := os.MkdirTemp("", "ins") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, installer: &installer{
		service: systemd(), root: root, program: "/usr/local/bin/monopod", dataDir: "/data", timeout: 20 * time.Second,
		settle: 30 * time.Millisecond, clock: clock.RealClock{},
	}}
	b.installer.out = &b.out
	t.Cleanup(func() {
		b.ctl("stop")
		os.RemoveAll(root)
	})
	for _, command := range []*[]string{&b.reload, &b.enable, &b.restart, &b.stop, &b.disable, &b.active} {
		(*command)[0] = filepath.Join(root, "systemctl")
	}
	b.write("systemctl", systemctl)
	b.write("data/.keep", "")
	return b
}

func (b *box) write(name, content string) string {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	syscall.ForkLock.RLock() // see replaceFile
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// make returns the path of a fake monopod of this version.
func (b *box) make(version, mode string) string {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	return b.write(
		"new/"+version,
		fmt.Sprintf("#!/bin/sh\nFAKE_ROOT=%s FAKE_MONOPOD=%s FAKE_MODE=%s exec %s \"$@\"\n", b.root, version, mode, self),
	)
}

func (b *box) ctl(args ...string) string {
	out, _ := exec.Command(filepath.Join(b.root, "systemctl"), args...).CombinedOutput() // tests check the effect
	return string(out)
}

// calls returns the systemctl commands since the last call of calls.
func (b *box) calls() string {
	path := filepath.Join(b.root, "calls")
	text, _ := os.ReadFile(path)
	_ = os.Remove(path)
	return strings.Join(strings.Fields(string(text)), " ")
}

// runs fails the test unless this version serves.
func (b *box) runs(version string) (pid int) {
	b.t.Helper()
	var about struct {
		Version string `json:"version"`
		PID     int    `json:"pid"`
	}
	data, err := local.At(b.at("/data")).Read(b.t.Context(), "/monopod/status")
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	if err != nil || about.Version != version {
		b.t.Errorf("%s runs, want %s: %v\n%s", about.Version, version, err, &b.out)
	}
	return about.PID
}

func (b *box) installed(version string) *box {
	b.t.Helper()
	if err := b.install(b.t.Context(), b.make(version, "ok"), []string{"--data-dir=/data"}); err != nil {
		b.t.Fatal(err)
	}
	b.runs(version)
	b.calls()
	return b
}

// The flag --data-dir may be one argument or two; the last one counts. A later command reads it from the service.
func TestDataFolderOfTheFlags(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{
		{"--data-dir=/data"},
		{"--data-dir", "/data", "--max-pods", "5"},
		{"--data-dir=/wrong", "--data-dir", "/data"},
	} {
		b := newBox(t)
		b.dataDir = "/var/lib/monopod"
		if err := b.install(t.Context(), b.make("v1", "ok"), flags); err != nil {
			t.Fatalf("%q: %v", flags, err)
		}
		later := *b.installer
		later.dataDir = "/var/lib/monopod"
		if _, err := later.installed(); err != nil || later.dataDir != "/data" {
			t.Errorf("%q: the service has %s: %v", flags, later.dataDir, err)
		}
	}
}

// The commands install into /, regardless of the working directory.
func TestInstallRoot(t *testing.T) {
	t.Parallel()
	for _, cmd := range installCommands("/var/lib/monopod") {
		if root := cmd.Flags().Lookup("root").DefValue; root != "/" {
			t.Errorf("%s: the default of --root is %q", cmd.Name(), root)
		}
	}
	b := newBox(t)
	if err := b.install(t.Context(), b.make("v1", "ok"), []string{"--data-dir=data"}); err == nil ||
		!strings.Contains(err.Error(), "absolute path") {
		t.Errorf("install with a relative data folder: %v", err)
	}
}

// A second installation changes nothing; one with other flags changes the unit and restarts the service.
func TestInstall(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	program := b.make("v1", "ok")
	if err := b.install(t.Context(), program, []string{"--data-dir=/data"}); err != nil {
		t.Fatal(err)
	}
	pid := b.runs("v1")
	if calls := b.calls(); calls != "daemon-reload enable restart" {
		t.Errorf("systemctl %s", calls)
	}
	if err := b.install(t.Context(), program, []string{"--data-dir=/data"}); err != nil {
		t.Fatal(err)
	}
	if calls := b.calls(); calls != "daemon-reload enable is-active" || b.runs("v1") != pid ||
		!strings.Contains(b.out.String(), "nothing to do") {
		t.Errorf("second installation: systemctl %s\n%s", calls, &b.out)
	}
	if err := b.install(t.Context(), program, []string{"--data-dir=/data", "--max-pods=5"}); err != nil {
		t.Fatal(err)
	}
	if calls := b.calls(); calls != "daemon-reload enable restart" || b.runs("v1") == pid {
		t.Errorf("installation with another flag: systemctl %s", calls)
	}
	text, _ := os.ReadFile(b.at(b.file))
	if !strings.Contains(string(text), "\nExecStart=/usr/local/bin/monopod serve --data-dir=/data --max-pods=5\n") {
		t.Errorf("the unit lacks the new flag:\n%s", text)
	}
	if err := b.install(t.Context(), program, []string{"--wrong"}); err == nil ||
		!strings.Contains(err.Error(), "the flags of serve are not valid") ||
		b.calls() != "" {
		t.Errorf("install with an unknown flag: %v", err)
	}
}

func TestUninstall(t *testing.T) {
	t.Parallel()
	for _, purge := range []bool{false, true} {
		b := newBox(t).installed("v1")
		if err := b.uninstall(t.Context(), false, purge); err != nil {
			t.Fatal(err)
		}
		if calls := b.calls(); calls != "stop disable daemon-reload" {
			t.Errorf("systemctl %s", calls)
		}
		for path, want := range map[string]bool{b.file: false, b.program: false, "/data": !purge, "/data/reset": !purge} {
			if _, err := os.Stat(b.at(path)); (err == nil) != want {
				t.Errorf("purge %v, %s: %v", purge, path, err)
			}
		}
		if err := b.uninstall(t.Context(), false, purge); err == nil ||
			!strings.Contains(err.Error(), "run monopod install first") {
			t.Errorf("second uninstall: %v", err)
		}
	}
}

func TestUpgradeAndRollback(t *testing.T) {
	t.Parallel()
	b := newBox(t).installed("v1")
	if err := b.rollback(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no previous program") {
		t.Errorf("rollback before an upgrade: %v", err)
	}
	if err := b.upgrade(t.Context(), b.make("v2", "ok")); err != nil {
		t.Fatal(err)
	}
	pid := b.runs("v2")
	for _, want := range []string{"saved the snapshot snap-1", "upgrading from v1 to v2", "to go back: monopod rollback"} {
		if !strings.Contains(b.out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &b.out)
		}
	}
	if err := b.upgrade(t.Context(), b.make("v2", "ok")); err != nil || b.runs("v2") != pid {
		t.Errorf("second upgrade to v2: %v", err)
	}
	if err := b.rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.runs("v1")
	if err := b.rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.runs("v2")
	if err := b.upgrade(t.Context(), b.make("v3", "dies")); err == nil || !strings.Contains(err.Error(), "v2 runs again") {
		t.Errorf("upgrade to v3, which does not start: %v", err)
	}
	b.runs("v2")
	if err := b.rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.runs("v1")
	entries, err := os.ReadDir(filepath.Dir(b.previous()))
	if err != nil || len(entries) != 2 {
		t.Errorf("beside the program and the previous one: %v %v", entries, err)
	}
}

// For every failure of the new program, the previous one runs afterwards, and the error contains the reason.
func TestBadUpgrades(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct {
		want  string
		calls string // the systemctl commands
	}{
		"refuses": {"refuses the flags of the service", ""},
		"dies":    {"v2 does not work here, and v1 runs again: ", "restart restart"},
		"sick":    {"it is not ready. The check state failed: it is sick", "restart restart"},
		"flaky":   {"v1 runs again", "restart restart"},
		"changes": {"v1 runs again", "restart restart stop restart"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBox(t).installed("v1")
			if mode == "sick" { // upgrade waits for the whole timeout
				b.timeout = 8 * time.Second
			}
			err := b.upgrade(t.Context(), b.make("v2", mode))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			b.runs("v1")
			if calls := b.calls(); calls != c.calls {
				t.Errorf("systemctl %s, want %s\n%s", calls, c.calls, &b.out)
			}
			if _, err := os.Stat(b.previous()); err == nil {
				t.Error("the previous program still exists: rollback would return to the running version")
			}
			program, _ := os.ReadFile(b.at(b.program))
			if !bytes.Contains(program, []byte("FAKE_MONOPOD=v1")) {
				t.Errorf("the installed program is not v1: %s", program)
			}
		})
	}
}

func TestNoProgramToUpgradeTo(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	if err := b.upgrade(t.Context(), b.make("v2", "ok")); err == nil ||
		!strings.Contains(err.Error(), "run monopod install first") {
		t.Errorf("%v", err)
	}
	b.installed("v1")
	for what, file := range map[string]string{
		"cannot read the new program":               b.at("/none"),
		"is not a monopod program for this machine": b.write("text", "hello"),
	} {
		if err := b.upgrade(t.Context(), file); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", file, err)
		}
	}
	b.runs("v1")
}

// Monopod as a Debian package is apt's: another service beside it would hide the package's.
func TestDebianPackageIsInstalled(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.write("lib/systemd/system/monopod.service", "[Service]\n")
	for verb, err := range map[string]error{
		"install":   b.install(t.Context(), b.make("v1", "ok"), nil),
		"upgrade":   b.upgrade(t.Context(), b.make("v2", "ok")),
		"rollback":  b.rollback(t.Context()),
		"uninstall": b.uninstall(t.Context(), false, false),
	} {
		if err == nil || !strings.Contains(err.Error(), "apt") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if _, err := os.Stat(b.at(b.file)); err == nil || b.calls() != "" {
		t.Errorf("the unit was written, or systemctl called: %s", b.calls())
	}
}

// The service of OpenRC has the same command as the unit of systemd.
func TestOpenRC(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if _, err := detectService(root); err == nil || !strings.Contains(err.Error(), "neither systemd nor OpenRC") {
		t.Errorf("without a service manager: %v", err)
	}
	for _, dir := range []string{"sbin", "run/systemd"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "sbin/openrc-run"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := detectService(root)
	if err != nil || s.name != "OpenRC" {
		t.Fatalf("%s, %v", s.name, err)
	}
	want := []string{"/usr/bin/monopod", "serve", "--max-pods=5", "--data-dir=/d"}
	text := s.render(want)
	if got := s.parse(text); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("parsed %q from\n%s", got, text)
	}
	if out, err := exec.Command("sh", "-n", "-c", text).CombinedOutput(); err != nil {
		t.Errorf("the script is not valid: %v: %s", err, out)
	}
	if err := os.Mkdir(filepath.Join(root, "run/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	if s, err := detectService(root); err != nil || s.name != "systemd" {
		t.Errorf("with systemd and OpenRC: %s, %v", s.name, err)
	}
}

// docs/service.md shows the unit.
func TestUnitIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```ini\n(.*?)```").FindSubmatch(page)
	command := strings.Fields(after(string(block[1]), "ExecStart="))
	if got := systemd().render(command); got != string(block[1]) {
		t.Errorf("the documented unit is\n%s\nwant\n%s", block[1], got)
	}
	if n, err := strconv.Atoi(strings.TrimSuffix(after(unit, "TimeoutStopSec="), "s")); err != nil || n < 30 {
		t.Errorf("TimeoutStopSec is %d, want at least 30; error %v", n, err)
	}
}
