// Package etcdtest runs real etcds for tests.
package etcdtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// socket is what etcd calls its socket: it takes the name for host and port.
const socket = "etcd:1"

// Start runs an etcd of its own for the test and returns its URL. Without the
// program the test is left out.
func Start(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("left out: etcd is not installed: apt-get install etcd-server")
	}
	dir, err := os.MkdirTemp("", "etcd") // short: socket paths have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	url, stop, err := Run(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return url
}

// Run runs an etcd below dir until stop is called, and returns its URL, which
// names a Unix socket.
func Run(ctx context.Context, dir string) (url string, stop func(), err error) {
	var log bytes.Buffer
	cmd := exec.Command("etcd", "--data-dir", filepath.Join(dir, "etcd"), "--log-level", "warn", "--logger", "zap",
		"--listen-client-urls", "unix://"+socket, "--advertise-client-urls", "unix://"+socket,
		"--listen-peer-urls", "unix://peer:1", "--initial-advertise-peer-urls", "http://peer:1",
		"--initial-cluster", "default=http://peer:1")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &log, &log
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	url = "unix://" + filepath.Join(dir, socket)
	if err := answers(ctx, url); err != nil {
		stop()
		return "", nil, fmt.Errorf("etcd does not answer: %w\n%s", err, &log)
	}
	return url, stop, nil
}

// Client speaks to the etcd at url until the test ends.
func Client(t testing.TB, url string) *clientv3.Client {
	t.Helper()
	c, err := connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Put writes a value as it is.
func Put(t testing.TB, url, key, value string) {
	t.Helper()
	if _, err := Client(t, url).Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func connect(url string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
}

// answers waits until etcd does.
func answers(ctx context.Context, url string) error {
	client, err := connect(url)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, time.Second)
		_, err = client.Get(attempt, "/")
		done()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond) // another process, in real time
	}
}
