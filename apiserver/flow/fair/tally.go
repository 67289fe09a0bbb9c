package fair

import "sync"

// Tally counts what users hold for long, such as watches: each may hold a part
// and all together a whole. The zero value counts.
type Tally struct {
	mu     sync.Mutex // guards what follows
	byUser map[string]int
	shared int
}

// Most bounds what one user, and all who share, may hold; 0 or less: any amount.
type Most struct{ User, Shared int }

// Take adds weight to what user holds; false when that is more than most allows.
// What was taken is given back with the same weight. A user who does not share
// neither fills what the others share nor is kept out by them.
func (t *Tally) Take(user string, weight int, shares bool, most Most) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.byUser[user]
	if most.User > 0 && held+weight > most.User || shares && most.Shared > 0 && t.shared+weight > most.Shared {
		return false
	}
	if t.byUser == nil {
		t.byUser = map[string]int{}
	}
	t.byUser[user] = held + weight
	if shares {
		t.shared += weight
	}
	return true
}

// Give takes weight back.
func (t *Tally) Give(user string, weight int, shares bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byUser[user] -= weight; t.byUser[user] <= 0 {
		delete(t.byUser, user)
	}
	if shares {
		t.shared -= weight
	}
}

// Held is what the user holds.
func (t *Tally) Held(user string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byUser[user]
}
