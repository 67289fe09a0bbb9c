package logs_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/agent/logs"
)

func record(second int, stream, tag, text string) string {
	return fmt.Sprintf("2026-01-01T00:00:%02d.000000000Z %s %s %s\n", second, stream, tag, text)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	t.Parallel()
	path := write(t, record(1, "stdout", "F", "one")+record(2, "stderr", "F", "two")+
		record(3, "stdout", "P", "thr")+record(3, "stdout", "F", "ee")+"garbage\n"+record(4, "stdout", "F", "")+
		record(5, "stdout", "F", "five"))
	second := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	for name, c := range map[string]struct {
		o    logs.Options
		want string
	}{
		"all":     {logs.Options{Tail: -1, Limit: -1}, "one\ntwo\nthree\n\nfive\n"},
		"tail 0":  {logs.Options{Tail: 0, Limit: -1}, ""},
		"tail 1":  {logs.Options{Tail: 1, Limit: -1}, "five\n"},
		"tail 3":  {logs.Options{Tail: 3, Limit: -1}, "three\n\nfive\n"},
		"tail 99": {logs.Options{Tail: 99, Limit: -1}, "one\ntwo\nthree\n\nfive\n"},
		"since":   {logs.Options{Tail: -1, Limit: -1, Since: second(4)}, "\nfive\n"},
		"stderr":  {logs.Options{Tail: -1, Limit: -1, Stream: "stderr"}, "two\n"},
		"limit":   {logs.Options{Tail: -1, Limit: 6}, "one\ntw"},
		"limit 0": {logs.Options{Tail: -1, Limit: 0}, ""},
		"timestamps": {logs.Options{Tail: 3, Limit: -1, Timestamps: true},
			"2026-01-01T00:00:03.000000000Z three\n2026-01-01T00:00:04.000000000Z \n2026-01-01T00:00:05.000000000Z five\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if err := logs.Read(t.Context(), path, c.o, &out); err != nil || out.String() != c.want {
				t.Errorf("got %q, %v; want %q", out.String(), err, c.want)
			}
		})
	}
}

// Read finds the tail of a log that is longer than a block.
func TestTailAcrossBlocks(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	const n = 4000
	for i := range n {
		b.WriteString(record(i%60, "stdout", "F", fmt.Sprintf("line %d %s", i, strings.Repeat("x", i%97))))
	}
	path := write(t, b.String())
	for _, tail := range []int64{1, 2, 700, 1500, 3999, 4000, 5000} {
		var out bytes.Buffer
		if err := logs.Read(t.Context(), path, logs.Options{Tail: tail, Limit: -1}, &out); err != nil {
			t.Fatal(err)
		}
		if got := int64(strings.Count(out.String(), "\n")); got != min(tail, n) {
			t.Errorf("tail %d returned %d lines", tail, got)
		}
		if !strings.HasPrefix(out.String(), fmt.Sprintf("line %d ", max(0, n-tail))) {
			t.Errorf("tail %d starts with %.20q", tail, out.String())
		}
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	path := write(t, record(1, "stdout", "F", "one"))
	done := make(chan struct{})
	r, w := io.Pipe()
	finished := make(chan error, 1)
	go func() {
		finished <- logs.Read(t.Context(), path, logs.Options{Tail: -1, Limit: -1, Done: done}, w)
		w.Close()
	}()
	expect := func(want string) {
		t.Helper()
		b := make([]byte, len(want))
		if _, err := io.ReadFull(r, b); err != nil || string(b) != want {
			t.Fatalf("got %q, %v; want %q", b, err, want)
		}
	}
	expect("one\n")
	add(t, path, record(2, "stdout", "F", "two"))
	expect("two\n")
	add(t, path, strings.TrimSuffix(record(3, "stdout", "F", "half"), "alf\n"))
	add(t, path, "alf\n")
	expect("half\n")
	if err := os.Rename(path, path+".1"); err != nil { // rotated
		t.Fatal(err)
	}
	add(t, path, record(4, "stdout", "F", "four"))
	expect("four\n")
	close(done)
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("unexpected output at the end: %q, error %v", rest, err)
	}
	if err := <-finished; err != nil {
		t.Error(err)
	}
}

func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestFollowEndsWithItsReader(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := logs.Read(ctx, write(t, ""), logs.Options{Tail: -1, Limit: -1, Done: make(chan struct{})}, io.Discard)
	if err == nil {
		t.Error("Read with a cancelled context returned no error")
	}
}

func TestFallback(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 200 {
		b.WriteString(record(1, "stdout", "F", fmt.Sprint("line ", i)))
	}
	got := logs.Fallback(write(t, b.String()))
	if strings.Count(got, "\n") != 80 || !strings.HasSuffix(got, "line 199\n") {
		t.Errorf("fallback: %q", got)
	}
	if got = logs.Fallback(write(t, record(1, "stdout", "F", strings.Repeat("x", 5000)))); len(got) != 2048 {
		t.Errorf("the fallback of a long line has %d bytes, want 2048", len(got))
	}
	if logs.Fallback("/nowhere") != "" || logs.Message("/nowhere") != "" {
		t.Error("Fallback or Message returned text without a file")
	}
}
