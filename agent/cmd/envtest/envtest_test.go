package envtest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestInvoked(t *testing.T) {
	t.Parallel()
	for argv0, want := range map[string]bool{"/assets/kube-apiserver": true, "etcd": true, "bin/kubectl": true,
		"monopod": false, "/etcd/monopod": false, "": false} {
		if got := Invoked(argv0); got != want {
			t.Errorf("%q: %t", argv0, got)
		}
	}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"apiserver.crt", "apiserver.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	always := []string{"--runtime=none", "--controllers=", "--node-name=envtest", "--snapshot-interval=0"}
	for name, c := range map[string]struct {
		args, flags, ignored []string
		problem              string
	}{
		"nothing": {flags: []string{"--listen=0.0.0.0:6443"}},
		"envtest": {
			args: []string{
				"--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1", "--cert-dir=" + dir,
				"--client-ca-file=/ca.crt",
				"--disable-admission-plugins=ServiceAccount", "--etcd-servers=http://127.0.0.1:1", "--secure-port=2",
				"--service-account-issuer=https://127.0.0.1:2/",
				"--service-account-key-file=/sa.crt", "--service-account-signing-key-file=/sa.key",
				"--service-cluster-ip-range=10.0.0.0/24",
			},
			flags: []string{
				"--client-ca-file=/ca.crt", "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24",
				"--listen=127.0.0.1:2",
				"--tls-cert-file=" + dir + "/apiserver.crt", "--tls-private-key-file=" + dir + "/apiserver.key",
			},
		},
		"a named certificate": {
			args:  []string{"--cert-dir", dir, "--tls-cert-file", "/a", "--tls-private-key-file", "/b", "--bind-address", "::1"},
			flags: []string{"--listen=[::1]:6443", "--tls-cert-file=/a", "--tls-private-key-file=/b"},
		},
		"a folder without a certificate": {args: []string{"--cert-dir=/nowhere"}, flags: []string{"--listen=0.0.0.0:6443"}},
		"flags without effect": {
			args:    []string{"--feature-gates=A=true", "", "--v", "4", "--enable-aggregator-routing"},
			flags:   []string{"--listen=0.0.0.0:6443"},
			ignored: []string{"feature-gates", "enable-aggregator-routing"},
		},
		"no flag": {args: []string{"serve"}, problem: `unexpected argument "serve"`},
	} {
		got, err := translate(c.args)
		if c.problem != "" {
			if err == nil || err.Error() != c.problem {
				t.Errorf("%s: error %v, want %s", name, err, c.problem)
			}
			continue
		}
		if want := slices.Concat(always, c.flags); err != nil || !slices.Equal(got.flags, want) ||
			!slices.Equal(got.ignored, c.ignored) {
			t.Errorf("%s: %q, ignored %q, %v, want %q, %q", name, got.flags, got.ignored, err, want, c.ignored)
		}
	}
}

// TestAPIServersStateEnds checks that the state folder exists only while the server runs.
func TestAPIServersStateEnds(t *testing.T) {
	t.Parallel()
	certs := filepath.Join(t.TempDir(), strings.Repeat("d", maxFolder)) // too long for the path of a socket in it
	short, err := os.MkdirTemp("", "et")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	for _, at := range []string{certs, short} {
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		var state string
		failed := errors.New("failed")
		err := runAPIServer(t.Context(), []string{"--cert-dir=" + at}, func(_ context.Context, flags []string) error {
			state = strings.TrimPrefix(flags[len(flags)-1], "--data-dir=")
			if _, err := os.Stat(state); err != nil {
				t.Error(err)
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("%s: got %v, want the error of serve", at, err)
		}
		if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s remains: %v", state, err)
		}
		if in := strings.HasPrefix(state, at); in != (at == short) {
			t.Errorf("with --cert-dir=%s, the state is in %s", at, state)
		}
	}
}

func TestEtcdAnswersItsHealthCheck(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runEtcd(ctx, []string{"--data-dir=/x", "--listen-client-urls=http://" + at}) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for path, want := range map[string]string{"/health": `{"health":"true","reason":""}`,
		"/v3/kv/range": "this etcd only answers /health: kube-apiserver of monopod keeps the state itself\n"} {
		var resp *http.Response
		for resp == nil {
			if resp, err = client.Get("http://" + at + path); err != nil && len(ended) > 0 {
				t.Fatal(<-ended)
			}
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != want || (resp.StatusCode == http.StatusOK) != (path == "/health") {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, url := range []string{"https://127.0.0.1:1", "127.0.0.1:1", "http://"} {
		if err := runEtcd(t.Context(), []string{"--listen-client-urls=" + url}); err == nil ||
			!strings.Contains(err.Error(), "is not an http:// URL with a host") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Each asset starts the program with its own name as argv[0], and the scripts print the text of --help themselves.
func TestAssets(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir, program := filepath.Join(top, "a b'c"), filepath.Join(top, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"${0##*/} $# $2\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"/old", program} {
		if err := createPrograms(dir, to); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range programs() {
		out, err := exec.Command(filepath.Join(dir, name), "serve", "an argument").CombinedOutput()
		if want := name + " 2 an argument\n"; err != nil || string(out) != want ||
			!Invoked(filepath.Join(dir, linksDir, name)) {
			t.Errorf("%s: %q, %v, want %q", name, out, err, want)
		}
	}
	for _, name := range []string{apiServer, etcd} {
		if out, err := exec.Command(filepath.Join(dir, name), "--help").CombinedOutput(); err != nil ||
			string(out) != help(name) {
			t.Errorf("%s --help: %q, %v", name, out, err)
		}
	}
	path := filepath.Join(dir, "etcd")
	for _, real := range []string{"", "real", "#!/bin/sh\nreal\n"} {
		if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte(real), 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := createPrograms(dir, program); err == nil ||
			!strings.Contains(err.Error(), path+" exists and was not written by this command") {
			t.Errorf("createPrograms replaced an existing file with the content %q, error %v", real, err)
		}
	}
}
