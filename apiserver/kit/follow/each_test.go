package follow

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachIsBoundedAndJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		errs := Each(3, make([]int, 10), func(int) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return errors.New("no")
		})
		if most != 3 || len(errs) != 10 {
			t.Errorf("%d at once, %d errors", most, len(errs))
		}
	})
}
