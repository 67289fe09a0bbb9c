package state_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"monopod/store"
	"monopod/store/state"
	"monopod/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watching returns a log for whose messages a test can wait.
func watching() (*zap.Logger, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	return zap.New(core), logs
}

func key(name string) store.Key {
	return store.Key{Resource: "configmaps", Namespace: "ns", Name: name}
}

func said(logs *observer.ObservedLogs, message string) int {
	n := 0
	for _, e := range logs.All() {
		if strings.Contains(e.Message, message) {
			n++
		}
	}
	return n
}

// The server restores a state file that is removed while it runs at once, with a log message. Without the folder, the
// check fails until the folder exists again.
func TestStateIsGuarded(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log, logs := watching()
	s, err := state.Open(t.Context(), state.Place{DataDir: dir, SnapshotInterval: time.Hour},
		state.Config{Config: storetest.Config(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done, messages := make(chan error), make(chan string, 10)
	go func() { done <- s.Run(ctx, func(message string) { messages <- message }) }()
	storetest.Put(t, s, key("a"), "1")
	if err := os.Remove(filepath.Join(dir, "state.db")); err != nil {
		t.Fatal(err)
	}
	for said(logs, "rewritten from memory") == 0 {
		time.Sleep(time.Millisecond) // the kernel reports it
	}
	if got := <-messages; !strings.Contains(got, "nothing is missing") {
		t.Errorf("got %q", got)
	}
	if err := s.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.Rename(dir, dir+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := s.Healthy(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if err := os.Rename(dir+".moved", dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	if err := errors.Join(<-done, s.Close()); err != nil {
		t.Error(err)
	}
}

// The server reports a start without the previous state in its log and to the node.
func TestMissingStateIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, want := range []string{"", "", "it was created empty"} {
		if i == 2 { // the reserve file for a full disk remains
			if err := os.Remove(filepath.Join(dir, "state.db")); err != nil {
				t.Fatal(err)
			}
		}
		s, err := state.Open(t.Context(), state.Place{DataDir: dir}, state.Config{Config: storetest.Config()})
		if err != nil {
			t.Fatal(err)
		}
		log, logs := watching()
		if got := s.Tell(log); !strings.Contains(got, want) || (got == "") != (want == "") ||
			said(logs, "starting with an empty state") != min(len(want), 1) {
			t.Errorf("start %d: %q, %v", i, got, logs.All())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
