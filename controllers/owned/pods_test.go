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
		calls, made int64
	}{
		"all good":               {1, 20, 100, 20, 20},
		"nothing to do":          {1, 0, 0, 0, 0},
		"first fails":            {1, 20, 1, 1, 0},
		"third batch fails":      {1, 50, 6, 21, 5},
		"a batch is tried fully": {1, 20, 3, 5, 2},
		"a large first batch":    {30, 20, 100, 20, 20},
		"which fails":            {10, 20, 4, 10, 3},
		"no first batch":         {0, 20, 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			made, err := SlowStart(c.first, int(c.n), func(int) error {
				if calls.Add(1) >= c.failFrom {
					return errors.New("no")
				}
				return nil
			})
			if calls.Load() != c.calls || int64(made) != c.made || (err == nil) != (c.made == c.n) {
				t.Errorf("%d calls, %d made, %v; want %d and %d", calls.Load(), made, err, c.calls, c.made)
			}
		})
	}
}
