package logs_test

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"monopod/agent/logs"
)

// follower reads a log with the option Done, like kubectl logs -f.
type follower struct {
	t    *testing.T
	r    *io.PipeReader
	done chan struct{}
}

func follow(t *testing.T, path string) *follower {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { r.Close() })
	f := &follower{t: t, r: r, done: make(chan struct{})}
	go func() {
		w.CloseWithError(logs.Read(t.Context(), path, logs.Options{Tail: -1, Limit: -1, Done: f.done}, w))
	}()
	return f
}

func (f *follower) expect(want string) {
	f.t.Helper()
	b := make([]byte, len(want))
	if n, err := io.ReadFull(f.r, b); err != nil || string(b) != want {
		f.t.Fatalf("got %q, %v; want %q", b[:n], err, want)
	}
}

// end terminates the container; the follower must read want, and end.
func (f *follower) end(want string) {
	f.t.Helper()
	close(f.done)
	if rest, err := io.ReadAll(f.r); err != nil || string(rest) != want {
		f.t.Errorf("the follower read %q at the end, error %v; want %q", rest, err, want)
	}
}

func line(n int) string { return record(n, "stdout", "F", fmt.Sprint("line ", n)) }

// The runtime writes to the old file until it has opened the new one, and one of its two streams a little longer.
func TestFollowOldFileUntilRuntimeReopens(t *testing.T) {
	t.Parallel()
	path := write(t, line(0))
	aside := path + ".20260101-000000"
	f := follow(t, path)
	f.expect("line 0\n")
	if err := os.Rename(path, aside); err != nil {
		t.Fatal(err)
	}
	add(t, aside, line(1))
	f.expect("line 1\n")
	add(t, path, "") // the runtime has opened the new file, but not written to it
	add(t, aside, line(2))
	f.expect("line 2\n")
	add(t, aside, line(3))
	f.expect("line 3\n")
	add(t, path, line(4))
	f.expect("line 4\n")
	add(t, aside, line(5))
	f.expect("line 5\n")
	add(t, path, line(6))
	f.expect("line 6\n")
	f.end("")
}

func TestFollowEndsWhileTheNewFileIsEmpty(t *testing.T) {
	t.Parallel()
	path := write(t, line(0))
	f := follow(t, path)
	f.expect("line 0\n")
	if err := os.Rename(path, path+".20260101-000000"); err != nil {
		t.Fatal(err)
	}
	add(t, path, "")
	add(t, path+".20260101-000000", line(1))
	f.end("line 1\n")
}

// A follower whose file was compressed or removed continues with the next file, even if an older one still exists.
func TestFollowWithoutItsOwnFile(t *testing.T) {
	t.Parallel()
	path := write(t, line(0)+line(1))
	older := path + ".20260101-000000"
	if err := os.WriteFile(older, []byte(line(9)), 0o640); err != nil {
		t.Fatal(err)
	}
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if err := os.Chtimes(older, past, past); err != nil {
		t.Fatal(err)
	}
	f := follow(t, path)
	f.expect("line 9\nline 0\n") // the follower now blocks until the next read
	add(t, path+".20260102-000000", line(2))
	if err := os.Chtimes(path+".20260102-000000", future, future); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(line(3)), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil { // replaces the follower's own file
		t.Fatal(err)
	}
	f.expect("line 1\nline 2\nline 3\n")
	f.end("")
}
