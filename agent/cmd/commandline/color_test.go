package commandline

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal returns the end of a new pseudoterminal that programs write to.
func terminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("skipped: cannot open a pseudoterminal: ", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("skipped: cannot open a pseudoterminal: ", err)
	}
	t.Cleanup(func() { slave.Close() })
	return slave
}

func TestColors(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "linux")
	tty := terminal(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := NewPainter(tty).Paint(Red, "no"); got != "\x1b[31mno\x1b[0m" {
		t.Errorf("colored text is %q", got)
	}
	for what, painter := range map[string]Painter{"a file": NewPainter(file), "a pipe": NewPainter(&bytes.Buffer{})} {
		if got := painter.Paint(Red, "no"); got != "no" {
			t.Errorf("text for %s is %q, want no color", what, got)
		}
	}
	t.Setenv("TERM", "dumb")
	if NewPainter(tty) {
		t.Error("colors on a dumb terminal")
	}
	t.Setenv("TERM", "linux")
	t.Setenv("NO_COLOR", "1")
	if NewPainter(tty) {
		t.Error("colors despite NO_COLOR")
	}
}
