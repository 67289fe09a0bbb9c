package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/store"
)

const ring = 16 * Block

func record(name string, rev int64, json string) store.Record {
	r := store.Record{Key: store.Key{Resource: "configmaps", Namespace: "ns", Name: name}, Rev: rev}
	if json != "" {
		r.JSON = []byte(json)
	}
	return r
}

func open(t *testing.T, path string, at int64) *Log {
	t.Helper()
	l, err := Open(path, ring, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// add appends a frame of some blocks, with one record of this name.
func add(t *testing.T, l *Log, name string, blocks int) {
	t.Helper()
	if err := l.Append([]store.Record{record(name, int64(l.number), strings.Repeat(name, (blocks-1)*Block/len(name)+1))},
		7); err != nil {
		t.Fatal(err)
	}
}

// names returns the names of the records in c.
func names(c Content) string {
	var all []string
	for _, r := range c.Records {
		all = append(all, r.Key.Name)
	}
	return strings.Join(all, " ")
}

// begin begins a generation.
func begin(t *testing.T, l *Log, g Generation) {
	t.Helper()
	if _, err := l.Begin(g); err != nil {
		t.Fatal(err)
	}
	l.Began(g)
}

func read(t *testing.T, path string, from Place, base uint64) Content {
	t.Helper()
	c, err := Read(path, Expected{Place: from, Base: base, All: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRecords(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wal")
	l := open(t, path, 0)
	begin(t, l, Generation{ID: 5})
	cluster := store.Record{Key: store.Key{Resource: "widgets.example.com", Name: "x"}, Rev: 9, JSON: []byte(`{"a":1}`)}
	for _, some := range [][]store.Record{{record("a", 1, "{}"), record("b", 2, "{1}"), cluster}, {},
		{record("a", 3, ""), record("b", 4, "{2}")}} {
		if err := l.Append(some, int64(100+len(some))); err != nil {
			t.Fatal(err)
		}
		if err := l.Check(); err != nil {
			t.Error(err)
		}
	}
	c := read(t, path, Place{Generation: 5}, 0)
	want := []store.Record{record("a", 3, ""), record("b", 4, "{2}"), cluster}
	if fmt.Sprint(c.Records) != fmt.Sprint(want) || c.Reserved != 102 {
		t.Errorf("read %+v", c)
	}
	if (c.Next != Place{Generation: 5, Number: 4, At: 4 * Block}) {
		t.Errorf("continues at %+v", c.Next)
	}
}

// A generation uses half of the ring, and continues at the beginning if there is no room at the end. The previous
// generation remains.
func TestRing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wal")
	l := open(t, path, 0)
	places := map[uint64]Place{}
	before, frames := "", uint64(0)
	for id := uint64(1); id < 20; id++ {
		places[id] = Place{Generation: id, At: l.At()}
		begin(t, l, Generation{ID: id, Before: id - 1, After: frames, Base: id})
		var now []string
		for i := 0; ; i++ {
			name := fmt.Sprintf("g%d-%d", id, i)
			err := l.Append([]store.Record{record(name, 1, strings.Repeat("x", (i%3)*Block+1))}, 1)
			if errors.Is(err, ErrNoRoom) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			now = append(now, name)
		}
		if len(now) < 3 {
			t.Errorf("generation %d has %d frames", id, len(now))
		}
		present := strings.Join(now, " ")
		if got := names(read(t, path, places[id], id)); got != present {
			t.Errorf("generation %d: %s, want %s", id, got, present)
		}
		if got := names(read(t, path, places[max(id-1, 1)], id-1)); got != strings.TrimSpace(before+" "+present) {
			t.Errorf("generation %d and the previous one: %s, want %s %s", id, got, before, present)
		}
		before, frames = present, l.Number()
	}
	if info, err := os.Stat(path); err != nil || info.Size() > ring {
		t.Errorf("%v, %v", info, err)
	}
}

// Read returns no records that continue another history.
func TestOtherGenerations(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wal")
	l := open(t, path, 0)
	begin(t, l, Generation{ID: 5, Before: 4, After: 9, Base: 10})
	add(t, l, "a", 1)
	for name, c := range map[string]struct {
		from Place
		base uint64
		want string
	}{
		"itself":                {Place{Generation: 5}, 10, "a"},
		"the previous one":      {Place{Generation: 4, Number: 9}, 9, "a"},
		"a newer file":          {Place{Generation: 4, Number: 9}, 10, ""},
		"with a gap":            {Place{Generation: 4, Number: 8}, 10, ""},
		"another":               {Place{Generation: 6}, 9, ""},
		"a file without a log":  {Place{}, 0, ""},
		"another place":         {Place{Generation: 5, At: 3 * Block}, 10, "a"}, // as if there was no room at the end
		"an invalid place":      {Place{Generation: 4, Number: 9, At: -1}, 10, ""},
		"after its first frame": {Place{Generation: 5, Number: 1, At: Block}, 10, "a"},
		"later":                 {Place{Generation: 5, Number: 2, At: 2 * Block}, 10, ""},
	} {
		got, err := Read(path, Expected{Place: c.from, Base: c.base})
		if names(got) != c.want || err != nil {
			t.Errorf("%s: %q, want %q: %v", name, names(got), c.want, err)
		}
	}
	if c, err := Read(filepath.Join(t.TempDir(), "none"), Expected{Place: Place{Generation: 5}}); err != nil ||
		c.Records != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestDamage damages each byte of four frames. Read treats a damaged last frame as torn and omits it, and reports the
// damage of the others.
func TestDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "wal")
	l := open(t, path, 0)
	begin(t, l, Generation{ID: 5})
	ends := []int{}
	for i, blocks := range []int{1, 2, 1, 2} {
		add(t, l, fmt.Sprint("frame", i), blocks)
		ends = append(ends, int(l.At()))
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dir, "damaged")
	for at := 0; at < ends[3]; at += 1 + rand.IntN(60) {
		data := bytes.Clone(good)
		data[at] ^= 1 << rand.IntN(8)
		if err := os.WriteFile(damaged, data, 0o600); err != nil {
			t.Fatal(err)
		}
		frame := 0
		for at >= ends[frame] {
			frame++
		}
		c, err := Read(damaged, Expected{Place: Place{Generation: 5}, All: true})
		whole := len(c.Records) == 4 // the bytes after the body of a frame do not matter
		if whole && err != nil || !whole && (len(c.Records) != frame || errors.Is(err, ErrDamaged) != (frame < 3)) {
			t.Errorf("byte %d, frame %d: %d frames, %v", at, frame, len(c.Records), err)
		}
	}
	if _, err := Read(filepath.Join(dir, "none"), Expected{Place: Place{Generation: 5}, All: true}); !errors.Is(err,
		ErrDamaged) {
		t.Errorf("a missing file: %v", err)
	}
}

// Read detects a missing frame of a generation, also if the next frame exists.
func TestGap(t *testing.T) {
	t.Parallel()
	for _, block := range []int64{0, 1, 3, 7} {
		path := filepath.Join(t.TempDir(), "wal")
		l := open(t, path, 8*Block)
		begin(t, l, Generation{ID: 5, Before: 4, After: 3, Base: 10})
		for i := range 7 {
			add(t, l, fmt.Sprint("a", i), 1)
		}
		begin(t, l, Generation{ID: 6, Before: 5, After: 8, Base: 11})
		add(t, l, "b", 1)
		if _, err := l.file.WriteAt(make([]byte, Block), (8+block)*Block); err != nil {
			t.Fatal(err)
		}
		for name, from := range map[string]Place{"itself": {Generation: 5, At: 8 * Block},
			"the previous one": {Generation: 4, Number: 3, At: 8 * Block}} {
			c, err := Read(path, Expected{Place: from, Base: 9, All: true})
			if !errors.Is(err, ErrDamaged) || len(c.Records) != max(0, int(block)-1) {
				t.Errorf("without block %d, from %s: %d records, %v", block, name, len(c.Records), err)
			}
		}
	}
}

// Read reports a truncated file as damaged, whatever its size is.
func TestTruncated(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wal")
	l := open(t, path, 0)
	begin(t, l, Generation{ID: 5})
	add(t, l, "a", 1)
	add(t, l, "b", 3)
	for _, c := range []struct {
		size int64
		want string
	}{{5 * Block, "a b"}, {4 * Block, "a"}, {50, ""}, {0, ""}} {
		if err := os.Truncate(path, c.size); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path, Expected{Place: Place{Generation: 5}, All: true})
		if names(got) != c.want || !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes: %q, %v", c.size, names(got), err)
		}
	}
}

// The state file records the length of its log, that a generation has begun, and which of its transactions the log
// continues.
func TestExpected(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wal")
	l := open(t, path, 0)
	begin(t, l, Generation{File: 1, ID: 5, Base: 10})
	add(t, l, "a", 1)
	now := Expected{Place: Place{Generation: 5}, File: 1, Base: 10, Size: 16 * Block, All: true, Open: true}
	for name, c := range map[string]struct {
		change func(e *Expected)
		want   string
		damage string
	}{
		"unchanged":          {func(*Expected) {}, "a", ""},
		"a longer file":      {func(e *Expected) { e.Size++ }, "a", "truncated"},
		"a later generation": {func(e *Expected) { e.Generation = 6 }, "", "missing"},
		"an older state file": {func(e *Expected) { *e = Expected{Place: Place{Generation: 4}, File: 1, Base: 9} },
			"", "older than its log"},
		"another state file": {func(e *Expected) { *e = Expected{Place: Place{Generation: 4}, File: 2, Base: 9} }, "", ""},
		"a newer, complete one": {func(e *Expected) { *e = Expected{Place: Place{Generation: 7}, File: 1, Base: 11} },
			"", ""},
		"one that has lost its newest": {func(e *Expected) { e.Generation, e.Open, e.Base = 0, false, 9 }, "",
			"older than its log"},
	} {
		e := now
		c.change(&e)
		got, err := Read(path, e)
		if names(got) != c.want || (err == nil) != (c.damage == "") || err != nil && !strings.Contains(err.Error(),
			c.damage) {
			t.Errorf("%s: %q, %v", name, names(got), err)
		}
	}
}

// Append refuses records that are too long; shorter ones fit afterwards.
func TestTooLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wal")
	l := open(t, path, 0)
	if err := l.Append(nil, 1); !errors.Is(err, ErrNoRoom) {
		t.Errorf("without a generation: %v", err)
	}
	begin(t, l, Generation{ID: 5})
	if err := l.Append([]store.Record{record("a", 1, strings.Repeat("x", ring/2))}, 1); !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v", err)
	}
	add(t, l, "b", ring/2/Block-1)
	if got := names(read(t, path, Place{Generation: 5}, 0)); got != "b" {
		t.Errorf("read %q", got)
	}
}

func TestNotAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "to"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link} {
		if _, err := Open(path, ring, 0); err == nil {
			t.Errorf("%s was opened", path)
		}
		if _, err := Read(path, Expected{Place: Place{Generation: 1}, All: true}); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// For any content of the file, Read returns records or ErrDamaged.
func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "wal")
	l, err := Open(path, ring, 0)
	if err != nil {
		f.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Begin(Generation{ID: 5}); err != nil {
		f.Fatal(err)
	}
	l.Began(Generation{ID: 5})
	for range 3 {
		if err := l.Append([]store.Record{record("a", 1, "{}"), record("b", 2, "")}, 1); err != nil {
			f.Fatal(err)
		}
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, int64(0), uint64(0))
	f.Add(good[:Block], int64(Block), uint64(1))
	f.Fuzz(func(t *testing.T, data []byte, at int64, number uint64) {
		path := filepath.Join(t.TempDir(), "wal")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, Expected{Place: Place{Generation: 5, Number: number, At: at}, All: true}); err != nil &&
			!errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add(appendRecord(nil, record("a", 1, "{}")))
	f.Add(appendRecord(nil, record("a", 1, "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, rest, ok := parseRecord(data)
		if ok && !bytes.Equal(appendRecord(nil, r), data[:len(data)-len(rest)]) {
			again, _, ok := parseRecord(appendRecord(nil, r))
			if !ok || fmt.Sprint(again) != fmt.Sprint(r) {
				t.Errorf("%v became %v", r, again)
			}
		}
	})
}
