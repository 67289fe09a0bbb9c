package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/store"
	"monopod/store/storetest"
)

// smallDisk mounts a file system of size bytes, which needs root.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		t.Skipf("skipped: no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func remove(t *testing.T, s store.Store, name string) {
	t.Helper()
	if _, err := s.Update(t.Context(), key(name),
		func(store.Object) (store.Object, error) { return nil, nil }); err != nil {
		t.Errorf("remove %s: %v", name, err)
	}
}

// markDeleted is the first phase of a graceful deletion.
func markDeleted(cur store.Object) (store.Object, error) {
	next := cur.DeepCopyObject().(store.Object)
	next.SetDeletionTimestamp(new(metav1.Now()))
	return next, nil
}

// fill writes until the disk is full; it returns the number of objects.
func fill(t *testing.T, s store.Store) int {
	t.Helper()
	for n := range 100_000 {
		_, err := s.Update(t.Context(), key(fmt.Sprint("fill", n)), func(store.Object) (store.Object, error) {
			cm := object(fmt.Sprint("fill", n))
			cm.Data["v"] = strings.Repeat("x", 20_000)
			return cm, nil
		})
		if errors.Is(err, store.ErrNoSpace) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the disk never was full")
	return 0
}

// useUp fills the rest of the disk with a file, as another program might, and returns its path.
func useUp(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	return f.Name()
}

// On a full disk reads and deletions work, and other writes fail with a clear error. All work again when there is
// space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 8<<20)
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	n := fill(t, s)
	ballast := useUp(t, dir)
	if _, err := s.Get(t.Context(), key("fill0")); err != nil {
		t.Error(err)
	}
	if _, err := s.Update(t.Context(), key("fill1"), markDeleted); err != nil {
		t.Errorf("a graceful deletion: %v", err)
	}
	for i := range n / 2 {
		remove(t, s, fmt.Sprint("fill", i))
	}
	storetest.Put(t, s, key("in freed pages"), "1")
	if err := errors.Join(os.Remove(ballast),
		unix.Mount("", dir, "", unix.MS_REMOUNT, fmt.Sprint("size=", 16<<20))); err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, s, key("after"), "1")
	if size(t, filepath.Join(dir, "reserve")) == 0 {
		t.Error("the reserve file was not created again")
	}
	want := contents(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	check(t, path)
	s = open(t, path)
	defer s.Close()
	if !same(contents(t, s), want) {
		t.Error("the content differs after reopening")
	}
}

// A store on a full disk opens, and deletions work.
func TestFullDiskOpens(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 4<<20)
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	fill(t, s)
	want := contents(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	if !same(contents(t, s), want) {
		t.Error("a full disk changed the state")
	}
	useUp(t, dir)
	if _, err := s.Save(); err == nil || !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		t.Errorf("a snapshot on a full disk: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "snapshots", ".new*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	remove(t, s, "fill0")
}
