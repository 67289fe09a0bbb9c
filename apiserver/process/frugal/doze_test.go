package frugal

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/apiserver/process/kernelfile"
)

// TestDoze: all threads have the longer slack, and a program that a thread starts after Wake has Linux' own.
func TestDoze(t *testing.T) {
	if err := Doze(); err != nil {
		t.Skipf("skipped: only root may change it: %v", err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		text, err := kernelfile.Read(filepath.Join("/proc", thread.Name(), "timerslack_ns"))
		if got := strings.TrimSpace(string(text)); err == nil && got != strconv.Itoa(dozySlack) {
			t.Errorf("thread %s has %s ns", thread.Name(), got)
		}
	}
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := Wake(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cat", "/proc/self/timerslack_ns").Output(); err != nil || strings.TrimSpace(string(out)) != strconv.Itoa(usualSlack) {
		t.Errorf("a program has %s ns, %v", out, err)
	}
	if got, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || got != usualSlack {
		t.Errorf("the thread has %d ns, %v", got, err)
	}
}
