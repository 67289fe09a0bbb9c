package frugal

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// fileMemory is how much memory of this process is pages of files, in kB.
func fileMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("left out: the kernel does not tell: %v", err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Skip("left out: the kernel does not tell RssFile")
	}
	kb, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kb
}

func TestReleaseProgram(t *testing.T) {
	before := fileMemory(t)
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := fileMemory(t); after >= before {
		t.Errorf("%d kB of files before, %d after", before, after)
	}
}
