package owned

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestSlowStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first       int
		n, failFrom int64
		made        int64
	}{
		"all succeed":   {1, 20, 100, 20},
		"nothing to do": {1, 0, 0, 0},
		"first fails":   {1, 20, 1, 0},
		"some succeed":  {1, 50, 6, 5},
		"few succeed":   {1, 20, 3, 2},
		"many at first": {30, 20, 100, 20},
		"some of many":  {10, 20, 4, 3},
		"first is 0":    {0, 20, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			made, err := SlowStart(c.first, int(c.n), func(int) error {
				if calls.Add(1) >= c.failFrom {
					return errors.New("no")
				}
				return nil
			})
			most := min(c.n, int64(max(c.first, 1))+2*c.made)
			if got := calls.Load(); got > most || got < min(c.n, c.failFrom) || int64(made) != c.made ||
				(err == nil) != (c.made == c.n) {
				t.Errorf("%d calls, %d succeeded, %v; want at most %d calls, %d succeeded", got, made, err, most, c.made)
			}
		})
	}
}
