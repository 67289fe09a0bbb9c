// Package etcdtest runs real etcd servers for tests.
package etcdtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"monopod/testdata/harness"
)

// Names of etcd's sockets, which etcd parses as host and port.
const (
	socket     = "etcd:1"
	peerSocket = "peer:1"
)

// Start runs an etcd for the test and returns its URL. It skips the test if etcd is not installed.
func Start(t testing.TB) string {
	t.Helper()
	url, _ := StartIn(t, Dir(t))
	return url
}

// StartIn is like Start, in a folder from Dir; stop stops etcd before the end of the test.
func StartIn(t testing.TB, dir string, args ...string) (url string, stop func()) {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("skipped: etcd is not installed: apt-get install etcd-server")
	}
	url, stop, err := Run(t.Context(), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url, stop
}

// Dir returns a folder for the test with a short path, because paths of sockets have at most 107 bytes.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Run runs an etcd below dir until stop is called, and returns its URL, which names a Unix socket. It uses the data of
// an earlier etcd in dir. args are additional arguments of etcd.
func Run(ctx context.Context, dir string, args ...string) (url string, stop func(), err error) {
	for _, left := range []string{socket, peerSocket} {
		if err := os.RemoveAll(filepath.Join(dir, left)); err != nil {
			return "", nil, err
		}
	}
	var log bytes.Buffer
	cmd := exec.Command("etcd", append([]string{"--data-dir", filepath.Join(dir, "etcd"),
		"--log-level", "warn", "--logger", "zap", "--heartbeat-interval", "10", "--election-timeout", "100",
		"--listen-client-urls", "unix://" + socket, "--advertise-client-urls", "unix://" + socket,
		"--listen-peer-urls", "unix://" + peerSocket, "--initial-advertise-peer-urls", "http://" + peerSocket,
		"--initial-cluster", "default=http://" + peerSocket}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &log, &log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url = "unix://" + filepath.Join(dir, socket)
	if err := answers(ctx, url); err != nil {
		stop()
		return "", nil, fmt.Errorf("etcd does not answer: %w\n%s", err, &log)
	}
	return url, stop, nil
}

// Client returns a client for the etcd at url until the test ends.
func Client(t testing.TB, url string) *clientv3.Client {
	t.Helper()
	c, err := connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Put writes a raw value.
func Put(t testing.TB, url, key, value string) {
	t.Helper()
	if _, err := Client(t, url).Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func connect(url string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
}

// answers waits until etcd answers. Each attempt uses a new connection, because a failed one reconnects only after a
// second.
func answers(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Bound)
	defer cancel()
	for within := time.Second; ; within = min(2*within, 8*time.Second) { // a stalled attempt must not take all the time
		err := ask(ctx, url, within)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond) // another process, in real time
	}
}

func ask(ctx context.Context, url string, within time.Duration) error {
	if _, err := os.Stat(strings.TrimPrefix(url, "unix://")); err != nil {
		return err
	}
	client, err := connect(url)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err = client.Get(ctx, "/")
	return err
}
