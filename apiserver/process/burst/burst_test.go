package burst_test

import (
	"maps"
	"runtime"
	"testing"

	"monopod/apiserver/process/burst"
)

// TestFit: after a burst of keys, a map that contains few of them has the memory of few, and no key is lost.
func TestFit(t *testing.T) {
	const most, left = 200_000, 50
	var grown burst.Most
	before := heap()
	keys := map[int]int{}
	for i := range most {
		keys[i] = i
		grown.Grown(len(keys))
	}
	copies, want := 0, map[int]int{}
	for i := range left {
		want[i] = i
	}
	for i := most - 1; i >= left; i-- {
		delete(keys, i)
		was := grown
		if keys = burst.Fit(keys, &grown); grown != was {
			copies++
		}
	}
	if !maps.Equal(keys, want) {
		t.Errorf("%d keys are left, want %d", len(keys), left)
	}
	if kept := heap() - before; kept > 200<<10 {
		t.Errorf("the map keeps %d bytes for %d keys", kept, left)
	}
	if copies == 0 || copies > 10 {
		t.Errorf("%d copies, want few", copies)
	}
	runtime.KeepAlive(keys)
}

// TestFitKeepsSmallMaps: a map that never had many keys is not copied.
func TestFitKeepsSmallMaps(t *testing.T) {
	keys := map[int]int{1: 1}
	var grown burst.Most
	grown.Grown(50)
	fitting := burst.Fit(keys, &grown)
	if fitting[2] = 2; keys[2] != 2 || grown != 50 {
		t.Errorf("the map was copied, or its size forgotten: %d", grown)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
