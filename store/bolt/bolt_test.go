package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashFile); path != "" {
		fmt.Fprintln(os.Stderr, crashChild(path, os.Stdout))
		os.Exit(1)
	}
	if mount := os.Getenv(fuseMount); mount != "" {
		if err := fuseChild(mount, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, path string) *bolt.DB {
	t.Helper()
	s, err := bolt.Open(path, storetest.Config())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBolt(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		path := filepath.Join(t.TempDir(), "state.db")
		t.Cleanup(func() { check(t, path) })
		return open(t, path)
	})
}

// check runs bbolt's own consistency check.
func check(t *testing.T, path string) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: false})
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error {
		var all []error
		for err := range tx.Check() {
			all = append(all, err)
		}
		return errors.Join(all...)
	}); err != nil {
		t.Errorf("the file is not consistent: %v", err)
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	kept := store.Key{Resource: "configmaps", Namespace: "ns", Name: "kept"}
	removed := store.Key{Resource: "configmaps", Namespace: "ns", Name: "removed"}
	volatile := store.Key{Resource: "leases", Namespace: "ns", Name: "volatile"}
	storetest.Put(t, s, kept, "old")
	want := storetest.Put(t, s, kept, "new")
	storetest.Put(t, s, removed, "x")
	if _, err := s.Update(t.Context(), removed, func(store.Object) (store.Object, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	last := storetest.Put(t, s, volatile, "x")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, path)
	defer s.Close()
	got, err := s.Get(t.Context(), kept)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.JSON()) != string(want.JSON()) || got.Rev != want.Rev ||
		got.Object.(*corev1.ConfigMap).Data["v"] != "new" {
		t.Errorf("after reopening: %s, want %s", got.JSON(), want.JSON())
	}
	if _, err := s.Get(t.Context(), removed); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("%v exists after reopening: %v", removed, err)
	}
	if got, err := s.Get(t.Context(), volatile); err != nil || got.Rev != last.Rev {
		t.Errorf("a clean stop did not save %v: %v, %v", volatile, got, err)
	}
	if s.Revision() != last.Rev {
		t.Errorf("revision %d after a clean stop at %d", s.Revision(), last.Rev)
	}
}

// A crash loses volatile writes but never their revisions: a file copied while
// the store is open is what a crash leaves behind.
func TestRevisionAfterCrash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	defer s.Close()
	storetest.Put(t, s, store.Key{Resource: "configmaps", Namespace: "ns", Name: "a"}, "1")
	last := storetest.Put(t, s, store.Key{Resource: "leases", Namespace: "ns", Name: "b"}, "1")
	again := open(t, crashed(t, path))
	defer again.Close()
	if again.Revision() < last.Rev {
		t.Errorf("revision %d after a crash at %d", again.Revision(), last.Rev)
	}
	if _, err := again.Get(t.Context(), last.Key); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a volatile object survived a crash: %v", err)
	}
}

// crashed returns a copy of the file and its log, as a crash leaves them behind.
func crashed(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "state.db")
	for _, of := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + of)
		if of != "" && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(to+of, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func TestLockedFileIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	defer s.Close()
	if _, err := bolt.Open(path, storetest.Config()); !errors.Is(err, bolt.ErrLocked) {
		t.Errorf("got %v", err)
	}
}

// A process that uses the file excludes others, whatever the file contains.
func TestHold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	if _, err := bolt.Lock(path); !errors.Is(err, bolt.ErrLocked) {
		t.Errorf("locked an open file: %v", err)
	}
	if err := errors.Join(s.Close(), os.WriteFile(path, []byte("damaged"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		held, err := bolt.Lock(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bolt.Open(path, storetest.Config()); !errors.Is(err, bolt.ErrLocked) {
			t.Errorf("opened a file that is locked: %v", err)
		}
		if err := errors.Join(held.Close(), os.RemoveAll(path)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForeignFileIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.Open(path, storetest.Config()); err == nil {
		t.Error("opened a file that is not a database")
	}
}
