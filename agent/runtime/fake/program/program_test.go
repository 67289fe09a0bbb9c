package program

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started is a running program with its output and its exit code.
type started struct {
	stdout, stderr bytes.Buffer
	signals        chan os.Signal
	code           chan int
}

func start(ctx context.Context, system System, stdin io.Reader, args ...string) *started {
	s := &started{signals: make(chan os.Signal, 1), code: make(chan int, 1)}
	p := Process{
		Args: args, Env: []string{"A=1", "POD_NAME=web-1", "PORT=0", "B=two"}, Hostname: "box", Stdin: stdin,
		Stdout: &s.stdout, Stderr: &s.stderr, Signals: s.signals, Clock: clock.RealClock{}, System: system,
	}
	go func() { s.code <- Run(ctx, p) }()
	return s
}

func TestCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "greeting")
	if err := os.WriteFile(file, []byte("moin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name           string
		args           []string
		stdin          string
		code           int
		stdout, stderr string
	}{
		{"echo", []string{"/web", "echo", "a", "b"}, "", 0, "a b\n", ""},
		{"stderr", []string{"/web", "stderr", "oh", "no"}, "", 0, "", "oh no\n"},
		{"exit", []string{"/web", "exit", "7"}, "", 7, "", ""},
		{"exit code out of range", []string{"/web", "exit", "256"}, "", 2, "",
			"web: strconv.ParseUint: parsing \"256\": value out of range\n"},
		{"env", []string{"/web", "env"}, "", 0, "A=1\nPOD_NAME=web-1\nPORT=0\nB=two\n", ""},
		{"cat", []string{"/web", "cat", file}, "", 0, "moin\n", ""},
		{"cat stdin", []string{"/web", "cat"}, "from afar", 0, "from afar", ""},
		{"cat nothing", []string{"/web", "cat", dir + "/nothing"}, "", 1, "", "web: open " + dir +
			"/nothing: no such file or directory\n"},
		{"ls", []string{"/web", "ls", dir}, "", 0, "greeting\n", ""},
		{"stat", []string{"/web", "stat", file}, "", 0, fmt.Sprintf("%s -rw------- %d %d\n", file, os.Getuid(), os.Getgid()),
			""},
		{"stat nothing", []string{"/web", "stat", dir + "/nothing"}, "", 1, "", "web: stat " + dir +
			"/nothing: no such file or directory\n"},
		{"by its own name", []string{"/bin/echo", "-n", "x"}, "", 0, "-n x\n", ""},
		{"unknown command", []string{"/web", "dance"}, "", 2, "", "web: no such command: dance\n"},
		{"unknown flag", []string{"/web", "-x"}, "", 2, "", "web: flag provided but not defined: -x\n"},
		{"too few arguments", []string{"/web", "tick", "3"}, "", 2, "", "web: wrong number of arguments: 1\n"},
		{"do then", []string{"/web", "do", "cat", file, "then", "exit", "3", "then", "echo", "never"}, "", 3,
			"moin\n", ""},
		{"not, failure", []string{"/web", "not", "exit", "3"}, "", 0, "", ""},
		{"not, success", []string{"/web", "not", "cat", file}, "", 1, "moin\n", ""},
		{"await", []string{"/web", "await", file, "moin"}, "", 0, "", ""},
		{"then nothing", []string{"/web", "do", "then"}, "", 2, "", "web: no command\n"},
		{"negative sleep", []string{"/web", "sleep", "-3s"}, "", 2, "", "web: negative duration -3s\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := start(t.Context(), Host{}, strings.NewReader(tc.stdin), tc.args...)
			if code := <-s.code; code != tc.code {
				t.Errorf("code %d, want %d", code, tc.code)
			}
			if s.stdout.String() != tc.stdout || s.stderr.String() != tc.stderr {
				t.Errorf("printed %q and %q, want %q and %q", &s.stdout, &s.stderr, tc.stdout, tc.stderr)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "message")
	if code := <-start(t.Context(), Host{}, nil, "/web", "write", file, "all", "well").code; code != 0 {
		t.Fatalf("code %d", code)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "all well\n" {
		t.Errorf("wrote %q, %v", data, err)
	}
}

func TestFill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if code := <-start(t.Context(), Host{}, nil, "/web", "fill", dir, "2").code; code != 0 {
		t.Fatalf("code %d", code)
	}
	for _, name := range []string{"0", "1"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() != 1<<20 {
			t.Errorf("%v, %v", info, err)
		}
	}
	for _, args := range [][]string{{"/web", "fill", dir, "-1"}, {"/web", "fill", dir + "/none", "1"}} {
		if code := <-start(t.Context(), Host{}, nil, args...).code; code == 0 {
			t.Errorf("%q succeeded", args)
		}
	}
}

// TestWaiting runs commands that wait. If there is a signal, it is sent after a second.
func TestWaiting(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args   string
		signal syscall.Signal // 0: none
		kill   time.Duration  // when the context ends; 0: never
		code   int
		takes  time.Duration
		stdout string
	}{
		{"/web sleep 2", 0, 0, 0, 2 * time.Second, ""},
		{"sleep 2.5s exit 4", 0, 0, 4, 2500 * time.Millisecond, ""},
		{"/web tick 3 2s", 0, 0, 0, 4 * time.Second, "tick 1\ntick 2\ntick 3\n"},
		{"/web sleep 60", syscall.SIGTERM, 0, 0, time.Second, "received SIGTERM\nstopped\n"},
		{"/web sleep 60", syscall.SIGINT, 0, 0, time.Second, "received SIGINT\nstopped\n"},
		{"/web -stop-after 3s sleep 60", syscall.SIGTERM, 0, 0, 4 * time.Second,
			"received SIGTERM\nstopping takes 3s\nstopped\n"},
		{"/web -stop-after 3s sleep 60", syscall.SIGTERM, 2 * time.Second, Killed, 2 * time.Second,
			"received SIGTERM\nstopping takes 3s\n"},
		{"/web -ignore-term sleep 60", syscall.SIGTERM, 11 * time.Second, Killed, 11 * time.Second, "received SIGTERM\n"},
		{"/web -ignore-term sleep 5", syscall.SIGTERM, 0, 0, 5 * time.Second, "received SIGTERM\n"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				s := start(ctx, Host{}, nil, strings.Fields(tc.args)...)
				if tc.signal != 0 {
					time.AfterFunc(time.Second, func() { s.signals <- tc.signal })
				}
				if tc.kill != 0 {
					time.AfterFunc(tc.kill, cancel)
				}
				if code := <-s.code; code != tc.code {
					t.Errorf("code %d, want %d", code, tc.code)
				}
				if took := time.Since(began); took != tc.takes {
					t.Errorf("took %v, want %v", took, tc.takes)
				}
				if s.stdout.String() != tc.stdout {
					t.Errorf("printed %q, want %q", &s.stdout, tc.stdout)
				}
			})
		})
	}
}

// onListen is a Host that reports the address of the listener.
type onListen struct {
	Host
	address chan string
}

func (o onListen) Listen(network, address string) (net.Listener, error) {
	listener, err := net.Listen(network, "127.0.0.1"+address)
	if err == nil {
		o.address <- listener.Addr().String()
	}
	return listener, err
}

func TestServe(t *testing.T) {
	t.Parallel()
	system := onListen{address: make(chan string, 1)}
	server := start(t.Context(), system, nil, "/web")
	url := "http://" + <-system.address + "/hello"

	client := start(t.Context(), Host{}, nil, "/web", "get", url)
	if code := <-client.code; code != 0 {
		t.Fatalf("get: code %d, %s", code, &client.stderr)
	}
	if page := client.stdout.String(); !strings.HasPrefix(page, "Hello from web-1!\n") ||
		!strings.Contains(page, "/hello") {
		t.Errorf("the page is %q", page)
	}
	server.signals <- syscall.SIGTERM
	if code := <-server.code; code != 0 {
		t.Errorf("serve: code %d", code)
	}
	log := server.stdout.String()
	for _, line := range []string{"web-1 listens on 127.0.0.1:", "GET /hello from 127.0.0.1:",
		"received SIGTERM\nstopped\n"} {
		if !strings.Contains(log, line) {
			t.Errorf("the log lacks %q:\n%s", line, log)
		}
	}
}

func TestServeCannotListen(t *testing.T) {
	t.Parallel()
	s := start(t.Context(), Host{}, nil, "/web", "-listen", "127.0.0.1:x")
	if code := <-s.code; code != 1 || s.stderr.Len() == 0 {
		t.Errorf("code %d, stderr %q", code, &s.stderr)
	}
}

func TestCrashAfter(t *testing.T) {
	t.Parallel()
	s := start(t.Context(), Host{}, nil, "/web", "-listen", "127.0.0.1:0", "crash-after", "10ms", "9")
	if code := <-s.code; code != 9 {
		t.Errorf("code %d, want 9", code)
	}
}

// silent is a Host whose connections are never accepted.
type silent struct{ Host }

func (silent) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// The command get fails after its timeout if the connection is not accepted.
func TestGetTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		client := start(t.Context(), silent{}, nil, "/web", "do", "not", "get", "http://10.0.0.1/", "3s", "then", "echo",
			"shut")
		if code := <-client.code; code != 0 || client.stdout.String() != "shut\n" || time.Since(began) != 3*time.Second {
			t.Errorf("code %d after %s: %s%s", code, time.Since(began), &client.stdout, &client.stderr)
		}
	})
}
