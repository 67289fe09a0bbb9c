package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/storetest"
)

// contents returns every durable object by name, as JSON.
func contents(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, resource := range []string{"configmaps", "nodes"} {
		entries, _, err := s.List(t.Context(), store.Selector{Resource: resource})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all[e.Key.Name] = string(e.JSON())
		}
	}
	return all
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// folder is a data folder, in memory, with a snapshot and a newer file.
type folder struct {
	files    fstest.MapFS
	saved    map[string]string // content of the snapshot
	previous map[string]string // before the last write
	last     map[string]string
	revision int64
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	for i := range 60 { // several leaves below a branch, one value of several pages
		storetest.Put(t, s, key(fmt.Sprint("a", i)), strings.Repeat("v", 300))
	}
	storetest.Put(t, s, key("long"), strings.Repeat("long", 5000))
	if _, err := s.Save(); err != nil {
		t.Fatal(err)
	}
	f := &folder{saved: contents(t, s)}
	storetest.Put(t, s, key("after"), "1")
	storetest.Put(t, s, store.Key{Resource: "leases", Namespace: "ns", Name: "volatile"}, "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	f.previous = contents(t, s)
	f.revision = storetest.Put(t, s, key("last"), "1").Rev
	f.last = contents(t, s)
	f.files = fstest.MapFS{}
	f.read(t, dir, "state.db")
	f.read(t, dir, "state.db-wal")
	snapshots, err := filepath.Glob(filepath.Join(dir, "snapshots", "*"))
	if err != nil || len(snapshots) != 2 {
		t.Fatal(snapshots, err)
	}
	for _, s := range snapshots {
		f.read(t, dir, "snapshots/"+filepath.Base(s))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *folder) read(t *testing.T, dir, name string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	f.files[name] = &fstest.MapFile{Data: data, Mode: 0o600}
}

// place writes the folder to disk, with another state file.
func (f *folder) place(t *testing.T, state []byte, snapshots bool) string {
	t.Helper()
	dir := t.TempDir()
	for name, file := range f.files {
		data := file.Data
		if name == "state.db" {
			data = state
		} else if !snapshots && name != "state.db-wal" {
			continue
		}
		to := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "state.db")
}

// opensWhole opens a damaged file that has snapshots. The result must be everything that was written, or all but
// the last write if a meta page is lost, or the snapshot with the damaged file set aside.
func (f *folder) opensWhole(t *testing.T, state []byte) {
	t.Helper()
	path := f.place(t, state, true)
	s, err := bolt.Open(path, storetest.Config())
	if err != nil {
		t.Errorf("not opened: %v", err)
		return
	}
	defer s.Close()
	got := contents(t, s)
	switch {
	case s.Report.Damage == nil:
		if !same(got, f.last) && !same(got, f.previous) {
			t.Errorf("opened with %d objects without detecting the damage", len(got))
		}
	case !same(got, f.saved):
		t.Errorf("the snapshot has %d objects, the restored file %d", len(f.saved), len(got))
	default:
		kept, err := os.ReadFile(s.Report.SetAside)
		if err != nil || !bytes.Equal(kept, state) {
			t.Errorf("the damaged file was not kept: %v", err)
		}
	}
	if next := storetest.Put(t, s, key("next"), "1"); next.Rev <= f.revision {
		t.Errorf("revision %d after %d", next.Rev, f.revision)
	}
}

// refuses opens a damaged file without snapshots: either its content is complete, or Open refuses it and leaves it
// unchanged.
func (f *folder) refuses(t *testing.T, state []byte) {
	t.Helper()
	path := f.place(t, state, false)
	s, err := bolt.Open(path, storetest.Config())
	if err == nil {
		defer s.Close()
		if got := contents(t, s); !same(got, f.last) && !same(got, f.previous) {
			t.Errorf("opened with %d objects without detecting the damage", len(got))
		}
		return
	}
	if !errors.Is(err, bolt.ErrDamaged) || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "good copy") {
		t.Errorf("refused with %q", err)
	}
	if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, state) {
		t.Errorf("the damaged file was changed: %v", err)
	}
}

func TestDamageIsRecoveredOrRejected(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	good := f.files["state.db"].Data
	cases := map[string][]byte{
		"whole": good, "empty": {}, "zeros": make([]byte, len(good)),
		"text": []byte(strings.Repeat("no database ", 1000)),
	}
	for _, name := range []string{"meta", "objects"} { // of the buckets
		renamed := bytes.ReplaceAll(good, []byte(name), []byte("x"+name[1:]))
		cases["renamed "+name] = renamed
	}
	for _, n := range []int{1, 16, 4095, 4096, 4097, 8191, 8192, 8193, 12288, 20000, len(good) / 2, len(good) - 4096} {
		cases[fmt.Sprint("cut off at ", n)] = good[:n]
	}
	for page := range len(good) / 4096 {
		for name, fill := range map[string]byte{"zeros": 0, "ones": 0xff} {
			data := bytes.Clone(good)
			copy(data[page*4096:], bytes.Repeat([]byte{fill}, 4096))
			cases[fmt.Sprint("page ", page, " of ", name)] = data
			torn := bytes.Clone(good)
			copy(torn[page*4096+512:], bytes.Repeat([]byte{fill}, 1024))
			cases[fmt.Sprint("page ", page, " torn with ", name)] = torn
		}
	}
	for i := range 40 {
		data := bytes.Clone(good)
		for range 1 + rand.IntN(40) {
			data[rand.IntN(len(data))] = byte(rand.Uint32())
		}
		cases[fmt.Sprint("random bytes ", i)] = data
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.opensWhole(t, data)
			f.refuses(t, data)
		})
	}
}

// Every flipped bit of a page in use is detected.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	good := f.files["state.db"].Data
	noticed := 0
	for at := 0; at < len(good); at += 1 + rand.IntN(1000) {
		data := bytes.Clone(good)
		data[at] ^= 1 << rand.IntN(8)
		path := f.place(t, data, false)
		s, err := bolt.Open(path, storetest.Config())
		if err != nil {
			noticed++
			continue
		}
		if got := contents(t, s); !same(got, f.last) && (at >= 2*4096 || !same(got, f.previous)) {
			t.Errorf("a flipped bit in byte %d was not detected", at)
		}
		if err := errors.Join(s.Close(), os.RemoveAll(filepath.Dir(path))); err != nil {
			t.Error(err)
		}
	}
	if noticed == 0 {
		t.Error("no flipped bit was detected")
	}
}

// A disk may lose the write of a page and return its old content.
func TestLostPage(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	path := f.place(t, f.files["state.db"].Data, false)
	s := open(t, path)
	var before []byte
	for i := range 30 {
		storetest.Put(t, s, key(fmt.Sprint("a", i)), "changed")
		if i == 10 {
			before = read(t, path)
		}
	}
	want := contents(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after, noticed := read(t, path), 0
	for page := 2; page < len(before)/4096; page++ {
		old := before[page*4096 : page*4096+4096]
		if bytes.Equal(old, after[page*4096:page*4096+4096]) {
			continue
		}
		data := bytes.Clone(after)
		copy(data[page*4096:], old)
		lost := f.place(t, data, false)
		s, err := bolt.Open(lost, storetest.Config())
		if err != nil {
			noticed++
			continue
		}
		if !same(contents(t, s), want) {
			t.Errorf("the old content of page %d was not detected", page)
		}
		s.Close()
	}
	if noticed == 0 {
		t.Error("no lost page was detected")
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestMissingFileComesFromASnapshot(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	path := f.place(t, nil, true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	defer s.Close()
	if !same(contents(t, s), f.saved) || !errors.Is(s.Report.Damage, bolt.ErrDamaged) || s.Report.SetAside != "" {
		t.Errorf("got %+v", s.Report)
	}
}

// The store recovers from further damage by the snapshot that the recovery before created.
func TestRevisionsGrowOverManyRecoveries(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	path, last := f.place(t, make([]byte, 8192), true), f.revision
	for range 3 {
		s := open(t, path)
		if s.Report.Damage == nil || !same(contents(t, s), f.saved) {
			t.Fatalf("not recovered: %+v", s.Report)
		}
		next := storetest.Put(t, s, key("lost again"), "x")
		if next.Rev <= last {
			t.Fatalf("revision %d after %d", next.Rev, last)
		}
		last = next.Rev
		if err := errors.Join(s.Close(), os.WriteFile(path, make([]byte, 5000), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedSnapshotIsSkipped(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	path := f.place(t, f.files["state.db"].Data, true)
	s := open(t, path)
	newer, err := s.Save()
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(filepath.Dir(path), "snapshots", newer.Name)
	data := read(t, bad)
	data[len(data)-2000] ^= 1
	if err := errors.Join(os.WriteFile(bad, data, 0o600), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	if !same(contents(t, s), f.saved) || s.Report.Restored.Name == newer.Name {
		t.Errorf("got %+v", s.Report)
	}
	if next := storetest.Put(t, s, key("next"), "1"); next.Rev <= newer.Revision {
		t.Errorf("revision %d after %d", next.Rev, newer.Revision)
	}
}

func TestLockNamesItsHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	defer s.Close()
	_, err := bolt.Open(path, storetest.Config())
	if !errors.Is(err, bolt.ErrLocked) {
		t.Fatalf("got %v", err)
	}
	if want := fmt.Sprintf("pid %d: ", os.Getpid()); !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not name %q", err, want)
	}
}
