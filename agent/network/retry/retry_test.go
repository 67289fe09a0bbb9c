package retry_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"monopod/agent/network/retry"
)

// All repeats a read that was interrupted by a change, and returns other errors at once.
func TestAll(t *testing.T) {
	t.Parallel()
	other := errors.New("no permission")
	for name, tc := range map[string]struct {
		interruptions int
		then          error
		reads         int
	}{
		"consistent":     {0, nil, 1},
		"changes twice":  {2, nil, 3},
		"always changes": {100, nil, 20},
		"fails":          {1, other, 2},
	} {
		reads := 0
		list, err := retry.All(func() ([]int, error) {
			reads++
			if reads <= tc.interruptions {
				return []int{reads}, fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
			}
			return []int{reads}, tc.then
		})
		if !errors.Is(err, tc.then) || reads != tc.reads || list[0] != reads {
			t.Errorf("%s: got %v, error %v after %d reads", name, list, err, reads)
		}
	}
}
