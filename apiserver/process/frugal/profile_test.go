package frugal

import (
	"runtime"
	"testing"
)

func TestProfile(t *testing.T) {
	was := runtime.MemProfileRate
	defer func() { runtime.MemProfileRate = was }()
	t.Setenv("GODEBUG", "memprofilerate=524288")
	if Profile(); runtime.MemProfileRate != was {
		t.Errorf("GODEBUG is ignored: %d", runtime.MemProfileRate)
	}
	t.Setenv("GODEBUG", "")
	if Profile(); runtime.MemProfileRate != profileEvery {
		t.Errorf("one sample for each %d bytes, want %d", runtime.MemProfileRate, profileEvery)
	}
}
