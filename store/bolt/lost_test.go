package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/storetest"
)

// lost is a DB whose file a test removes.
type lost struct {
	*bolt.DB
	path   string
	clock  *testclock.FakeClock
	losses chan bolt.Loss
}

func openLost(t *testing.T) *lost {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l := &lost{path: filepath.Join(dir, "state.db"), clock: testclock.NewFakeClock(time.Unix(1e9, 0)),
		losses: make(chan bolt.Loss, 100)}
	db, err := bolt.At(l.path,
		bolt.Config{Config: storetest.Config(), Clock: l.clock, Lost: func(loss bolt.Loss) { l.losses <- loss }}).Open()
	if err != nil {
		t.Fatal(err)
	}
	l.DB = db
	storetest.Put(t, l, key("before"), "1")
	storetest.Put(t, l, store.Key{Resource: "leases", Namespace: "ns", Name: "volatile"}, "1")
	return l
}

func (l *lost) put(ctx context.Context, name string) error {
	_, err := l.Update(ctx, key(name), func(store.Object) (store.Object, error) { return object(name), nil })
	return err
}

// survives compares the file, after a crash, with memory.
func (l *lost) survives(t *testing.T) {
	t.Helper()
	want, rev := contents(t, l), l.Revision()
	s := open(t, crashed(t, l.path))
	defer s.Close()
	if got := contents(t, s); !same(got, want) {
		t.Errorf("the file has %d objects, memory %d", len(got), len(want))
	}
	if s.Revision() < rev {
		t.Errorf("revision %d after %d", s.Revision(), rev)
	}
}

// takenAway lists how another process removes or damages the file or its log, and whether a file remains, which the
// store sets aside.
var takenAway = map[string]struct {
	do       func(path string) error
	setAside bool
}{
	"removed":         {os.Remove, false},
	"moved":           {func(path string) error { return os.Rename(path, path+".elsewhere") }, false},
	"replaced":        {replace, true},
	"overwritten":     {overwrite, true},
	"truncated":       {truncate, true},
	"log removed":     {func(path string) error { return os.Remove(path + "-wal") }, false},
	"log replaced":    {func(path string) error { return replace(path + "-wal") }, true},
	"log overwritten": {func(path string) error { return overwrite(path + "-wal") }, true},
	"log truncated":   {func(path string) error { return truncate(path + "-wal") }, true},
	"all removed": {func(path string) error {
		return errors.Join(os.Remove(path), os.Remove(path+"-wal"),
			os.RemoveAll(filepath.Join(filepath.Dir(path), "reserve")))
	}, false},
}

func replace(path string) error {
	return errors.Join(os.WriteFile(path+".other", []byte("other"), 0o600), os.Rename(path+".other", path))
}

func overwrite(path string) error {
	return os.WriteFile(path, bytes.Repeat([]byte("other"), 20_000), 0o600)
}

// truncate does what the command truncate does.
func truncate(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(0), f.Close())
}

// The store restores a file that is removed while it is open, with every acknowledged write, before it acknowledges the
// next write.
func TestNextWriteRestoresLostFile(t *testing.T) {
	t.Parallel()
	for name, taken := range takenAway {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := openLost(t)
			if err := taken.do(l.path); err != nil {
				t.Fatal(err)
			}
			storetest.Put(t, l, key("after"), "1")
			l.survives(t)
			storetest.Put(t, l, key("later"), "1")
			l.survives(t)
			loss := <-l.losses
			if loss.Why == nil || loss.Err != nil || (loss.SetAside != "") != taken.setAside || len(l.losses) > 0 {
				t.Errorf("reported %+v, and %d more", loss, len(l.losses))
			}
			want := contents(t, l)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			again := open(t, l.path)
			defer again.Close()
			if got := contents(t, again); !same(got, want) || again.Report.Damage != nil {
				t.Errorf("%d objects after a clean stop, want %d: %+v", len(got), len(want), again.Report)
			}
		})
	}
}

// Guard restores a lost file at once, even without a write.
func TestLostFileIsNoticed(t *testing.T) {
	t.Parallel()
	for name, taken := range takenAway {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := openLost(t)
			guarded := guard(t, l.DB)
			if err := taken.do(l.path); err != nil {
				t.Fatal(err)
			}
			if loss := <-l.losses; loss.Err != nil {
				t.Error(loss.Err)
			}
			guarded()
			l.survives(t)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// guard runs Guard until stop is called.
func guard(t *testing.T, db *bolt.DB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- db.Guard(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// While the file cannot be written again, the store refuses writes with the reason. It continues when the file can be
// written.
func TestLostFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	l := openLost(t)
	inTheWay := filepath.Join(l.path+".new", "file")
	if err := errors.Join(os.Mkdir(l.path+".new", 0o700), os.WriteFile(inTheWay, nil, 0o600),
		os.Remove(l.path)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.put(t.Context(), "refused"); !errors.Is(err, store.ErrUnavailable) ||
			!strings.Contains(err.Error(), "state.db.new") {
			t.Errorf("got %v", err)
		}
		if _, err := l.Repair(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("healthy: %v", err)
		}
	}
	if n := len(l.losses); n != 1 {
		t.Errorf("tried %d times without a pause", n)
	}
	if _, err := l.Get(t.Context(), key("before")); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(l.path + ".new"); err != nil {
		t.Fatal(err)
	}
	l.clock.Step(time.Second)
	storetest.Put(t, l, key("after"), "1")
	if _, err := l.Repair(t.Context()); err != nil {
		t.Error(err)
	}
	l.survives(t)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// The store writes nothing to a folder that replaced the locked one.
func TestLostFolder(t *testing.T) {
	t.Parallel()
	l := openLost(t)
	dir := filepath.Dir(l.path)
	if err := os.Rename(dir, dir+".moved"); err != nil {
		t.Fatal(err)
	}
	for _, other := range []bool{false, true} {
		if other {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.put(t.Context(), "refused"); !errors.Is(err, store.ErrUnavailable) ||
			!strings.Contains(err.Error(), "data folder") {
			t.Errorf("got %v", err)
		}
		if _, err := l.Repair(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("healthy: %v", err)
		}
	}
	if n := len(l.losses); n != 1 {
		t.Errorf("reported %d times", n)
	} else if loss := <-l.losses; loss.Err == nil || loss.SetAside != "" {
		t.Errorf("reported %+v", loss)
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+".moved", dir)); err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, l, key("after"), "1")
	l.survives(t)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// The folder stays locked, whatever happens to the file.
func TestLockOutlivesTheFile(t *testing.T) {
	t.Parallel()
	l := openLost(t)
	if err := os.Remove(l.path); err != nil {
		t.Fatal(err)
	}
	_, err := bolt.Open(l.path, storetest.Config())
	if !errors.Is(err, bolt.ErrLocked) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := open(t, l.path).Close(); err != nil {
		t.Error(err)
	}
}

// If the file is missing but other files show that the instance existed, Open creates an empty file whose revisions are
// above those of the old one, and reports this once.
func TestMissingFileOfExistingInstance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, trace := filepath.Join(dir, "state.db"), filepath.Join(dir, "ca.crt")
	place := bolt.At(path, bolt.Config{Config: storetest.Config(), Traces: []string{filepath.Join(dir, "none"), trace}})
	var last int64
	for i, damaged := range []bool{false, false, true, false} {
		s, err := place.Open()
		if err != nil {
			t.Fatal(err)
		}
		said := s.Report.Damage != nil && strings.Contains(s.Report.Damage.Error(), trace)
		if said != damaged || s.Report.Restored.Name != "" {
			t.Errorf("start %d: %+v", i, s.Report)
		}
		if s.Revision() < last {
			t.Errorf("start %d: revision %d after %d", i, s.Revision(), last)
		}
		last = storetest.Put(t, s, key("a"), string(rune('a'+i))).Rev
		if err := errors.Join(s.Close(), os.WriteFile(trace, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}
