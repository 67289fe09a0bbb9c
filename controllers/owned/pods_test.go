package owned

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestSlowStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n, failFrom int64
		calls, made int64
	}{
		"all good":               {20, 100, 20, 20},
		"nothing to do":          {0, 0, 0, 0},
		"first fails":            {20, 1, 1, 0},
		"third batch fails":      {20, 5, 7, 4},
		"a batch is tried fully": {20, 3, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			made, err := SlowStart(int(c.n), func(int) error {
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
