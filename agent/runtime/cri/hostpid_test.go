package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
)

// While containers may see all processes of the machine, no sandbox is created without runc's filter; before they may,
// every program has its own.
func TestHostPIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hostPIDs{}
		lists := [][]string{{"old"}, {}, {"half"}}
		undress := func() bool {
			t.Helper()
			if err := h.list(func() ([]string, error) { ids := lists[0]; lists = lists[1:]; return ids, nil }); err != nil {
				t.Error(err)
			}
			return h.undress()
		}
		failed := errors.New("no answer")
		if err := h.list(func() ([]string, error) { return []string{"wrong"}, failed }); !errors.Is(err, failed) {
			t.Errorf("list: %v", err)
		}
		if undress() {
			t.Error("beside the sandbox of an earlier process")
		}
		h.removed("old")
		first, second := undress(), undress()
		if !first || !second {
			t.Error("without such a sandbox")
		}
		given, cancel := context.WithCancel(t.Context())
		entered := make(chan error, 2)
		go func() { entered <- h.enter(given) }()
		go func() { entered <- h.enter(t.Context()) }()
		synctest.Wait()
		if undress() {
			t.Error("beside one that is being created")
		}
		h.dressed()
		synctest.Wait()
		select {
		case err := <-entered:
			t.Errorf("a container may see a program without a filter: %v", err)
		default:
		}
		cancel()
		if err := <-entered; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		h.dressed()
		if err := <-entered; err != nil {
			t.Error(err)
		}
		h.entered("new")
		if undress() {
			t.Error("beside one that was created")
		}
		h.removed("new")
		if len(lists) != 2 || h.enter(t.Context()) != nil {
			t.Errorf("%d lists are left", len(lists))
		}
		h.entered("")
		if h.undress() {
			t.Error("beside one that may exist, but is not listed")
		}
		if !undress() || len(lists) != 1 {
			t.Error("the failed one does not exist")
		}
	})
}

// The program of a sandbox has a filter when it sleeps.
func TestAwaitPause(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	start := func(name string) (pid int, end func()) {
		link := filepath.Join(dir, name)
		if err := os.Symlink(sleep, link); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(link, "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		t.Cleanup(end)
		return cmd.Process.Pid, end
	}
	bundle := filepath.Join(dir, "io.containerd.runtime.v2.task", Namespace, "id")
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &Runtime{config: Config{StateDir: dir}}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.awaitPause(cancelled, "id"); err != nil {
		t.Errorf("without a process: %v", err)
	}
	runs := func(pid int) {
		if err := os.WriteFile(filepath.Join(bundle, "init.pid"), fmt.Append(nil, pid), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other, end := start("runc")
	runs(other)
	if err := r.awaitPause(cancelled, "id"); !errors.Is(err, context.Canceled) {
		t.Errorf("another program: %v", err)
	}
	end()
	if err := r.awaitPause(cancelled, "id"); err != nil {
		t.Errorf("a program that has ended: %v", err)
	}
	pause, _ := start("pause")
	runs(pause)
	if err := r.awaitPause(t.Context(), "id"); err != nil {
		t.Errorf("our program: %v", err)
	}
}
