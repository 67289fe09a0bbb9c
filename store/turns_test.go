package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/store"
	"monopod/store/storetest"
)

// Each of many concurrent writes to one key is prepared about twice, however many there are, and none is lost.
func TestWritesToOneKeyTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(storetest.Config(), nil, nil, 0)
		defer s.Close()
		key := store.Key{Resource: "configmaps", Namespace: "default", Name: "c"}
		const writers = 64
		var prepared atomic.Int64
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				_, err := s.Update(t.Context(), key, func(cur store.Object) (store.Object, error) {
					prepared.Add(1)
					time.Sleep(time.Millisecond) // so that all begin before one is done
					next := &corev1.ConfigMap{}
					if cur != nil {
						next = cur.DeepCopyObject().(*corev1.ConfigMap)
					}
					next.Generation++
					return next, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		e, err := s.Get(t.Context(), key)
		if err != nil || e.Object.GetGeneration() != writers {
			t.Errorf("%v, %v; want generation %d", e, err, writers)
		}
		if n := prepared.Load(); n > 3*writers {
			t.Errorf("%d writes were prepared %d times", writers, n)
		}
	})
}

// A caller gives up waiting for a turn when its context ends.
func TestTurnWaitsUntilDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory(storetest.Config(), nil, nil, 0)
		defer s.Close()
		key := store.Key{Resource: "configmaps", Namespace: "default", Name: "c"}
		slow := func(d time.Duration) store.Change {
			return func(cur store.Object) (store.Object, error) {
				time.Sleep(d)
				next := &corev1.ConfigMap{}
				next.Generation = time.Now().UnixNano()
				return next, nil
			}
		}
		var group sync.WaitGroup
		group.Go(func() { s.Update(t.Context(), key, slow(time.Millisecond)) })
		group.Go(func() { s.Update(t.Context(), key, slow(time.Hour)) }) // loses, and takes the turn for another hour
		group.Go(func() {                                                // loses a little later, and waits
			time.Sleep(time.Microsecond)
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
			defer cancel()
			from := time.Now()
			_, err := s.Update(ctx, key, slow(time.Hour+time.Second))
			if took := time.Since(from); !errors.Is(err, context.DeadlineExceeded) || took > 91*time.Minute {
				t.Errorf("%v after %v", err, took)
			}
		})
		group.Wait()
	})
}
