package idlecache_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"monopod/apiserver/kit/idlecache"
)

// A value is built once while callers use it, released after its idle time and not before, and then built again.
func TestKeptWhileUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		built := 0
		v := idlecache.New(clock.RealClock{}, time.Minute, func() (int, error) { built++; return built, nil })
		if v.Held() {
			t.Error("held before the first Get")
		}
		for range 5 { // four minutes of use, never a minute without
			if got, err := v.Get(); got != 1 || err != nil {
				t.Fatalf("got %d, %v", got, err)
			}
			time.Sleep(59 * time.Second)
		}
		if !v.Held() {
			t.Error("released a second too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if v.Held() {
			t.Error("still held after a minute without use")
		}
		if got, _ := v.Get(); got != 2 {
			t.Errorf("got %d, want it built a second time", got)
		}
	})
}

// A released value is garbage.
func TestReleasedMemory(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	v := idlecache.New(clock.RealClock{}, time.Hour, func() ([]byte, error) { return make([]byte, size), nil })
	before := heap()
	if data, _ := v.Get(); len(data) != size {
		t.Fatal("nothing built")
	}
	v.Release()
	if after := heap(); after > before+size/2 {
		t.Errorf("the heap was %d and is %d bytes", before, after)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Concurrent callers share one value; an error is not cached.
func TestSharedAndErrors(t *testing.T) {
	t.Parallel()
	built, fail := 0, true
	v := idlecache.New(clock.RealClock{}, time.Hour, func() (*int, error) {
		if fail {
			return nil, errors.New("not yet")
		}
		built++
		return new(int), nil
	})
	if _, err := v.Get(); err == nil || v.Held() {
		t.Fatalf("got %v, held %t", err, v.Held())
	}
	fail = false
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := v.Get(); got == nil || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	wg.Wait()
	if built != 1 {
		t.Errorf("built %d times", built)
	}
	v.Release()
}
