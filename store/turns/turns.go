// Package turns serializes what is done for one key, while other keys do not wait.
package turns

import (
	"context"
	"sync"
)

// Turns are those of all keys. The zero value is ready.
type Turns[K comparable] struct {
	mu   sync.Mutex // guards keys
	keys map[K]*turn
}

// turn is the turn of one key. Its channel holds a token while somebody has the turn.
type turn struct {
	taken chan struct{}
	users int // who have it or wait for it; guarded by Turns.mu
}

// Take waits for the key's turn until ctx ends. The caller releases it, and does not take the same key again before.
func (t *Turns[K]) Take(ctx context.Context, key K) (release func(), err error) {
	at := t.join(key)
	select {
	case at.taken <- struct{}{}:
		return func() {
			<-at.taken
			t.leave(key, at)
		}, nil
	case <-ctx.Done():
		t.leave(key, at)
		return nil, ctx.Err()
	}
}

func (t *Turns[K]) join(key K) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.keys[key]
	if at == nil {
		if t.keys == nil {
			t.keys = map[K]*turn{}
		}
		at = &turn{taken: make(chan struct{}, 1)}
		t.keys[key] = at
	}
	at.users++
	return at
}

func (t *Turns[K]) leave(key K, at *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(t.keys, key)
	}
}
