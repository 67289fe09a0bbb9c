package logs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"monopod/agent/logs"
)

// notifier is a Notifier for files that the test writes.
type notifier struct {
	changed chan string
	poke    func()     // Rotator.Poke
	mu      sync.Mutex // guards the fields below
	armed   map[string]bool
	arms    int // calls of Arm
}

func newNotifier() *notifier {
	return &notifier{changed: make(chan string, 16), armed: map[string]bool{}}
}

func (n *notifier) Arm(path string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed[path] = true
	n.arms++
	return nil
}

func (n *notifier) Disarm(path string) { n.wrote(path, false) }

func (n *notifier) wrote(path string, tell bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.armed[path] && tell {
		n.changed <- path
	}
	delete(n.armed, path)
}

func (n *notifier) Changed() <-chan string  { return n.changed }
func (n *notifier) Run(ctx context.Context) { <-ctx.Done() }

// writer is a container that writes to a sparse log file.
type writer struct {
	*notifier
	path    string
	longest int64
	hangs   bool // reopening the log hangs
}

func (w *writer) write(t *testing.T, n int64) {
	info, err := os.Stat(w.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(w.path, info.Size()+n); err != nil {
		t.Fatal(err)
	}
	w.longest = max(w.longest, info.Size()+n)
	w.wrote(w.path, true)
}

// small is the default rotation with a hundredth of its size.
var small = logs.Rotation{MaxSize: 100 << 10, MaxFiles: 5, Period: 10 * time.Second}

// rotating runs a Rotator for the writers. looks counts the checks of all files.
func rotating(t *testing.T, writers ...*writer) (looks *int, stop func()) {
	looks = new(int)
	r, err := logs.NewRotator(logs.RotatorDeps{
		Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry(), Log: zap.NewNop(),
		Running: func(yield func(logs.ContainerFiles) bool) {
			*looks++
			for _, w := range writers {
				if !yield(logs.ContainerFiles{Path: w.path, ID: w.path, Log: zap.NewNop()}) {
					return
				}
			}
		},
		Reopen: func(ctx context.Context, id string) error {
			w := writers[slices.IndexFunc(writers, func(w *writer) bool { return w.path == id })]
			if w.hangs {
				<-ctx.Done()
				return ctx.Err()
			}
			return os.WriteFile(id, nil, 0o640)
		},
		Notify: func() (logs.Notifier, error) { return writers[0].notifier, nil },
	}, small)
	if err != nil {
		t.Fatal(err)
	}
	writers[0].poke = r.Poke
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	synctest.Wait()
	return looks, func() { cancel(); <-done }
}

func newWriter(t *testing.T, n *notifier) *writer {
	t.Helper()
	return &writer{notifier: n, path: write(t, "")}
}

// A log that suddenly grows by 600 kB/s stays near its limit, as does one with the default size that grows by 60 MB/s.
func TestRotatorKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNotifier()
		fast, stuck := newWriter(t, n), newWriter(t, n)
		stuck.hangs = true // must not block the rotation of other logs
		_, stop := rotating(t, fast, stuck)
		defer stop()
		time.Sleep(7 * time.Second)
		fast.write(t, 100) // one line before a pause
		stuck.write(t, 2*small.MaxSize)
		time.Sleep(1300 * time.Millisecond)
		for range 1000 {
			fast.write(t, 6_000)
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		if fast.longest > 3*small.MaxSize+small.MaxSize/5 {
			t.Errorf("the log reached %d bytes", fast.longest)
		}
		if files := filesOf(t, fast.path); len(files) > small.MaxFiles {
			t.Errorf("files: %v", files)
		}
	})
}

// The Rotator checks a file without writes only together with all others.
func TestRotatorIsIdleWithoutGrowth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t, newNotifier())
		looks, stop := rotating(t, w)
		defer stop()
		w.write(t, 100)
		time.Sleep(time.Minute)
		synctest.Wait()
		if *looks > 8 || !w.armed[w.path] {
			t.Errorf("checked all files %d times in a minute; watches the file: %v", *looks, w.armed[w.path])
		}
	})
}

// TestNewContainersDoNotCostTheOldOnes checks that the start of a container triggers a check of its new file, but not
// of files that the Rotator already watches.
func TestNewContainersDoNotCostTheOldOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNotifier()
		old, late := newWriter(t, n), newWriter(t, n)
		writers := []*writer{old, late}
		name := late.path
		late.path = name + ".absent"
		_, stop := rotating(t, writers...)
		defer stop()
		time.Sleep(5 * time.Second) // after the first check of all files, before the next
		synctest.Wait()
		late.path = name
		before := n.arms
		for range 100 {
			n.poke()
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n.arms != before+1 || !n.armed[late.path] || !n.armed[old.path] {
			t.Errorf("armed %d watches, want one for the new file; watched: %v", n.arms-before, n.armed)
		}
	})
}

// Files that were rotated in the same second have different names, in order.
func TestRotatedTwiceInASecond(t *testing.T) {
	t.Parallel()
	path := write(t, record(0, "stdout", "F", "file 0"))
	r := logs.Rotation{MaxSize: 10, MaxFiles: 5}
	for i := 1; i <= 4; i++ {
		err := r.Rotate(path, noon.Add(time.Duration(i)*200*time.Millisecond), func() error {
			return os.WriteFile(path, []byte(record(i, "stdout", "F", fmt.Sprint("file ", i))), 0o640)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	files := filesOf(t, path)
	want := []string{"0.log", "0.log.20260101-120000.gz", "0.log.20260101-120000_.400.gz", "0.log.20260101-120000_.600.gz",
		"0.log.20260101-120000_.800"}
	if !slices.Equal(files, want) {
		t.Fatalf("files: %v", files)
	}
	for i, name := range want[1:4] {
		if got := unzipped(t, filepath.Join(filepath.Dir(path), name)); !strings.Contains(got, fmt.Sprint("file ", i)) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A watch of inotify reports one write, and must be armed again for the next.
func TestInotify(t *testing.T) {
	t.Parallel()
	n, err := logs.NewInotify()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	path, other := write(t, ""), write(t, "")
	for range 3 {
		if err := errors.Join(n.Arm(path), n.Arm(path), n.Arm(other)); err != nil {
			t.Fatal(err)
		}
		add(t, path, "a")
		add(t, path, "b")
		if got := <-n.Changed(); got != path {
			t.Errorf("reported a change of %s", got)
		}
	}
	n.Disarm(other)
	add(t, other, "a")
	if err := n.Arm(path); err != nil {
		t.Fatal(err)
	}
	add(t, path, "a")
	if got := <-n.Changed(); got != path {
		t.Errorf("reported a change of %s, which is not watched", got)
	}
}

// A container that writes gigabytes to its termination message does not fill the disk. Message returns the end of the
// message.
func TestTerminationMessageIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "message")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := logs.NewRotator(logs.RotatorDeps{
		Clock: clock.RealClock{}, Metrics: prometheus.NewRegistry(), Log: zap.NewNop(),
		Running: func(yield func(logs.ContainerFiles) bool) {
			yield(logs.ContainerFiles{Path: path + ".log", Message: path, Log: zap.NewNop()})
		},
		Notify: func() (logs.Notifier, error) { return logs.NewInotify() },
	}, logs.DefaultRotation())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	for i := range 64 {
		if _, err := f.WriteString(strings.Repeat(fmt.Sprintf("%015d\n", i), 1<<16)); err != nil { // 1 MiB
			t.Fatal(err)
		}
	}
	if _, err := f.WriteString("last words\n"); err != nil {
		t.Fatal(err)
	}
	for taken(t, path) > 64<<10 { // the timeout of go test is the limit
		time.Sleep(time.Millisecond)
	}
	if m := logs.Message(path); len(m) != 4096 || !strings.HasSuffix(m, "000063\nlast words\n") ||
		strings.Contains(m, "\x00") {
		t.Errorf("the message has %d bytes: %q", len(m), m)
	}
}

func taken(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
