package bolt_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/storetest"
)

// formatOf reads the format of a file that no process has open.
func formatOf(t *testing.T, path string) (format uint64) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error {
		format = binary.BigEndian.Uint64(tx.Bucket([]byte("meta")).Get([]byte("format")))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return format
}

// A version without the log cannot open a file with a log. After a clean stop, and in a snapshot, the file is complete
// without a log, in the format of that version.
func TestOlderVersions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	if f := formatOf(t, crashed(t, path)); f != 3 {
		t.Errorf("format %d before the first write", f)
	}
	for i := range 3 {
		storetest.Put(t, s, key(fmt.Sprint("a", i)), "1")
		if f := formatOf(t, crashed(t, path)); f != 5 {
			t.Errorf("format %d with a log", f)
		}
		made, err := s.Save()
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []string{crashed(t, path), filepath.Join(filepath.Dir(path), "snapshots", made.Name)} {
			if f := formatOf(t, of); f != 3 {
				t.Errorf("%s has format %d", of, f)
			}
		}
	}
	storetest.Put(t, s, key("last"), "1")
	want := contents(t, s)
	if err := errors.Join(s.Close(), os.Remove(path+"-wal")); err != nil {
		t.Fatal(err)
	}
	if f := formatOf(t, path); f != 3 {
		t.Errorf("format %d after a clean stop", f)
	}
	s = open(t, path)
	defer s.Close()
	if got := contents(t, s); !same(got, want) || s.Report.Damage != nil {
		t.Errorf("%d objects without the log, want %d: %+v", len(got), len(want), s.Report)
	}
}

// If the disk loses the newest meta page, no write is lost: the log contains the writes of the last transaction, too.
func TestLostMetaPage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := bolt.At(path, bolt.Config{Config: storetest.Config(), LogBytes: 16 * 4096}).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 40 { // eight frames a checkpoint
		storetest.Put(t, s, key(fmt.Sprint("a", i%25)), fmt.Sprint(i))
		needsNoMeta(t, path, s)
	}
}

// needsNoMeta checks that the open file loses no write if either of its meta pages is lost.
func needsNoMeta(t *testing.T, path string, s *bolt.DB) {
	t.Helper()
	want := contents(t, s)
	for meta := range int64(2) {
		copied := crashed(t, path)
		if err := zero(copied, meta); err != nil {
			t.Fatal(err)
		}
		again := open(t, copied)
		if got := contents(t, again); !same(got, want) || again.Report.Damage != nil {
			t.Errorf("without meta page %d: %d objects, want %d: %+v", meta, len(got), len(want), again.Report)
		}
		if again.Revision() <= s.Revision() {
			t.Errorf("without meta page %d: revision %d after %d", meta, again.Revision(), s.Revision())
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// If the log is damaged, the writes after the damage are lost, and Open reports this once.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	defer s.Close()
	for i := range 10 {
		storetest.Put(t, s, key(fmt.Sprint("a", i)), "1")
	}
	for name, c := range map[string]struct {
		do   func(log string) error
		left int
	}{
		"missing":   {os.Remove, 0},
		"zeros":     {func(log string) error { return zero(log, 4) }, 3},
		"all zeros": {func(log string) error { return os.WriteFile(log, make([]byte, 16*4096), 0o600) }, 0},
		"truncated": {func(log string) error { return os.Truncate(log, 6*4096) }, 5},
		"a folder": {func(log string) error {
			return errors.Join(os.Remove(log), os.Mkdir(log, 0o700))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			copied := crashed(t, path)
			if err := c.do(copied + "-wal"); err != nil {
				t.Fatal(err)
			}
			if _, err := bolt.At(copied, bolt.Config{Config: storetest.Config()}).Save(); err == nil {
				t.Error("Save succeeded with a damaged log")
			}
			again := open(t, copied)
			if got := contents(t, again); len(got) != c.left || again.Report.Damage == nil || !again.Report.LogOnly {
				t.Errorf("%d objects, want %d: %+v", len(got), c.left, again.Report)
			}
			if _, err := os.Lstat(again.Report.SetAside); (err == nil) == (name == "missing") {
				t.Errorf("set aside as %q: %v", again.Report.SetAside, err)
			}
			if next := storetest.Put(t, again, key("next"), "1"); next.Rev <= s.Revision() {
				t.Errorf("revision %d after %d", next.Rev, s.Revision())
			}
			want := contents(t, again)
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
			again = open(t, copied)
			defer again.Close()
			if got := contents(t, again); !same(got, want) || again.Report.Damage != nil {
				t.Errorf("%d objects, want %d: %+v", len(got), len(want), again.Report)
			}
		})
	}
}

// A start that fails does not change a damaged log.
func TestDamagedLogAndFailedStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	defer s.Close()
	for i := range 10 {
		storetest.Put(t, s, key(fmt.Sprint("a", i)), "1")
	}
	copied := crashed(t, path)
	if err := zero(copied+"-wal", 9); err != nil {
		t.Fatal(err)
	}
	other := storetest.Config()
	other.Kind = func(string) (store.Kind, bool) { return store.Kind{}, false }
	if _, err := bolt.Open(copied, other); err == nil {
		t.Error("opened without its kinds")
	}
	again := open(t, copied)
	defer again.Close()
	if n := len(contents(t, again)); n != 8 || !again.Report.LogOnly {
		t.Errorf("%d objects, want 8: %+v", n, again.Report)
	}
}

// If the log is truncated, no revision is assigned twice, and Open reports the damage.
func TestTruncatedLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	defer s.Close()
	for i := range 10 {
		storetest.Put(t, s, key(fmt.Sprint("a", i)), "1")
	}
	for _, size := range []int64{0, 3 * 4096, 5*4096 + 100} {
		copied := crashed(t, path)
		if err := os.Truncate(copied+"-wal", size); err != nil {
			t.Fatal(err)
		}
		again := open(t, copied)
		if n := len(contents(t, again)); n != max(0, int(size/4096)-1) || !again.Report.LogOnly {
			t.Errorf("truncated at %d: %d objects, %+v", size, n, again.Report)
		}
		if next := storetest.Put(t, again, key("new"), "1"); next.Rev <= s.Revision() {
			t.Errorf("truncated at %d: revision %d after %d", size, next.Rev, s.Revision())
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Open reports an older state file with a newer log, and the reverse. It keeps the objects that remain.
func TestOlderCopies(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := bolt.At(path, bolt.Config{Config: storetest.Config(), LogBytes: 16 * 4096}).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(from, to int) {
		for i := range to - from {
			storetest.Put(t, s, key(fmt.Sprint("a", from+i)), "1")
		}
	}
	put(0, 10)
	older := crashed(t, path)
	olderFile, olderLog := read(t, older), read(t, older+"-wal")
	put(10, 60)
	for name, c := range map[string]struct {
		file string
		data []byte
		left int
	}{
		"state file": {"", olderFile, 0},
		"log":        {"-wal", olderLog, 50},
	} {
		copied := crashed(t, path)
		if err := os.WriteFile(copied+c.file, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, copied)
		if got := contents(t, again); again.Report.Damage == nil || len(got) > 60 || len(got) < c.left {
			t.Errorf("older %s: %d objects, %+v", name, len(got), again.Report)
		}
		if next := storetest.Put(t, again, key("next"), "1"); next.Rev <= s.Revision() {
			t.Errorf("older %s: revision %d after %d", name, next.Rev, s.Revision())
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A second crash does not decrease the revision.
func TestCrashAfterCrash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	defer s.Close()
	storetest.Put(t, s, key("a"), "1")
	for range 3 {
		copied := crashed(t, path)
		again := open(t, copied)
		defer again.Close()
		if next := storetest.Put(t, again, key("a"), fmt.Sprint(again.Revision())); next.Rev <= s.Revision() {
			t.Errorf("revision %d after %d", next.Rev, s.Revision())
		}
		s, path = again, copied
	}
}

// If the disk loses the newest meta page of a file that a version without a log wrote, no write is lost either.
func TestLostMetaPageAfterUpgrade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	storetest.Put(t, s, key("a"), "1")
	if err := errors.Join(s.Close(), os.Remove(path+"-wal")); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Delete([]byte("log")) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	for i := range 50 {
		storetest.Put(t, s, key(fmt.Sprint("b", i)), "1")
	}
	needsNoMeta(t, path, s)
}

// If a user copies a snapshot over the file, the store has the content of the snapshot. Open reports the newer log and
// sets it aside.
func TestCopiedSnapshot(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	storetest.Put(t, s, key("before"), "1")
	made, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, s, key("after"), "1")
	for _, then := range []func() error{func() error { return nil }, s.Close} {
		if err := then(); err != nil {
			t.Fatal(err)
		}
		copied := crashed(t, path)
		if err := os.WriteFile(copied, read(t, filepath.Join(filepath.Dir(path), "snapshots", made.Name)),
			0o600); err != nil {
			t.Fatal(err)
		}
		again := open(t, copied)
		if got := contents(t, again); len(got) != 1 || again.Report.Damage == nil || again.Report.SetAside == "" {
			t.Errorf("%d objects, %+v", len(got), again.Report)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Save does not deadlock while the file grows, whatever its size is.
func TestSaveWhileTheFileGrows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	defer s.Close()
	for i := range 70 {
		storetest.Put(t, s, key(fmt.Sprint("a", i)), strings.Repeat("x", 4000))
		if _, err := s.Save(); err != nil {
			t.Fatal(err)
		}
	}
}

// A copy of the file without its log, made while the file is open, is not a valid snapshot.
func TestCopyWithoutLog(t *testing.T) {
	t.Parallel()
	p, path := place(t, 0)
	s := openAt(t, p)
	defer s.Close()
	storetest.Put(t, s, key("a"), "1")
	copied := filepath.Join(t.TempDir(), "copy.db")
	data := read(t, path)
	sum := fmt.Sprintf("%x  copy.db\n", sha256.Sum256(data))
	if err := errors.Join(os.WriteFile(copied, data, 0o600),
		os.WriteFile(copied+".sha256", []byte(sum), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(copied); err == nil || !strings.Contains(err.Error(), "without its log") {
		t.Errorf("got %v", err)
	}
}

// The store refuses a key that is too long for bbolt at once, and other writes continue.
func TestLongKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	for _, n := range []int{33_000, 70_000} {
		_, err := s.Update(t.Context(), key(strings.Repeat("a", n)),
			func(store.Object) (store.Object, error) { return object("a"), nil })
		if !errors.Is(err, bolterrors.ErrKeyTooLarge) {
			t.Errorf("%d bytes: %.200v", n, err)
		}
	}
	storetest.Put(t, s, key("b"), "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	if n := len(contents(t, s)); n != 1 {
		t.Errorf("%d objects", n)
	}
}

// If the log is lost and no new file can be written, no write is lost: the store writes the content of the log into the
// old file, also at a stop.
func TestLostLogNeedsNoNewFile(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		l := openLost(t)
		if err := errors.Join(os.MkdirAll(filepath.Join(l.path+".new", "file"), 0o700),
			os.Remove(l.path+"-wal")); err != nil {
			t.Fatal(err)
		}
		if !stop {
			storetest.Put(t, l, key("after"), "1")
			l.survives(t)
		}
		want := contents(t, l)
		if err := errors.Join(l.Close(), os.RemoveAll(l.path+".new")); err != nil {
			t.Fatal(err)
		}
		again := open(t, l.path)
		if got := contents(t, again); !same(got, want) || again.Report.Damage != nil {
			t.Errorf("%d objects, want %d: %+v", len(got), len(want), again.Report)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// On a full disk all deletions work, also if the log has many small changes of leaves with large values, which a
// checkpoint writes again.
func TestFullDiskWithLargeValues(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 64<<20)
	s := open(t, filepath.Join(dir, "state.db"))
	defer s.Close()
	const pairs = 40
	small, large := func(i int) string { return fmt.Sprintf("%03da", i) },
		func(i int) string { return fmt.Sprintf("%03db", i) }
	for i := range pairs {
		storetest.Put(t, s, key(small(i)), "1")
		storetest.Put(t, s, key(large(i)), strings.Repeat("x", 200_000))
	}
	for i := range pairs {
		storetest.Put(t, s, key(small(i)), "2")
	}
	useUp(t, dir)
	for i := range pairs {
		remove(t, s, large(i))
	}
	storetest.Put(t, s, key("in freed pages"), "1")
}

// zero overwrites a block.
func zero(path string, block int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, 4096), 4096*block)
	return errors.Join(err, f.Close())
}
