package commandline

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestRecent(t *testing.T) {
	t.Parallel()
	var r Recent
	for i := range 10_000 {
		fmt.Fprintf(&r, "line %d\n", i)
	}
	lines := strings.Split(string(bytes.TrimSpace(r.Bytes())), "\n")
	for i, line := range lines {
		if want := fmt.Sprintf("line %d", 10_000-len(lines)+i); line != want {
			t.Fatalf("got %q, want %q", line, want)
		}
	}
	if size := len(r.Bytes()); size > recentBytes || size < recentBytes*9/10 || cap(r.data) > 2*recentBytes {
		t.Errorf("the buffer has %d bytes and a capacity of %d", size, cap(r.data))
	}
	fmt.Fprint(&r, strings.Repeat("x", 3*recentBytes), "\nlast\n")
	if got := string(r.Bytes()); got != "last\n" {
		t.Errorf("after a line longer than the buffer: %.20q", got)
	}
}
