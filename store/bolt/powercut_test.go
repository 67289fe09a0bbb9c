package bolt_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/storetest"
)

var cutTries = flag.Int("cut.tries", 1, "disks that each power cut may leave behind, tried at every step")

// run is a program's run on a disk, and the possible states after a power failure in it.
type run struct {
	file    string // the state file's path on the disk
	mayHeal bool   // a snapshot may replace the file
	log     int64  // bytes of the write-ahead log; 0: the default

	acked []acked // the acknowledged states, in order
	saved []savedAt
}

// acked is an acknowledgement: from this position in the journal on the state is at least this one.
type acked struct {
	end   int64
	state map[string]string
	rev   int64
}

type savedAt struct {
	end  int64
	name string
}

// begin returns a run on d that starts with a state.
func begin(state map[string]string, rev int64) *run {
	return &run{file: "state.db", acked: []acked{{state: state, rev: rev}}}
}

// did records that the store has acknowledged the content of s.
func (r *run) did(t *testing.T, d *disk, s store.Store) {
	t.Helper()
	r.acked = append(r.acked, acked{end: size(t, d.journal), state: contents(t, s), rev: s.Revision()})
}

// works writes to s.
func (r *run) works(t *testing.T, d *disk, s store.Store, writes int) {
	t.Helper()
	r.did(t, d, s)
	load(t, s, writes, func() { r.did(t, d, s) })
}

// saves takes a snapshot.
func (r *run) saves(t *testing.T, d *disk, s *bolt.DB) {
	t.Helper()
	made, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	r.saved = append(r.saved, savedAt{end: size(t, d.journal), name: made.Name})
}

func (r *run) place(dir string) *bolt.Place {
	return bolt.At(filepath.Join(dir, r.file), bolt.Config{Config: storetest.Config(), Keep: 2, LogBytes: r.log})
}

// tryCuts simulates a power failure after every step after position first.
func (r *run) tryCuts(t *testing.T, steps []step, first int64) {
	t.Helper()
	p := newPlatter()
	for i, s := range steps {
		p.take(s)
		if i+1 < len(steps) && s.end < first {
			continue
		}
		for range *cutTries {
			if r.tryCut(t, p, s.end); t.Failed() {
				t.Logf("cut after step %d of %d", i+1, len(steps))
				return
			}
		}
	}
}

// tryCut simulates a power failure at this position of the journal.
func (r *run) tryCut(t *testing.T, p *platter, now int64) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p.cut(t, dir)
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, r.file)), 0o700); err != nil {
		t.Fatal(err)
	}
	r.hasSnapshot(t, dir, now)
	r.opens(t, dir, now)
}

// hasSnapshot checks that the newest snapshot exists and is good.
func (r *run) hasSnapshot(t *testing.T, dir string, now int64) {
	t.Helper()
	for i := len(r.saved) - 1; i >= 0; i-- {
		if s := r.saved[i]; s.end <= now {
			if err := r.place(dir).Verify(s.name); err != nil {
				t.Error(err)
			}
			return
		}
	}
}

// opens checks that the file opens with the last acknowledged state, or the one in progress.
func (r *run) opens(t *testing.T, dir string, now int64) {
	t.Helper()
	s, err := r.place(dir).Open()
	if err != nil {
		t.Error(err)
		return
	}
	last := 0
	for last+1 < len(r.acked) && r.acked[last+1].end <= now {
		last++
	}
	next := min(last+1, len(r.acked)-1)
	if got := contents(t, s); !same(got, r.acked[last].state) && !same(got, r.acked[next].state) {
		t.Errorf("%d objects, which are neither the acknowledged state nor the next one", len(got))
	}
	if s.Revision() < r.acked[last].rev {
		t.Errorf("revision %d after %d", s.Revision(), r.acked[last].rev)
	}
	if s.Report.Damage != nil && !r.mayHeal {
		t.Errorf("reported as damaged: %v", s.Report.Damage)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// load writes, and calls acked after each write.
func load(t *testing.T, s store.Store, writes int, acked func()) {
	t.Helper()
	for i := range writes {
		name := fmt.Sprint("a", rand.IntN(12))
		if _, err := s.Get(t.Context(), key(name)); err == nil && rand.IntN(3) == 0 {
			remove(t, s, name)
		} else {
			storetest.Put(t, s, key(name), fmt.Sprint(i, strings.Repeat("x", rand.IntN(9000))))
		}
		acked()
	}
}

// prepared returns a folder with a state file, and its content.
func prepared(t *testing.T, fill func(path string, s *bolt.DB)) (dir string, r *run) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := open(t, path)
	if fill != nil {
		fill(path, s)
	}
	r = begin(contents(t, s), s.Revision())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, r
}

// The power fails at every disk operation of a program that writes. Synced content survives, and any part of the rest.
// With a small log there are checkpoints, and some writes do not fit into the smallest log.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	for _, log := range []int64{0, 128 << 10, 64 << 10} {
		t.Run(fmt.Sprint(log), func(t *testing.T) {
			t.Parallel()
			dir, r := prepared(t, nil)
			r.log = log
			d := mountDisk(t, dir)
			first := size(t, d.journal)
			s := openAt(t, r.place(d.dir))
			from := syncs(t, d)
			r.works(t, d, s, 30)
			if log == 64<<10 {
				storetest.Put(t, s, key("long"), strings.Repeat("x", int(log)))
				r.did(t, d, s)
				r.works(t, d, s, 3)
			}
			if n := syncs(t, d) - from; n < 30 || log == 0 && n > 2*30 {
				t.Errorf("%d fsyncs for 30 commits", n)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			r.tryCuts(t, d.steps(t), first)
		})
	}
}

func syncs(t *testing.T, d *disk) (n int) {
	t.Helper()
	for _, s := range d.steps(t) {
		if s.kind == journalSync {
			n++
		}
	}
	return n
}

// The power fails while the first file is created, in a new folder.
func TestPowerCutAtFirstStart(t *testing.T) {
	t.Parallel()
	d := mountDisk(t, "")
	r := begin(nil, 0)
	r.file = "lib/monopod/state.db"
	if err := os.MkdirAll(filepath.Join(d.dir, "lib/monopod"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, r.place(d.dir))
	r.works(t, d, s, 3)
	r.saves(t, d, s)
	r.works(t, d, s, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.tryCuts(t, d.steps(t), 0)
}

// The power fails while a file of an older format is migrated.
func TestPowerCutInMigration(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string){
		"format1": func(path string) { formatOne(t, path, 1) },
		"format2": func(path string) {
			if err := os.WriteFile(path, oldFile(t, "format2.db.gz"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			make(filepath.Join(dir, "state.db"))
			d := mountDisk(t, dir)
			first := size(t, d.journal)
			r := begin(nil, 0)
			s := openAt(t, r.place(d.dir))
			if s.Report.MigratedFrom == 0 {
				t.Error("the file was not migrated")
			}
			r.acked[0].state = contents(t, s)
			r.works(t, d, s, 5)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			r.tryCuts(t, d.steps(t), first)
		})
	}
}

// The power fails while a start writes the log into the file.
func TestPowerCutInReplay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	defer s.Close()
	load(t, s, 20, func() {})
	d := mountDisk(t, filepath.Dir(crashed(t, path)))
	first := size(t, d.journal)
	r := begin(contents(t, s), s.Revision())
	again := openAt(t, r.place(d.dir))
	r.did(t, d, again)
	r.works(t, d, again, 3)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	r.tryCuts(t, d.steps(t), first)
}

// The power fails while a file that is mostly free is compacted.
func TestPowerCutInCompaction(t *testing.T) {
	t.Parallel()
	dir, r := prepared(t, func(_ string, s *bolt.DB) { bloat(t, s) })
	d := mountDisk(t, dir)
	first := size(t, d.journal)
	s := openAt(t, r.place(d.dir))
	if s.Report.Compacted == 0 {
		t.Error("the file was not compacted")
	}
	r.works(t, d, s, 5)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.tryCuts(t, d.steps(t), first)
}

// The power fails while snapshots are taken and old ones removed.
func TestPowerCutInSnapshots(t *testing.T) {
	t.Parallel()
	dir, r := prepared(t, nil)
	d := mountDisk(t, dir)
	first := size(t, d.journal)
	s := openAt(t, r.place(d.dir))
	for range 4 { // the store keeps two of them
		r.works(t, d, s, 2)
		r.saves(t, d, s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.tryCuts(t, d.steps(t), first)
}

// saveAndGoOn takes a snapshot of s and then changes the state.
func saveAndGoOn(t *testing.T, s *bolt.DB) (name string, state map[string]string) {
	t.Helper()
	load(t, s, 5, func() {})
	made, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	state = contents(t, s)
	load(t, s, 5, func() {})
	return made.Name, state
}

// The power fails while a snapshot is restored: afterwards the file has one of the two states.
func TestPowerCutInRestore(t *testing.T) {
	t.Parallel()
	var name string
	var state map[string]string
	dir, r := prepared(t, func(_ string, s *bolt.DB) { name, state = saveAndGoOn(t, s) })
	d := mountDisk(t, dir)
	first := size(t, d.journal)
	p := r.place(d.dir)
	if _, err := p.Restore(name); err != nil {
		t.Fatal(err)
	}
	r.acked = append(r.acked, acked{end: size(t, d.journal), state: state, rev: r.acked[0].rev})
	s := openAt(t, p)
	r.works(t, d, s, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.tryCuts(t, d.steps(t), first)
}

// The power fails while a snapshot replaces a damaged file.
func TestPowerCutInRecovery(t *testing.T) {
	t.Parallel()
	var state map[string]string
	dir, _ := prepared(t, func(_ string, s *bolt.DB) { _, state = saveAndGoOn(t, s) })
	if err := os.Truncate(filepath.Join(dir, "state.db"), 3*4096); err != nil {
		t.Fatal(err)
	}
	d := mountDisk(t, dir)
	first := size(t, d.journal)
	r := begin(state, 0)
	r.mayHeal = true
	s := openAt(t, r.place(d.dir))
	if s.Report.Damage == nil {
		t.Error("the file was not damaged")
	}
	r.works(t, d, s, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.tryCuts(t, d.steps(t), first)
}

// TestPowerCutByPages is like TestPowerCut, without FUSE: a commit writes and syncs the log; or it first writes and
// syncs the changed pages of the file, and then its meta page.
func TestPowerCutByPages(t *testing.T) {
	t.Parallel()
	dir, r := prepared(t, func(_ string, s *bolt.DB) { storetest.Put(t, s, key("first"), "1") })
	r.log = 128 << 10
	path := filepath.Join(dir, "state.db")
	file, log := read(t, path), read(t, path+"-wal")
	steps := []step{
		{kind: journalCreate, node: rootNode, at: pagesNode, data: []byte("state.db")},
		{kind: journalCreate, node: rootNode, at: logNode, data: []byte("state.db-wal")},
		{kind: journalSync, node: rootNode},
	}
	take := func(more []step) {
		for _, s := range more {
			s.end = int64(len(steps) + 1)
			steps = append(steps, s)
		}
	}
	take(changed(nil, file))
	begun, rest := formatWAL2(nil, log)
	take(begun)
	take(rest)
	first := int64(len(steps))
	s := openAt(t, r.place(dir))
	load(t, s, 40, func() {
		nowFile, nowLog := read(t, path), read(t, path+"-wal")
		begun, rest := formatWAL2(log, nowLog)
		take(begun)
		take(changed(file, nowFile))
		take(rest)
		file, log = nowFile, nowLog
		r.acked = append(r.acked, acked{end: int64(len(steps)), state: contents(t, s), rev: s.Revision()})
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.tryCuts(t, steps, first)
}

// pagesNode and logNode are the numbers of the two files of TestPowerCutByPages.
const (
	pagesNode = 2 + iota
	logNode
)

// formatWAL2 returns the steps of the writes to the log, none if it did not change: begun are those of a generation's
// first frame and of the following blocks, which come before the file's transaction, and commit those of a commit.
func formatWAL2(before, after []byte) (begun, commit []step) {
	for at := 0; at < len(after); at += 4096 {
		block := after[at:min(at+4096, len(after))]
		if at < len(before) && bytes.Equal(block, before[at:min(at+4096, len(before))]) {
			continue
		}
		write := step{kind: journalWrite, node: logNode, at: int64(at), data: block}
		if number := block[48:56]; bytes.Equal(number, make([]byte, 8)) {
			begun = append(begun, write)
		} else {
			commit = append(commit, write)
		}
	}
	synced := func(steps []step) []step {
		if steps == nil {
			return nil
		}
		return append(steps, step{kind: journalSync, node: logNode})
	}
	return synced(begun), synced(commit)
}

// changed returns the steps of a transaction, none if the file did not change.
func changed(before, after []byte) (steps []step) {
	if bytes.Equal(before, after) {
		return nil
	}
	steps = append(steps, step{kind: journalTruncate, at: int64(len(after))}, step{kind: journalSync})
	var metas []step
	for at := 0; at < len(after); at += 4096 {
		page := after[at : at+4096]
		if at < len(before) && bytes.Equal(page, before[at:at+4096]) {
			continue
		}
		if w := (step{kind: journalWrite, at: int64(at), data: page}); at < 2*4096 {
			metas = append(metas, w)
		} else {
			steps = append(steps, w)
		}
	}
	steps = append(append(append(steps, step{kind: journalSync}), metas...), step{kind: journalSync})
	for i := range steps {
		steps[i].node = pagesNode
	}
	return steps
}

// Without space on the disk only writes fail, until there is space again.
func TestWriteErrors(t *testing.T) {
	t.Parallel()
	d := mountDisk(t, "")
	p := begin(nil, 0).place(d.dir)
	s := openAt(t, p)
	one := storetest.Put(t, s, key("a"), "1")
	d.fail(t, int(unix.ENOSPC))
	if _, err := s.Update(t.Context(), key("b"),
		func(store.Object) (store.Object, error) { return object("b"), nil }); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("got %v", err)
	}
	if got, err := s.Get(t.Context(), key("a")); err != nil || got != one {
		t.Errorf("read %v, %v", got, err)
	}
	d.fail(t, 0)
	storetest.Put(t, s, key("b"), "2")
	want := contents(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = openAt(t, p)
	defer s.Close()
	if !same(contents(t, s), want) {
		t.Error("the content differs after reopening")
	}
}

// After a failed fsync the content of the disk is unknown: the store acknowledges no further write, and reads work.
func TestSyncErrors(t *testing.T) {
	t.Parallel()
	d := mountDisk(t, "")
	s := openAt(t, begin(nil, 0).place(d.dir))
	storetest.Put(t, s, key("a"), "1")
	d.fail(t, -int(unix.EIO))
	for range 2 {
		_, err := s.Update(t.Context(), key("b"), func(store.Object) (store.Object, error) { return object("b"), nil })
		if !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), "restart") {
			t.Errorf("got %v", err)
		}
		d.fail(t, 0)
	}
	if _, err := s.Get(t.Context(), key("a")); err != nil {
		t.Error(err)
	}
	if err := s.Close(); !errors.Is(err, unix.EIO) {
		t.Errorf("Close: %v", err)
	}
}
