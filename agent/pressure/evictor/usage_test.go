package evictor_test

import (
	"testing"

	"monopod/agent/host"
	"monopod/agent/pressure/eviction"
	"monopod/agent/pressure/evictor"
)

func TestImageSignalsUseImageFileSystem(t *testing.T) {
	t.Parallel()
	const other = "/dev/shm" // a separate file system on every Linux
	disk, err := host.Disk(other)
	if err != nil || disk.Total == 0 {
		t.Skipf("skipped: %s is not usable: %v", other, err)
	}
	got := evictor.Machine(t.TempDir(), other)
	if got[eviction.ImageFs].Total != disk.Total {
		t.Errorf("imagefs has %d bytes, want %d", got[eviction.ImageFs].Total, disk.Total)
	}
	for _, s := range []eviction.Signal{eviction.Memory, eviction.PID, eviction.NodeFs} {
		if got[s].Total == 0 {
			t.Errorf("no value of %s", s)
		}
	}
}
