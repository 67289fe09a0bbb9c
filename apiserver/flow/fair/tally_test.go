package fair

import "testing"

func TestTally(t *testing.T) {
	t.Parallel()
	var tally Tally
	most := Most{User: 3, Shared: 5}
	for i, c := range []struct {
		user   string
		weight int
		shares bool
		want   bool
	}{
		{"a", 2, true, true},
		{"a", 2, true, false}, // exceeds the limit of one user
		{"a", 1, true, true},
		{"b", 2, true, true},
		{"c", 1, true, false}, // exceeds the shared limit
		{"admin", 3, false, true},
		{"admin", 1, false, false},
	} {
		if got := tally.Take(c.user, c.weight, c.shares, most); got != c.want {
			t.Errorf("%d: %s takes %d: %v", i, c.user, c.weight, got)
		}
	}
	tally.Give("b", 2, true)
	tally.Give("admin", 3, false)
	if !tally.Take("c", 2, true, most) || tally.Take("c", 1, true, most) {
		t.Error("returned weight is not available, or too much of it")
	}
	if tally.Held("b") != 0 || len(tally.byUser) != 2 {
		t.Errorf("users who hold nothing are not removed: %v", tally.byUser)
	}
	if !tally.Take("d", 1000, true, Most{}) {
		t.Error("refused without a limit")
	}
}
