package custom

import (
	"encoding/json"
	"testing"
)

// The cache keeps the latest conversions up to its limit, and no large object.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var m conversionCache
	v := &Version{}
	of := func(size int) *Object { return &Object{members: []member{{"spec", make(json.RawMessage, size)}}} }
	var stored []*Object
	for range 100 {
		stored = append(stored, of(10))
		m.add(stored[len(stored)-1], v, of(1<<20))
	}
	kept := 0
	for i, o := range stored {
		if o.convertedTo(v) == nil {
			continue
		}
		if kept++; i < len(stored)-32 {
			t.Errorf("object %d of %d is cached", i, len(stored))
		}
	}
	if kept < 25 || m.bytes > maxCached || len(m.all) != kept {
		t.Errorf("%d objects of 1 MiB are cached, in %d entries, with %d bytes", kept, len(m.all), m.bytes)
	}
	large := of(10)
	if m.add(large, v, of(maxCached/2)); large.convertedTo(v) != nil || stored[99].convertedTo(v) == nil {
		t.Error("a large object replaced cached ones")
	}
}
