package store

import (
	"context"
	"sync"
)

// turns serializes writes that lost a race for a key. Without it, each of many writes
// to one key would be prepared again for every other one. It is created by newTurns.
type turns struct {
	mu   sync.Mutex // guards keys
	keys map[Key]*turn
}

// turn is the turn of one key. Its channel holds a token while a write has the turn.
type turn struct {
	taken chan struct{}
	users int // writes that have it or wait for it; guarded by turns.mu
}

func newTurns() *turns { return &turns{keys: map[Key]*turn{}} }

// take waits for the key's turn until ctx ends. The caller releases it. A change that
// runs in a turn must not write to the same key.
func (t *turns) take(ctx context.Context, key Key) (release func(), err error) {
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

func (t *turns) join(key Key) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.keys[key]
	if at == nil {
		at = &turn{taken: make(chan struct{}, 1)}
		t.keys[key] = at
	}
	at.users++
	return at
}

func (t *turns) leave(key Key, at *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(t.keys, key)
	}
}
