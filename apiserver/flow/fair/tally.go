package fair

import "sync"

// Tally counts what users hold for a long time, such as watches, with limits for each user and for all together.
// The zero value is ready to use.
type Tally struct {
	mu     sync.Mutex // guards the fields below
	byUser map[string]int
	shared int
}

// Most is the limit for one user and for all users that share; 0 or less: no limit.
type Most struct{ User, Shared int }

// Take adds weight to the weight that user holds. It returns false if the sum exceeds most. Give must return the same
// weight. A user that does not share neither counts towards the shared limit nor is limited by it.
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

// Give returns weight.
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

// Held returns the weight that the user holds.
func (t *Tally) Held(user string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byUser[user]
}
