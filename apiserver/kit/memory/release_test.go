package memory

import (
	"testing"

	"github.com/prometheus/procfs"
)

// fileMemory returns the resident pages of files in this process, in bytes.
func fileMemory(t *testing.T) uint64 {
	t.Helper()
	self, err := procfs.Self()
	if err != nil {
		t.Fatal(err)
	}
	status, err := self.NewStatus()
	if err != nil {
		t.Fatal(err)
	}
	if status.RssFile == 0 {
		t.Skip("skipped: the kernel does not report RssFile")
	}
	return status.RssFile
}

func TestReleaseProgram(t *testing.T) {
	before := fileMemory(t)
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := fileMemory(t); after >= before {
		t.Errorf("%d bytes of files before, %d after", before, after)
	}
}
