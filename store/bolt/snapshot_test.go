package bolt_test

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/storetest"
)

// place returns the place of a new state file.
func place(t *testing.T, keep int) (p *bolt.Place, path string) {
	path = filepath.Join(t.TempDir(), "state.db")
	return bolt.At(path, bolt.Config{Config: storetest.Config(), Keep: keep}), path
}

func openAt(t *testing.T, p *bolt.Place) *bolt.DB {
	t.Helper()
	s, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSnapshotWhileWritesGoOn(t *testing.T) {
	t.Parallel()
	p, _ := place(t, 0)
	s := openAt(t, p)
	defer s.Close()
	storetest.Put(t, s, key("before"), "1")
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := range 30 {
				storetest.Put(t, s, key(fmt.Sprint(i)), fmt.Sprint(n))
			}
		})
	}
	made, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	if err := p.Verify(made.Name); err != nil {
		t.Error(err)
	}
	all, err := p.List()
	if err != nil || len(all) != 1 || all[0] != made || made.Revision == 0 || made.Size == 0 {
		t.Errorf("listed %+v, %v; made %+v", all, err, made)
	}
}

func TestOldSnapshotsAreDeleted(t *testing.T) {
	t.Parallel()
	p, path := place(t, 2)
	s := openAt(t, p)
	defer s.Close()
	var made []bolt.Snapshot
	for i := range 4 {
		storetest.Put(t, s, key("a"), fmt.Sprint(i))
		next, err := s.Save()
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, next)
	}
	all, err := p.List()
	if err != nil || len(all) != 2 || all[0] != made[3] || all[1] != made[2] {
		t.Errorf("kept %+v of %+v, %v", all, made, err)
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "snapshots", "*"))
	if len(files) != 4 {
		t.Errorf("files %v", files)
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	p, path := place(t, 0)
	s := openAt(t, p)
	storetest.Put(t, s, key("kept"), "old")
	made, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, s, key("kept"), "new")
	last := storetest.Put(t, s, store.Key{Resource: "leases", Namespace: "ns", Name: "volatile"}, "x")
	if _, err := p.Restore(made.Name); !errors.Is(err, bolt.ErrLocked) {
		t.Errorf("restored while it is open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := read(t, path)
	report, err := p.Restore(made.Name)
	if err != nil || len(report.Problems) != 0 {
		t.Fatal(report, err)
	}
	if string(read(t, report.SetAside)) != string(before) {
		t.Error("the replaced file was not set aside")
	}
	s = openAt(t, p)
	defer s.Close()
	got, err := s.Get(t.Context(), key("kept"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(got.JSON()), "old") {
		t.Errorf("got %s", got.JSON())
	}
	if s.Revision() <= last.Rev {
		t.Errorf("revision %d after %d", s.Revision(), last.Rev)
	}
	if _, err := s.Watch(t.Context(), store.Selector{Resource: "configmaps"}, last.Rev); !errors.Is(err,
		store.ErrExpired) {
		t.Errorf("a watch from a lost revision continues: %v", err)
	}
}

func TestRestoreRejectsDamagedSnapshot(t *testing.T) {
	t.Parallel()
	p, path := place(t, 0)
	s := openAt(t, p)
	storetest.Put(t, s, key("a"), "1")
	made, err := s.Save()
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(path), "snapshots", made.Name)
	data, before := read(t, file), read(t, path)
	data[100] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{made.Name, "nothing.db"} {
		if _, err := p.Restore(name); err == nil {
			t.Errorf("%s was restored", name)
		}
	}
	if string(read(t, path)) != string(before) {
		t.Error("the state changed")
	}
}

func TestSaveOffline(t *testing.T) {
	t.Parallel()
	p, _ := place(t, 0)
	s := openAt(t, p)
	storetest.Put(t, s, key("a"), "1")
	if _, err := p.Save(); !errors.Is(err, bolt.ErrLocked) {
		t.Errorf("saved while it is open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	made, err := p.Save()
	if err = errors.Join(err, p.Verify(made.Name)); err != nil {
		t.Error(err)
	}
}

// KeepSnapshots takes one snapshot for each interval, none without writes.
func TestKeepSnapshots(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		p := bolt.At(path, bolt.Config{Config: storetest.Config(), Keep: 10})
		s := openAt(t, p)
		defer s.Close()
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		defer done.Wait()
		defer stop()
		done.Go(func() {
			s.KeepSnapshots(ctx, 24*time.Hour, func(err error) { t.Error(err) })
		})
		for _, step := range []struct {
			wait  time.Duration
			write bool
			want  int
		}{{time.Minute, true, 0}, {10 * time.Minute, true, 1}, {12 * time.Hour, true, 1}, {13 * time.Hour, false, 2},
			{72 * time.Hour, true, 2}, {25 * time.Hour, false, 3}} {
			time.Sleep(step.wait)
			synctest.Wait()
			if all, err := p.List(); err != nil || len(all) != step.want {
				t.Errorf("after %v: %d snapshots, want %d, %v", step.wait, len(all), step.want, err)
			}
			if step.write {
				storetest.Put(t, s, key("a"), step.wait.String())
			}
		}
	})
}

// formatOne creates a file as the first versions did.
func formatOne(t *testing.T, path string, format uint64) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	put := func(b *bbolt.Bucket, k string, v []byte) {
		if err := b.Put([]byte(k), v); err != nil {
			t.Fatal(err)
		}
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		m, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		o, err := tx.CreateBucket([]byte("objects"))
		put(m, "format", binary.BigEndian.AppendUint64(nil, format))
		put(m, "reserved", binary.BigEndian.AppendUint64(nil, 1000))
		for i := range 100 {
			name := fmt.Sprint("a", i)
			put(o, "/registry/configmaps/ns/"+name, fmt.Appendf(nil,
				`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d","name":"%s","namespace":"ns"}}`, i+7,
				name))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestMigration(t *testing.T) {
	t.Parallel()
	p, path := place(t, 0)
	formatOne(t, path, 1)
	s := openAt(t, p)
	want := contents(t, s)
	if len(want) != 100 || s.Revision() != 1000 || s.Report.MigratedFrom != 1 {
		t.Errorf("%d objects at %d, %+v", len(want), s.Revision(), s.Report)
	}
	storetest.Put(t, s, key("new"), "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(t, path)
	s = openAt(t, p)
	if got := contents(t, s); len(got) != 101 || s.Report.MigratedFrom != 0 {
		t.Errorf("%d objects, %+v", len(got), s.Report)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := p.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("snapshots before the migration: %v, %v", all, err)
	}
	if _, err := p.Restore(all[0].Name); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, p)
	defer s.Close()
	if !same(contents(t, s), want) {
		t.Error("the snapshot from before the migration was not restored")
	}
}

// oldFile returns a file of an earlier version: 20 configmaps and 20 nodes, whose data contains their key.
func oldFile(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A migration moves objects to the keys that they have in etcd.
func TestMigrationOfKeys(t *testing.T) {
	t.Parallel()
	p, path := place(t, 0)
	if err := os.WriteFile(path, oldFile(t, "format2.db.gz"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, p)
	if s.Report.MigratedFrom != 2 || s.Revision() != 41 {
		t.Errorf("revision %d, %+v", s.Revision(), s.Report)
	}
	for _, resource := range []string{"configmaps", "nodes"} {
		all, _, err := s.List(t.Context(), store.Selector{Resource: resource})
		if err != nil || len(all) != 20 {
			t.Errorf("%d %s, %v", len(all), resource, err)
		}
		for _, e := range all {
			if v := e.Object.(*corev1.ConfigMap).Data["v"]; v != e.Key.String() {
				t.Errorf("%v is at %v", v, e.Key)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(t, path)
	if data := read(t, path); !strings.Contains(string(data), "/registry/minions/node7") {
		t.Error("the file does not have the keys of etcd")
	}
	openAt(t, p).Close()
}

func TestNewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	p, path := place(t, 0)
	formatOne(t, path, 99)
	setHeader(t, path, bolt.Header{Format: 99}, 99)
	before := read(t, path)
	if _, err := p.Open(); !errors.Is(err, bolt.ErrNewer) || errors.Is(err, bolt.ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if string(read(t, path)) != string(before) {
		t.Error("the file was changed")
	}
}

// setHeader stores a header, and the number of a format.
func setHeader(t *testing.T, path string, h bolt.Header, format uint64) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(bolt.MetaBucket)
		return errors.Join(h.Put(meta), meta.Put([]byte("format"), binary.BigEndian.AppendUint64(nil, format)))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// Open reports a damaged format number as damage, and not as the format of a newer or older version.
func TestDamagedFormat(t *testing.T) {
	t.Parallel()
	for _, format := range []uint64{0, 1, 2, 99, 1 << 62} {
		p, path := place(t, 0)
		formatOne(t, path, format)
		setHeader(t, path, bolt.Header{Format: bolt.Format}, format)
		if _, err := p.Open(); !errors.Is(err, bolt.ErrDamaged) || errors.Is(err, bolt.ErrNewer) {
			t.Errorf("format %d: got %v", format, err)
		}
	}
}

// bloat creates a file that is mostly free space.
func bloat(t *testing.T, s *bolt.DB) {
	t.Helper()
	for i := range 30 {
		storetest.Put(t, s, key(fmt.Sprint("a", i)), strings.Repeat("x", 40_000))
	}
	for i := range 28 {
		remove(t, s, fmt.Sprint("a", i))
	}
}

// bloated returns the content of the file of p, which is mostly free space.
func bloated(t *testing.T, p *bolt.Place) (want map[string]string) {
	t.Helper()
	s := openAt(t, p)
	defer s.Close()
	bloat(t, s)
	return contents(t, s)
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestMostlyFreeFileIsCompactedAtStart(t *testing.T) {
	t.Parallel()
	p, path := place(t, 0)
	want := bloated(t, p)
	before := size(t, path)
	s := openAt(t, p)
	if !same(contents(t, s), want) || s.Report.Compacted == 0 || size(t, path) > before/2 {
		t.Errorf("%d bytes before, %d after, %+v", before, size(t, path), s.Report)
	}
	storetest.Put(t, s, key("new"), "1")
	if _, err := bolt.Open(path, storetest.Config()); !errors.Is(err, bolt.ErrLocked) {
		t.Errorf("the new file is not locked: %v", err)
	}
	want = contents(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check(t, path)
	s = openAt(t, p)
	defer s.Close()
	if !same(contents(t, s), want) || s.Report.Compacted != 0 {
		t.Errorf("after reopening: %+v", s.Report)
	}
}

func TestCompact(t *testing.T) {
	t.Parallel()
	p, path := place(t, 0)
	want := bloated(t, p)
	before, after, err := p.Compact()
	if err != nil || after >= before/2 {
		t.Errorf("%d, %d, %v", before, after, err)
	}
	check(t, path)
	s := openAt(t, p)
	defer s.Close()
	if !same(contents(t, s), want) {
		t.Error("objects changed")
	}
	if _, _, err := p.Compact(); !errors.Is(err, bolt.ErrLocked) {
		t.Errorf("compacted while it is open: %v", err)
	}
}

// A clock that goes back does not make an old snapshot the newest.
func TestNewestIsByRevision(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	p := bolt.At(path, bolt.Config{Config: storetest.Config(), Clock: clock})
	s := openAt(t, p)
	defer s.Close()
	for i := range 2 {
		storetest.Put(t, s, key("a"), fmt.Sprint(i))
		if _, err := s.Save(); err != nil {
			t.Fatal(err)
		}
		clock.SetTime(time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	all, err := p.List()
	if err != nil || len(all) != 2 || all[0].Revision <= all[1].Revision || all[0].Time.Year() != 1970 {
		t.Errorf("%+v, %v", all, err)
	}
}
