package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/store"
	"monopod/store/storetest"
)

// A full store refuses writes that enlarge it, except for a tenth that is reserved for existing objects, and accepts
// all others.
func TestQuota(t *testing.T) {
	t.Parallel()
	const most = 100_000
	cfg := storetest.Config()
	cfg.MaxBytes = most
	s := store.NewMemory(cfg, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	put := func(s *store.Memory, resource, name string, size int) error {
		_, err := s.Update(t.Context(), store.Key{Resource: resource, Namespace: "ns", Name: name},
			func(cur store.Object) (store.Object, error) {
				next := &corev1.ConfigMap{}
				if cur != nil {
					next = cur.DeepCopyObject().(*corev1.ConfigMap)
				}
				next.Name, next.Namespace, next.Data = name, "ns", map[string]string{"k": strings.Repeat("x", size)}
				return next, nil
			})
		return err
	}
	// Many concurrent writes, in batches, do not exceed the quota together.
	var all sync.WaitGroup
	var mu sync.Mutex
	stored, refused := 0, 0
	for i := range 200 {
		all.Go(func() {
			err := put(s, "configmaps", fmt.Sprintf("a%d", i), 800)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				stored++
			case errors.Is(err, store.ErrNoSpace) && strings.Contains(err.Error(), "--max-state-size"):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	// Until its batch is published, a write counts more bytes for its resourceVersion than it needs: consecutive writes
	// fill the remaining space.
	for ; put(s, "configmaps", fmt.Sprintf("b%d", stored), 800) == nil; stored++ {
	}
	entries, rev, err := s.List(t.Context(), store.Selector{Resource: "configmaps"})
	if err != nil {
		t.Fatal(err)
	}
	total, last := 0, entries[len(entries)-1].Key.Name
	for _, e := range entries {
		total += len(e.JSON())
	}
	if refused == 0 || stored != len(entries) || total > most || total < most-2*len(entries[0].JSON()) {
		t.Fatalf("%d stored, %d refused, %d bytes", stored, refused, total)
	}
	for name, s := range map[string]*store.Memory{"used": s, "opened": store.NewMemory(cfg, nil, entries, rev)} {
		for _, step := range []struct {
			what, resource, name string
			size                 int
			full                 bool
		}{
			{"another object", "configmaps", "new", 1000, true},
			{"a volatile object", "leases", "new", 1000, false},
			{"a status that grows", "configmaps", last, 5000, false},
			{"an object that grows too much", "configmaps", last, 50_000, true},
			{"an object that shrinks", "configmaps", last, 10, false},
		} {
			if err := put(s, step.resource, step.name, step.size); errors.Is(err, store.ErrNoSpace) != step.full ||
				err != nil && !step.full {
				t.Errorf("%s, %s: %v", name, step.what, err)
			}
		}
		for i := range 10 {
			key := entries[i].Key
			if _, err := s.Update(t.Context(), key, func(store.Object) (store.Object, error) { return nil, nil }); err != nil {
				t.Errorf("%s, a removal: %v", name, err)
			}
		}
		if err := put(s, "configmaps", "new", 1000); err != nil {
			t.Errorf("%s, after removals: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
