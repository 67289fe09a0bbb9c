package filewatch

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChanges(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	f, err := Watch(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "a name that is longer than sixteen bytes"),
		filepath.Join(other, "c")
	for _, err := range []error{
		os.WriteFile(a, nil, 0o600), os.WriteFile(a, []byte("more"), 0o600), os.Rename(a, b), os.Rename(b, c),
		os.Rename(c, a), os.Remove(a),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []Change{{Path: a}, {Path: a, Gone: true}, {Path: b}, {Path: b, Gone: true}, {Path: a}, {Path: a, Gone: true}}
	var got []Change
	for len(got) < len(want) {
		some, err := f.Next()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, some...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, not %v", got, want)
	}
	ended := make(chan error)
	go func() { _, err := f.Next(); ended <- err }()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after it is closed: %v", err)
	}
}

func TestFolderIsRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	if _, err := Watch(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not there: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := Watch(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if some, err := f.Next(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gone: %v %v", some, err)
	}
}

func TestOverflow(t *testing.T) {
	t.Parallel()
	f := Folder{dir: "/d"}
	record := make([]byte, unix.SizeofInotifyEvent)
	binary.NativeEndian.PutUint32(record[4:], unix.IN_Q_OVERFLOW)
	if got, err := f.parse(record); err != nil || !slices.Equal(got, []Change{{Lost: true}}) {
		t.Errorf("%v, %v", got, err)
	}
}
