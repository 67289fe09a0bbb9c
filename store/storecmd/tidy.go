package storecmd

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// tidyEvery is how often Tidy looks.
	tidyEvery = 5 * time.Minute
	// worthFreeing is how much memory must lie idle to be worth a collection.
	worthFreeing = 4 << 20
)

// Tidy lets go of what is not needed any more, until ctx ends: events that nobody
// will ask for (see store.Memory.Forget), and after a burst the memory that it
// took.
func (s *State) Tidy(ctx context.Context) error {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	var newest int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if s.File != nil {
			newest = s.File.Forget(newest)
		}
		if idleMemory() > worthFreeing {
			debug.FreeOSMemory()
		}
	}
}

// idleMemory is how many bytes of the heap hold nothing that is in use, as of the
// last collection, and are not given back to the system.
func idleMemory() int64 {
	sample := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()) + int64(sample[1].Value.Uint64()) - int64(sample[2].Value.Uint64())
}
