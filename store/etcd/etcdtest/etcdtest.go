// Package etcdtest runs real etcds for tests.
package etcdtest

import (
	"bytes"
	"context"
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

// Start runs an etcd of its own for the test and returns its URL, the path of a
// Unix socket. Without the program the test is left out.
func Start(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("left out: etcd is not installed: apt-get install etcd-server")
	}
	dir, err := os.MkdirTemp("", "etcd") // short: socket paths have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var log bytes.Buffer
	cmd := exec.Command(program, "--data-dir", filepath.Join(dir, "data"), "--log-level", "warn",
		"--listen-client-urls", "unix://"+socket, "--advertise-client-urls", "unix://"+socket,
		"--listen-peer-urls", "unix://peer:1", "--initial-advertise-peer-urls", "http://peer:1",
		"--initial-cluster", "default=http://peer:1", "--logger", "zap")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url := "unix://" + filepath.Join(dir, socket)
	if err := answers(t.Context(), Client(t, url)); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("etcd does not answer: %v\n%s", err, &log)
	}
	return url
}

// Client speaks to the etcd at url until the test ends.
func Client(t testing.TB, url string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
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

// answers waits until etcd does.
func answers(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, time.Second)
		_, err := client.Get(attempt, "/")
		done()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond) // another process, in real time
	}
}
