package storecmd

import (
	"context"
	"time"
)

// tidyEvery is how often Tidy looks.
const tidyEvery = 5 * time.Minute

// Tidy lets go of events that nobody will ask for (see store.Memory.Forget),
// until ctx ends.
func (s *State) Tidy(ctx context.Context) {
	ticker := time.NewTicker(tidyEvery)
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
