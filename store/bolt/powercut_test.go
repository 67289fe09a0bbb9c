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

// sector is what a disk writes whole or not at all.
const sector = 512

// step is one thing a disk was asked to do.
type step struct {
	kind uint64
	at   int64
	data []byte
}

// platter is what the power cut leaves of a file: everything up to the last
// fsync, and of the sectors written since then any.
type platter struct {
	synced  []byte
	written []step
}

func (p *platter) take(s step) {
	if s.kind != journalSync {
		p.written = append(p.written, s)
		return
	}
	for _, w := range p.written {
		p.synced = onto(p.synced, w, nil)
	}
	p.written = nil
}

// onto does a step to an image; keep says which sectors reach the disk, nil: all.
func onto(image []byte, s step, keep func() bool) []byte {
	end := s.at + int64(len(s.data))
	switch {
	case s.kind == journalTruncate && s.at < int64(len(image)):
		return image[:s.at]
	case int64(len(image)) < end:
		image = append(image, make([]byte, end-int64(len(image)))...)
	}
	for at := int64(0); at < int64(len(s.data)); at += sector {
		if keep == nil || keep() {
			copy(image[s.at+at:end], s.data[at:min(at+sector, int64(len(s.data)))])
		}
	}
	return image
}

// cut is one disk the power cut may leave behind: of the sectors since the last
// fsync, share of them reached it, in any order.
func (p *platter) cut(share float64) []byte {
	image := bytes.Clone(p.synced)
	written := p.written
	if rand.IntN(2) == 0 { // what is written twice may arrive in the wrong order
		written = append([]step(nil), written...)
		rand.Shuffle(len(written), func(i, j int) { written[i], written[j] = written[j], written[i] })
	}
	for _, w := range written {
		if w.kind == journalTruncate && rand.IntN(2) == 0 {
			continue
		}
		image = onto(image, w, func() bool { return rand.Float64() < share })
	}
	return image
}

// history is a run: what the disk did, and after how many of its steps each
// write was acknowledged, with what was there then.
type history struct {
	steps  []step
	acked  []int
	states []map[string]string // one more than acked: the first is the beginning
	rev    []int64
}

// mayBe are the states that a cut after n steps may show: the last acknowledged
// and the one under way.
func (h *history) mayBe(n int) (states []map[string]string, rev int64) {
	k := 0
	for k < len(h.acked) && h.acked[k] <= n {
		k++
	}
	return h.states[k:min(k+2, len(h.states))], h.rev[k]
}

// tryCuts cuts the power after every step.
func (h *history) tryCuts(t *testing.T, initial []byte) {
	t.Helper()
	p := &platter{synced: bytes.Clone(initial)}
	for n := range len(h.steps) + 1 {
		states, rev := h.mayBe(n)
		for range *cutTries {
			h.opens(t, n, p.cut([]float64{0, 0.1, 0.5, 0.9, 1}[rand.IntN(5)]), states, rev)
		}
		if n < len(h.steps) {
			p.take(h.steps[n])
		}
		if t.Failed() {
			return
		}
	}
}

func (h *history) opens(t *testing.T, n int, image []byte, states []map[string]string, rev int64) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	path := filepath.Join(dir, "state.db")
	if err = errors.Join(err, os.WriteFile(path, image, 0o600)); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := bolt.Open(path, storetest.Config())
	if err != nil {
		t.Errorf("cut after %d of %d steps: %v", n, len(h.steps), err)
		return
	}
	got := contents(t, s)
	if !same(got, states[0]) && !same(got, states[len(states)-1]) {
		t.Errorf("cut after %d of %d steps: %d objects that were never there together", n, len(h.steps), len(got))
	}
	if s.Revision() < rev {
		t.Errorf("cut after %d of %d steps: revision %d after %d", n, len(h.steps), s.Revision(), rev)
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

// emptyFile is a state file without objects.
func emptyFile(t *testing.T) (path string, data []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "state.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	return path, read(t, path)
}

// The power fails while the program writes, at every step that it asks of the
// disk. Only what was fsynced is sure to survive, and of the rest any part.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	path, initial := emptyFile(t)
	d := mountDisk(t, initial)
	s, err := bolt.At(path, bolt.Config{Config: storetest.Config(), OpenFile: d.openFile}).Open()
	if err != nil {
		t.Fatal(err)
	}
	h := &history{states: []map[string]string{contents(t, s)}, rev: []int64{s.Revision()}}
	load(t, s, 30, func() {
		h.acked = append(h.acked, len(journal(t, d.journal)))
		h.states = append(h.states, contents(t, s))
		h.rev = append(h.rev, s.Revision())
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h.steps = journal(t, d.journal)
	syncs := 0
	for _, s := range h.steps {
		if s.kind == journalSync {
			syncs++
		}
	}
	if syncs < 2*30 {
		t.Errorf("%d fsyncs for 30 commits", syncs)
	}
	h.states, h.rev = append(h.states, h.states[30]), append(h.rev, h.rev[30]) // closing
	h.tryCuts(t, initial)
}

// journal reads what the disk did.
func journal(t *testing.T, path string) (steps []step) {
	t.Helper()
	for data := read(t, path); len(data) > 0; {
		n := native.Uint64(data[16:])
		steps = append(steps, step{kind: native.Uint64(data), at: int64(native.Uint64(data[8:])), data: data[24 : 24+n]})
		data = data[24+n:]
	}
	return steps
}

// The same without a file system of our own: the pages that a commit changed
// are what it writes and syncs first, its meta page is what it writes and syncs
// then.
func TestPowerCutByPages(t *testing.T) {
	t.Parallel()
	path, initial := emptyFile(t)
	s := open(t, path)
	h := &history{states: []map[string]string{contents(t, s)}, rev: []int64{s.Revision()}}
	last := initial
	load(t, s, 20, func() {
		next := read(t, path)
		h.steps = append(h.steps, changed(last, next)...)
		last = next
		h.acked = append(h.acked, len(h.steps))
		h.states = append(h.states, contents(t, s))
		h.rev = append(h.rev, s.Revision())
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h.tryCuts(t, initial)
}

func changed(before, after []byte) (steps []step) {
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
	return append(append(append(steps, step{kind: journalSync}), metas...), step{kind: journalSync})
}

// A disk without space fails writes and nothing else, until it has some again.
func TestDiskThatFailsToWrite(t *testing.T) {
	t.Parallel()
	path, initial := emptyFile(t)
	d := mountDisk(t, initial)
	p := bolt.At(path, bolt.Config{Config: storetest.Config(), OpenFile: d.openFile})
	s := openAt(t, p)
	one := storetest.Put(t, s, key("a"), "1")
	d.fail(t, int(unix.ENOSPC))
	if _, err := s.Update(t.Context(), key("b"), func(store.Object) (store.Object, error) { return object("b"), nil }); !errors.Is(err, store.ErrNoSpace) {
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
		t.Error("after reopening it is not the same")
	}
}

// After an fsync that failed nobody knows what is on the disk: no write is
// acknowledged any more, reads go on.
func TestDiskThatFailsToSync(t *testing.T) {
	t.Parallel()
	path, initial := emptyFile(t)
	d := mountDisk(t, initial)
	s := openAt(t, bolt.At(path, bolt.Config{Config: storetest.Config(), OpenFile: d.openFile}))
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
