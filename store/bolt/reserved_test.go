package bolt

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"monopod/store"
	"monopod/store/storetest"
)

// The file has the newest reserved revision after each kind of write to it: a checkpoint, records that are too long for
// the write-ahead log, and a snapshot. A clean stop lowers it.
func TestNewestReserved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	d, err := Open(path, storetest.Config())
	if err != nil {
		t.Fatal(err)
	}
	record := func(bytes int) []store.Record {
		return []store.Record{{Key: store.Key{Resource: "configmaps", Namespace: "ns", Name: "a"}, Rev: 1,
			JSON: make([]byte, bytes)}}
	}
	for i, step := range []struct {
		bytes    int
		reserved int64
	}{{10, 1000}, {DefaultLogBytes, 2000}, {DefaultLogBytes, 3000}, {10, 4000}, {10, 500}} {
		if err := d.log.Commit(record(step.bytes), step.reserved); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := d.view(func(tx *bbolt.Tx) error {
				h, err := ReadHeader(tx)
				if h.Reserved != step.reserved {
					t.Errorf("step %d: %d is reserved, want %d", i, h.Reserved, step.reserved)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
