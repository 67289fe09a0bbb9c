package commandline

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func inBytes(n int64) string { return fmt.Sprintf("%d B", n) }

func TestBar(t *testing.T) {
	t.Parallel()
	for want, line := range map[string]string{
		"save [------------------------] 0 %, 0 B of 200 B, 0 s":    bar("save", 0, 200, inBytes, 0),
		"save [############------------] 50 %, 100 B of 200 B, 3 s": bar("save", 100, 200, inBytes, 3*time.Second),
		"save [########################] 200 B, finishing, 61 s":    bar("save", 200, 200, inBytes, 61*time.Second),
		"save [########################] 300 B, finishing, 1 s":     bar("save", 300, 200, inBytes, time.Second), // > total
		"save 100 B, 1 s": bar("save", 100, 0, inBytes, time.Second),
		"save 1 s":        bar("save", 0, 0, inBytes, 1900*time.Millisecond),
	} {
		if line != want {
			t.Errorf("got %q, want %q", line, want)
		}
	}
}

// Progress rewrites its line while the step runs, and removes it at the end. A shorter line overwrites a longer one
// completely.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, "copy", 1000, inBytes)
		p.Write(make([]byte, 500))
		time.Sleep(150 * time.Millisecond)
		p.SetTitle("copy all")
		p.Write(make([]byte, 500))
		time.Sleep(100 * time.Millisecond)
		p.Set(20, 80)
		if !p.Shown() || p.done != 20 || p.total != 80 {
			t.Errorf("progress is %d of %d, want 20 of 80", p.done, p.total)
		}
		p.End()
		p.End() // has no effect the second time
		lines := strings.Split(out.String(), "\r")
		if len(lines) != 5 || !strings.Contains(lines[1], "50 %") || !strings.Contains(lines[2], "finishing") ||
			!strings.HasPrefix(lines[2], "copy all [") || strings.TrimSpace(lines[3]) != "" || lines[4] != "" {
			t.Fatalf("lines: %q", lines)
		}
		if len(lines[2]) < len(lines[1]) || len(lines[3]) < len(strings.TrimRight(lines[2], " ")) {
			t.Errorf("part of a longer line remains: %q", lines)
		}
	})
}

func TestProgressWithoutTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&out, "copy", 10, inBytes)
	p.Write([]byte("hello"))
	p.End()
	if out.Len() > 0 {
		t.Errorf("got %q, want no output", &out)
	}
}
