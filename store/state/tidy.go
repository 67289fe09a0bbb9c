package state

import (
	"context"
	"time"
)

// forgetInterval is the interval at which Tidy drops history.
const forgetInterval = 5 * time.Minute

// Tidy drops old history (see store.Memory.Forget) until ctx ends.
func (s *State) Tidy(ctx context.Context) {
	ticker := time.NewTicker(forgetInterval)
	defer ticker.Stop()
	var newest int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			newest = s.File.Forget(newest)
		}
	}
}
